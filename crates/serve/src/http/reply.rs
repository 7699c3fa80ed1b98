//! An HTTP response, independent of Lambda.

use bytes::Bytes;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    /// Names in lower case, each once, except `set-cookie`.
    pub headers: Vec<(String, String)>,
    /// Empty for HEAD and 304.
    pub body: Bytes,
}

impl Reply {
    pub fn new(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    /// Adds a header. A second value of a name is joined to the first by a comma, as in HTTP;
    /// cookies cannot be joined.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        let value = value.into();
        if name == "set-cookie" {
            self.headers.push((name.to_owned(), value));
            return self;
        }
        match self.headers.iter_mut().find(|(known, _)| known == name) {
            Some((_, joined)) => *joined = format!("{joined}, {value}"),
            None => self.headers.push((name.to_owned(), value)),
        }
        self
    }

    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// `name` in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_one_name_are_joined() {
        let reply = Reply::new(200).with("link", "</a>").with("x", "y").with("link", "</b>");
        assert_eq!(reply.header("link"), Some("</a>, </b>"));
        assert_eq!(reply.headers.len(), 2);
        assert_eq!(reply.header("set-cookie"), None);
    }
}
