//! An HTTP request, independent of Lambda.

use bytes::Bytes;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// As received: case matters.
    pub method: String,
    /// Path and query, as received.
    pub target: String,
    /// Names in lower case; several of one name are joined by commas.
    pub headers: Vec<(String, String)>,
    /// The `Cookie` header's parts, `name=value` each.
    pub cookies: Vec<String>,
    pub body: Bytes,
    /// The visitor's address, as far as a proxy or Lambda vouches for it.
    pub client: Option<String>,
    /// It came by HTTPS.
    pub is_encrypted: bool,
    /// It requests an upgrade of the connection, and the server can hand that over.
    pub is_upgrade: bool,
}

impl Request {
    /// `name` in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The first one of the name: browsers send the most specific one first.
    pub fn cookie(&self, name: &str) -> Option<&str> {
        self.cookies.iter().find_map(|cookie| cookie.trim().strip_prefix(name)?.strip_prefix('='))
    }
}

/// The methods that a page is served to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
}

impl Method {
    /// Case matters: `get` is another method.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "GET" => Some(Method::Get),
            "HEAD" => Some(Method::Head),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_get_and_head_are_parsed() {
        assert_eq!(Method::parse("GET"), Some(Method::Get));
        assert_eq!(Method::parse("HEAD"), Some(Method::Head));
        for method in ["", "get", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PURGE", "GET "] {
            assert_eq!(Method::parse(method), None, "{method:?}");
        }
    }

    #[test]
    fn cookie_is_found_by_its_whole_name() {
        let cookies = ["a=1", " everfresh-preview=x.y", "everfresh-preview-2=z"].map(str::to_owned).to_vec();
        let request = Request { cookies, ..Request::default() };
        assert_eq!(request.cookie("everfresh-preview"), Some("x.y"));
        assert_eq!(request.cookie("everfresh"), None);
        assert_eq!(request.cookie("a"), Some("1"));
    }
}
