//! Where a tenant's pages come from.

use std::num::NonZeroU32;

use serde::Deserialize;

use super::{HttpOrigin, SentHost};

/// A tenant's renderer. It comes from the configuration alone, never from a message.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "RenderFile")]
pub enum Render {
    /// An HTTP origin, requested with GET.
    Http(HttpOrigin),
    /// A Lambda function, by name or ARN.
    Lambda(String),
    /// Built-in templates in a folder.
    Templates(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table like { http = \"https://origin.acme.example\" }")]
struct RenderFile {
    http: Option<String>,
    private_network: Option<bool>,
    keep_alive: Option<bool>,
    host: Option<SentHost>,
    concurrency: Option<NonZeroU32>,
    lambda: Option<String>,
    templates: Option<String>,
}

impl TryFrom<RenderFile> for Render {
    type Error = RenderError;

    fn try_from(file: RenderFile) -> Result<Self, RenderError> {
        let http_settings = file.private_network.is_some()
            || file.keep_alive.is_some()
            || file.host.is_some()
            || file.concurrency.is_some();
        match (file.http, file.lambda, file.templates) {
            (Some(text), None, None) => {
                let mut origin = HttpOrigin::parse(&text)?;
                origin.private_network = file.private_network.unwrap_or(origin.private_network);
                origin.keep_alive = file.keep_alive.unwrap_or(origin.keep_alive);
                origin.host = file.host.unwrap_or(origin.host);
                origin.concurrency = file.concurrency.unwrap_or(origin.concurrency);
                Ok(Render::Http(origin))
            }
            (None, Some(_), None) | (None, None, Some(_)) if http_settings => Err(RenderError::OnlyHttp),
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
    /// An IPv4 address that is not written as such.
    #[error("http must have a name or a full address: four decimal numbers like 192.168.0.10, or IPv6 in brackets")]
    OddAddress,
    /// A setting of HTTP origins, and no HTTP origin.
    #[error("private_network, keep_alive, host and concurrency are settings of http")]
    OnlyHttp,
    #[error("lambda must be the name or ARN of a function")]
    Function,
    #[error("templates must be a relative path without ..")]
    Folder,
}

impl Render {
    pub fn http(text: &str) -> Result<Self, RenderError> {
        HttpOrigin::parse(text).map(Render::Http)
    }

    pub fn lambda(text: &str) -> Result<Self, RenderError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_:$.".contains(&byte);
        let valid = (1..=170).contains(&text.len()) && text.bytes().all(allowed);
        valid.then(|| Render::Lambda(text.to_owned())).ok_or(RenderError::Function)
    }

    pub fn templates(text: &str) -> Result<Self, RenderError> {
        let absolute = text.starts_with('/');
        let climbs = text.split('/').any(|part| part == "..");
        let strange = text.contains(|character: char| character.is_control() || character == '\\');
        let valid = !text.is_empty() && !absolute && !climbs && !strange;
        valid.then(|| Render::Templates(text.to_owned())).ok_or(RenderError::Folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Render, String> {
        #[derive(Deserialize)]
        struct File {
            render: Render,
        }
        toml::from_str(&format!("render = {text}")).map(|file: File| file.render).map_err(|error| error.to_string())
    }

    #[test]
    fn host_header_is_the_origins_unless_public_is_chosen() {
        let host = |text: &str| match parsed(text) {
            Ok(Render::Http(origin)) => origin.host,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(host("{ http = \"https://o\" }"), SentHost::Origin);
        assert_eq!(host("{ http = \"https://o\", host = \"origin\" }"), SentHost::Origin);
        assert_eq!(host("{ http = \"https://o\", host = \"public\" }"), SentHost::Public);
        for (text, expected) in [
            ("{ http = \"https://o\", host = \"www.acme.example\" }", "expected `origin` or `public`"),
            ("{ templates = \"site\", host = \"public\" }", "settings of http"),
        ] {
            let refused = parsed(text).unwrap_err();
            assert!(refused.contains(expected), "{text}: {refused}");
        }
    }

    #[test]
    fn concurrency_is_a_number_above_zero() {
        let Ok(Render::Http(origin)) = parsed("{ http = \"https://o\", concurrency = 20 }") else { panic!() };
        assert_eq!(origin.concurrency.get(), 20);
        for (text, expected) in [
            ("{ http = \"https://o\", concurrency = 0 }", "nonzero"),
            ("{ http = \"https://o\", concurrency = -1 }", "nonzero"),
            ("{ lambda = \"ssr\", concurrency = 5 }", "settings of http"),
        ] {
            let refused = parsed(text).unwrap_err();
            assert!(refused.contains(expected), "{text}: {refused}");
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
