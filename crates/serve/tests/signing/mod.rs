//! Signed requests, as a caller sends them.
#![allow(dead_code, reason = "each suite uses its part")]

use everfresh_serve::http::{Reply, Request};
use everfresh_serve::trigger::signature::{RevalidateKeys, SignedRequest};
use everfresh_testing::{Instance, World};
use serde_json::Value;

pub(crate) const PAGE: &str = "/products/42";
pub(crate) const BODY: &str = r#"{"path":"/products/42"}"#;
pub(crate) const POST: &str = "/_everfresh/revalidate";
pub(crate) const KEYS: &str = "old:0123456789abcdef0123456789abcdef,new:fedcba9876543210fedcba9876543210";

/// A request before it is signed.
#[derive(Clone, Copy)]
pub(crate) struct Draft<'a> {
    pub(crate) method: &'a str,
    pub(crate) host: &'a str,
    pub(crate) target: &'a str,
    pub(crate) key_id: &'a str,
    /// Offset of the timestamp from now, in seconds.
    pub(crate) when: i64,
    pub(crate) nonce: &'a str,
    pub(crate) request_id: Option<&'a str>,
    pub(crate) body: &'a str,
}

pub(crate) const REVALIDATE: Draft<'static> = Draft {
    method: "POST",
    host: "www.acme.example",
    target: POST,
    key_id: "old",
    when: 0,
    nonce: "nonce-0123456789",
    request_id: Some("order-4711"),
    body: BODY,
};

/// Reads the state of a request.
pub(crate) fn state_read<'a>(target: &'a str, nonce: &'a str) -> Draft<'a> {
    Draft { method: "GET", target, nonce, request_id: None, body: "", ..REVALIDATE }
}

impl Draft<'_> {
    pub(crate) fn signed(&self, world: &World) -> Request {
        let timestamp = (world.now_ms() / 1000).checked_add_signed(self.when).unwrap().to_string();
        let Draft { method, host, target, key_id, nonce, request_id, .. } = *self;
        let request_id_line = request_id.unwrap_or_default();
        let body = self.body.as_bytes();
        let signed =
            SignedRequest { method, host, target, timestamp: &timestamp, nonce, request_id: request_id_line, body };
        let signature = RevalidateKeys::parse(KEYS).unwrap().sign(key_id, &signed).unwrap();
        let mut headers = vec![
            ("host", host),
            ("x-everfresh-key-id", key_id),
            ("x-everfresh-timestamp", &timestamp),
            ("x-everfresh-nonce", nonce),
            ("x-everfresh-signature", &signature),
        ];
        headers.extend(request_id.map(|id| ("x-request-id", id)));
        let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let body = self.body.to_owned().into();
        Request { method: method.to_owned(), target: target.to_owned(), headers, body, ..Request::default() }
    }

    pub(crate) async fn sent(&self, world: &World, instance: &Instance) -> Reply {
        instance.serve(&self.signed(world)).await
    }
}

pub(crate) fn with_keys(world: &World) -> Instance {
    world.instance_with(|settings| settings.revalidate_keys = RevalidateKeys::parse(KEYS).unwrap())
}

pub(crate) fn json_body(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.body).unwrap()
}

/// The request with another value of a header, or without it.
pub(crate) fn altered(request: &Request, name: &str, value: Option<&str>) -> Request {
    let mut request = request.clone();
    request.headers.retain(|(known, _)| known != name);
    request.headers.extend(value.map(|value| (name.to_owned(), value.to_owned())));
    request
}
