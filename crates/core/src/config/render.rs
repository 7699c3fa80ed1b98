//! Where a tenant's pages come from.

use serde::Deserialize;

/// A tenant's renderer. It comes from the configuration alone, never from a message.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "RenderFile")]
pub enum Render {
    /// An HTTP origin, asked with GET.
    Http(String),
    /// A Lambda function, by name or ARN.
    Lambda(String),
    /// Built-in templates in a folder.
    Templates(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table like { http = \"https://origin.acme.example\" }")]
struct RenderFile {
    http: Option<String>,
    lambda: Option<String>,
    templates: Option<String>,
}

impl TryFrom<RenderFile> for Render {
    type Error = RenderError;

    fn try_from(file: RenderFile) -> Result<Self, RenderError> {
        match (file.http, file.lambda, file.templates) {
            (Some(text), None, None) => Render::http(&text),
            (None, Some(text), None) => Render::lambda(&text),
            (None, None, Some(text)) => Render::templates(&text),
            _ => Err(RenderError::One),
        }
    }
}

/// Why a renderer cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// None, or more than one.
    #[error("render must name one renderer: http or templates")]
    One,
    /// Not the address of an origin.
    #[error(
        "http must be an origin like \"https://origin.acme.example\": http or https, a host, perhaps a port, and no \
         user, path, query or fragment"
    )]
    Origin,
    /// Not a function.
    #[error("lambda must be the name or ARN of a function")]
    Function,
    /// Not a folder.
    #[error("templates must be a relative path without ..")]
    Folder,
}

impl Render {
    /// An origin without its final slash. Which addresses may be asked is decided when it is.
    pub fn http(text: &str) -> Result<Self, RenderError> {
        let text = text.strip_suffix('/').unwrap_or(text);
        let authority = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let authority = authority.ok_or(RenderError::Origin)?;
        let (host, port) = split_port(authority).ok_or(RenderError::Origin)?;
        let in_host = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
        let in_ipv6 = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
        let host_valid = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(ipv6) => !ipv6.is_empty() && ipv6.bytes().all(in_ipv6),
            None => !host.is_empty() && host.bytes().all(in_host),
        };
        let port_valid = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
        if !host_valid || !port_valid {
            return Err(RenderError::Origin);
        }
        Ok(Render::Http(text.to_owned()))
    }

    /// A function.
    pub fn lambda(text: &str) -> Result<Self, RenderError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_:$.".contains(&byte);
        let valid = (1..=170).contains(&text.len()) && text.bytes().all(allowed);
        valid.then(|| Render::Lambda(text.to_owned())).ok_or(RenderError::Function)
    }

    /// A folder of templates.
    pub fn templates(text: &str) -> Result<Self, RenderError> {
        let absolute = text.starts_with('/');
        let climbs = text.split('/').any(|part| part == "..");
        let strange = text.contains(|character: char| character.is_control() || character == '\\');
        let valid = !text.is_empty() && !absolute && !climbs && !strange;
        valid.then(|| Render::Templates(text.to_owned())).ok_or(RenderError::Folder)
    }
}

/// Host and port. None if the port is not all digits, or something else follows.
fn split_port(authority: &str) -> Option<(&str, Option<&str>)> {
    let end_of_host = authority.find(']').map_or(0, |at| at + 1);
    match authority[end_of_host..].split_once(':') {
        None => Some((authority, None)),
        Some((host, port)) => {
            let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| (&authority[..end_of_host + host.len()], Some(port)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_accepted_without_their_final_slash() {
        for (text, origin) in [
            ("https://origin.acme.example", "https://origin.acme.example"),
            ("http://127.0.0.1:3000/", "http://127.0.0.1:3000"),
            ("http://[::1]:3000", "http://[::1]:3000"),
            ("https://[2001:db8::1]", "https://[2001:db8::1]"),
        ] {
            assert_eq!(Render::http(text), Ok(Render::Http(origin.into())));
        }
    }

    #[test]
    fn addresses_that_could_lead_elsewhere_are_refused() {
        for text in [
            "",
            "origin.acme.example",
            "file:///etc/passwd",
            "gopher://x",
            "HTTPS://x",
            "https://",
            "https:///x",
            "https://user@x",
            "https://user:pw@x",
            "https://x\\@y",
            "https://x/path",
            "https://x?q",
            "https://x#f",
            "https://x:",
            "https://x:0",
            "https://x:99999",
            "https://x:80:80",
            "https://x:+80",
            "https://a b",
            "https://x\r\ny",
            "https://[::1",
            "https://[]",
            "https://[::1]x",
        ] {
            assert_eq!(Render::http(text), Err(RenderError::Origin), "{text:?}");
        }
    }

    #[test]
    fn functions_and_folders_are_checked() {
        assert!(Render::lambda("arn:aws:lambda:eu-west-1:123456789012:function:ssr:live").is_ok());
        for text in ["", "a b", "a/b", &"f".repeat(171)] {
            assert_eq!(Render::lambda(text), Err(RenderError::Function));
        }
        assert!(Render::templates("site/").is_ok());
        for text in ["", "/etc", "../up", "a/../../b", "a\\b", "a\0"] {
            assert_eq!(Render::templates(text), Err(RenderError::Folder));
        }
    }
}
