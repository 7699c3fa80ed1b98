//! [`PassRequest`]: one visitor's request, and the response for this visitor alone.

use std::time::Duration;

use bytes::Bytes;
use everfresh_core::domain::page_key::Tenant;
use http::header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use http::{Method, Response, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::{self, Upgraded};

use crate::connection_headers;
use crate::error::OriginError;
use crate::pass_body::PassBody;
use crate::response::check_transfer_coding;

/// One visitor's request to an origin.
#[derive(Clone, Debug)]
pub struct PassRequest<'a> {
    /// Connections are never shared between tenants.
    pub tenant: &'a Tenant,
    /// Any method except `CONNECT` and `TRACE`.
    pub method: Method,
    /// Path and query as in a request line, beginning with `/`.
    pub target: &'a str,
    /// Public host of the site, sent as `x-forwarded-host`.
    pub host: &'a str,
    /// `https` or `http`, sent as `x-forwarded-proto`.
    pub scheme: &'a str,
    /// The visitor's address, sent as `x-forwarded-for`. The visitor's own forwarding headers never
    /// are.
    pub client: Option<&'a str>,
    /// The visitor's headers, already filtered by the caller. Connection headers, forwarding
    /// headers and `host` are dropped.
    pub headers: HeaderMap,
    /// The tenant's own headers, which replace those of the same name.
    pub added: &'a [(&'a str, &'a str)],
    /// The whole body.
    pub body: Bytes,
    /// Timeout of the whole exchange: the head and the last byte of the body arrive within it.
    pub time: Duration,
    /// Passes `Upgrade` on, for WebSocket. The origin's 101 then ends the exchange, and its timeout
    /// with it.
    pub upgrade: bool,
}

/// The response to a [`PassRequest`]: the head, and the body while it arrives.
#[derive(Debug)]
pub struct PassResponse {
    pub status: StatusCode,
    /// Without the headers of the connection, except `connection` and `upgrade` of a 101.
    pub headers: HeaderMap,
    pub body: PassBody,
    /// The connection after a 101, which the caller connects with the visitor's.
    pub upgraded: Option<Upgraded>,
}

/// A response whose head has arrived, without its body.
pub(crate) struct PassHead {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Incoming,
    pub(crate) upgraded: Option<Upgraded>,
}

impl PassHead {
    pub(crate) async fn of(mut response: Response<Incoming>, upgrade: bool) -> Result<Self, OriginError> {
        check_transfer_coding(response.headers())?;
        let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if switched && !upgrade {
            return Err(OriginError::Switched);
        }
        let upgraded = match switched {
            true => Some(upgrade::on(&mut response).await.map_err(OriginError::Exchange)?),
            false => None,
        };
        let (head, body) = response.into_parts();
        let mut headers = head.headers;
        let protocol = headers.get(UPGRADE).cloned().filter(|_| switched);
        connection_headers::unify_length(&mut headers);
        connection_headers::remove(&mut headers);
        if let Some(protocol) = protocol {
            headers.insert(UPGRADE, protocol);
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        }
        Ok(Self { status: head.status, headers, body, upgraded })
    }
}
