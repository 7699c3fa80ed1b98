//! What a reader asks, whatever carried it here.

use bytes::Bytes;

/// One HTTP request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The method, in upper case as it came.
    pub method: String,
    /// Path and query, as they came.
    pub target: String,
    /// Headers: names in lower case, several of one name joined by commas.
    pub headers: Vec<(String, String)>,
    /// The `Cookie` header's parts, `name=value` each.
    pub cookies: Vec<String>,
    /// The body. Readers have none; the signed requests below `/_everfresh/` may.
    pub body: Bytes,
}

impl Request {
    /// The value of a header; `name` in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The value of a cookie. The first one counts, as browsers send the most specific one first.
    pub fn cookie(&self, name: &str) -> Option<&str> {
        self.cookies.iter().find_map(|cookie| cookie.trim().strip_prefix(name)?.strip_prefix('='))
    }
}

/// A request that may be answered with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The page.
    Get,
    /// Its headers only.
    Head,
}

impl Method {
    /// GET and HEAD; none for everything else, which has no meaning here. Case matters: `get` is another method.
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
    fn only_get_and_head_reach_a_page() {
        assert_eq!(Method::parse("GET"), Some(Method::Get));
        assert_eq!(Method::parse("HEAD"), Some(Method::Head));
        for method in ["", "get", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PURGE", "GET "] {
            assert_eq!(Method::parse(method), None, "{method:?}");
        }
    }

    #[test]
    fn cookies_are_found_by_their_whole_name() {
        let cookies = ["a=1", " everfresh-preview=x.y", "everfresh-preview-2=z"].map(str::to_owned).to_vec();
        let request = Request { cookies, ..Request::default() };
        assert_eq!(request.cookie("everfresh-preview"), Some("x.y"));
        assert_eq!(request.cookie("everfresh"), None);
        assert_eq!(request.cookie("a"), Some("1"));
    }
}
