//! Access control of the gateway: only programs on this machine that sign with the credentials of
//! local mode.
//!
//! A web page in a browser on this machine can send requests to loopback, and with DNS rebinding
//! under its own host name. Three checks prevent that, each on its own:
//!
//! - `Host` and the authority of the request target must be `localhost` or a loopback address, with
//!   this port. A rebound name is neither.
//! - `Origin` and `Sec-Fetch-*` headers must be absent: browsers send them, AWS clients do not. A
//!   CORS preflight has them too, so no browser sends `Authorization` across origins.
//! - Signature Version 4 with the access key and secret of local mode. The embedded S3 verifies its
//!   own signatures, and accepts presigned URLs.
//!
//! Not checked: the secret is public, so every program and user of this machine has access; neither
//! the time of signing nor the region is verified, so a recorded request can be replayed.

use std::net::IpAddr;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderValue, Request, Response, StatusCode};
use rustack_auth::{AuthError, StaticCredentialProvider, hash_payload, verify_sigv4};
use serde_json::json;

use crate::engines::Service;
use crate::{ACCESS_KEY, SECRET_KEY};

#[derive(Clone, Debug)]
pub(super) struct Callers {
    port: u16,
    credentials: StaticCredentialProvider,
}

pub(super) enum Admission {
    Accepted(Request<Bytes>),
    /// The response to send.
    Refused(Response<Bytes>),
}

/// AWS's error code, and a message that says what to do.
struct Refusal {
    code: &'static str,
    message: String,
}

impl Callers {
    pub(super) fn of(port: u16) -> Self {
        let credentials = StaticCredentialProvider::new([(ACCESS_KEY.to_owned(), SECRET_KEY.to_owned())]);
        Self { port, credentials }
    }

    pub(super) fn admit(&self, request: Request<Bytes>) -> Admission {
        let service = Service::of(&request);
        let checked = self.check_host(&request).and_then(|()| check_no_browser(&request));
        if let Err(refusal) = checked {
            return Admission::Refused(refusal.response(service));
        }
        if service == Service::S3 {
            return Admission::Accepted(request);
        }
        let (parts, body) = request.into_parts();
        match verify_sigv4(&parts, &hash_payload(&body), &self.credentials) {
            Ok(_) => Admission::Accepted(Request::from_parts(parts, body)),
            Err(error) => Admission::Refused(unsigned(&error).response(service)),
        }
    }

    fn check_host(&self, request: &Request<Bytes>) -> Result<(), Refusal> {
        let in_headers = request.headers().get_all(HOST).iter().map(|host| host.to_str().unwrap_or_default());
        let mut hosts = request.uri().authority().map(Authority::as_str).into_iter().chain(in_headers).peekable();
        if hosts.peek().is_some() && hosts.all(|host| self.is_this_port(host)) {
            return Ok(());
        }
        let port = self.port;
        let message =
            format!("this endpoint accepts only the hosts localhost:{port} and 127.0.0.1:{port}: use one of them");
        Err(Refusal { code: "AccessDeniedException", message })
    }

    /// Whether the host is a loopback name or address with this port.
    fn is_this_port(&self, host: &str) -> bool {
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
    let message = "this endpoint does not accept requests from browsers: use an AWS SDK or the AWS CLI".to_owned();
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
    /// The error response in the service's protocol.
    fn response(self, service: Service) -> Response<Bytes> {
        let Self { code, message } = self;
        // The message may quote the request.
        let escaped = message.replace('&', "&amp;").replace('<', "&lt;");
        let error = format!("<Error><Code>{code}</Code><Message>{escaped}</Message></Error>");
        let (content_type, body) = match service {
            Service::DynamoDb | Service::Sqs | Service::Lambda | Service::EventBridge => {
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
