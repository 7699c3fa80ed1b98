//! Who may call the engines over their port: programs on this machine that sign with the credentials of local mode.
//!
//! Every web page that a browser on this machine shows can send requests to loopback too, and by DNS rebinding under a name of its own.
//! So three things are checked, and each of them stops it alone:
//!
//! - `Host`, and the authority of the request's target: `localhost` or a loopback address, with this port. A rebound name is another one.
//! - `Origin` and the `Sec-Fetch-` headers, which browsers send and no AWS client does, must not be there. A preflight has them, so
//!   that no browser sends `Authorization` from another origin.
//! - A signature, Version 4, with the access key and secret of local mode. S3's engine checks its own, and takes presigned URLs.
//!
//! What is not checked: the secret is no secret, so any other program on this machine gets in, whoever runs it; and neither the time of
//! signing nor the region, so a request that was recorded is taken again.

use std::net::IpAddr;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderValue, Request, Response, StatusCode};
use rustack_auth::{AuthError, StaticCredentialProvider, hash_payload, verify_sigv4};
use serde_json::json;

use crate::engines::Service;
use crate::{ACCESS_KEY, SECRET_KEY};

/// The check of every request at one port.
#[derive(Clone, Debug)]
pub(super) struct Callers {
    port: u16,
    credentials: StaticCredentialProvider,
}

/// What became of a request at the door.
pub(super) enum Admission {
    /// The engines answer it.
    Granted(Request<Bytes>),
    /// This is its answer.
    Refused(Response<Bytes>),
}

/// Why a request is not answered: AWS's name for it, and words that say what to do.
struct Refusal {
    code: &'static str,
    message: String,
}

impl Callers {
    pub(super) fn of(port: u16) -> Self {
        let credentials = StaticCredentialProvider::new([(ACCESS_KEY.to_owned(), SECRET_KEY.to_owned())]);
        Self { port, credentials }
    }

    /// Checks a request before it reaches the engines.
    pub(super) fn admit(&self, request: Request<Bytes>) -> Admission {
        let service = Service::of(&request);
        let checked = self.check_host(&request).and_then(|()| check_no_browser(&request));
        if let Err(refusal) = checked {
            return Admission::Refused(refusal.answer(service));
        }
        if service == Service::S3 {
            return Admission::Granted(request);
        }
        let (parts, body) = request.into_parts();
        match verify_sigv4(&parts, &hash_payload(&body), &self.credentials) {
            Ok(_) => Admission::Granted(Request::from_parts(parts, body)),
            Err(error) => Admission::Refused(unsigned(&error).answer(service)),
        }
    }

    fn check_host(&self, request: &Request<Bytes>) -> Result<(), Refusal> {
        let in_headers = request.headers().get_all(HOST).iter().map(|host| host.to_str().unwrap_or_default());
        let mut hosts = request.uri().authority().map(Authority::as_str).into_iter().chain(in_headers).peekable();
        if hosts.peek().is_some() && hosts.all(|host| self.is_here(host)) {
            return Ok(());
        }
        let port = self.port;
        let message =
            format!("only the hosts localhost:{port} and 127.0.0.1:{port} are answered here: use one of them");
        Err(Refusal { code: "AccessDeniedException", message })
    }

    /// Whether it names this machine by loopback, and this port.
    fn is_here(&self, host: &str) -> bool {
        let Ok(authority) = host.parse::<Authority>() else { return false };
        let name = authority.host();
        let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let is_loopback = name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback());
        is_loopback && !host.contains('@') && authority.port_u16().unwrap_or(80) == self.port
    }
}

fn check_no_browser(request: &Request<Bytes>) -> Result<(), Refusal> {
    let is_sent_by_browser = |name: &http::HeaderName| name == ORIGIN || name.as_str().starts_with("sec-fetch-");
    if !request.headers().keys().any(is_sent_by_browser) {
        return Ok(());
    }
    let message = "requests of browsers are not answered here".to_owned();
    Err(Refusal { code: "AccessDeniedException", message })
}

fn unsigned(error: &AuthError) -> Refusal {
    let code = if matches!(error, AuthError::MissingAuthHeader) {
        "MissingAuthenticationTokenException"
    } else if matches!(error, AuthError::AccessKeyNotFound(_)) {
        "UnrecognizedClientException"
    } else {
        "InvalidSignatureException"
    };
    let message =
        format!("{error}: sign with the access key {ACCESS_KEY} and the secret {SECRET_KEY} (Signature Version 4)");
    Refusal { code, message }
}

impl Refusal {
    /// In the shape in which the service's clients read errors.
    fn answer(self, service: Service) -> Response<Bytes> {
        let Self { code, message } = self;
        // The message may repeat what the request says.
        let escaped = message.replace('&', "&amp;").replace('<', "&lt;");
        let error = format!("<Error><Code>{code}</Code><Message>{escaped}</Message></Error>");
        let (content_type, body) = match service {
            Service::DynamoDb | Service::Sqs | Service::EventBridge => {
                ("application/x-amz-json-1.0", json!({"__type": code, "message": message}).to_string())
            }
            Service::S3 => ("application/xml", error),
            Service::CloudFront | Service::Sns => ("text/xml", format!("<ErrorResponse>{error}</ErrorResponse>")),
        };
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = StatusCode::FORBIDDEN;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        response
    }
}
