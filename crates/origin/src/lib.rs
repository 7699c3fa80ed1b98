//! Sends requests to a tenant's HTTP origin.
//!
//! | | Request | Response |
//! |---|---|---|
//! | [`Origins::fetch`] | GET of a page, on no visitor's behalf: the origin receives nothing of a reader or producer except the fields of [`OriginRequest`] | read to its end, up to a limit; for all readers |
//! | [`Origins::pass`] | one visitor's, as in [`PassRequest`], without connection headers and the visitor's own forwarding headers | streamed to this visitor alone, of any size |
//!
//! Redirects are not followed, and proxy settings of the environment are ignored.
//!
//! # Headers of both
//!
//! | Header | Value |
//! |---|---|
//! | `Host` | of the origin's URL, or the site's public host with `render = { http = …, host = "public" }`. The name in the TLS certificate is always the one in the URL |
//! | `X-Forwarded-Host` | the site's public host |
//! | `X-Forwarded-Proto` | the visitor's scheme; on a fetch `https`, with [`Origins::with_loopback`] `http` |
//! | `X-Forwarded-For` | only on a pass: the visitor's address alone |
//! | those of the connection, and those that `Connection` names | never passed on, in either direction, except `Upgrade` where [`PassRequest::upgrade`] allows it |
//!
//! # Allowed addresses
//!
//! The origin's host is resolved for each new connection, all its addresses are checked, and the
//! connection is made to one of them without resolving again, so DNS rebinding has no effect.
//! Literal addresses in all forms that a resolver accepts (`127.1`, `0x7f000001`) are checked the
//! same way.
//!
//! | Address | Allowed |
//! |---|---|
//! | public | yes |
//! | private (RFC 1918, RFC 6598, unique local IPv6) | only for a tenant with `render = { http = …, private_network = true }` |
//! | loopback | only with [`Origins::with_loopback`]: `everfresh dev` and tests, never by configuration |
//! | link-local, instance metadata, multicast, reserved, documentation, … | never |
//! | the Lambda Runtime API (`AWS_LAMBDA_RUNTIME_API`), at any address | never |
//!
//! A name is refused if any of its addresses is forbidden: such a record is a mistake or an attack,
//! and otherwise chance would decide which address is used. The ranges, and the handling of IPv4
//! addresses inside IPv6 addresses, are in [`everfresh_core::domain::origin_address`]. A refusal is
//! [`RenderFailure::Forbidden`](everfresh_core::render::RenderFailure::Forbidden), before any
//! connection.
//!
//! # Complete responses only
//!
//! A fetched body that ends before its `Content-Length` or in the middle of a chunk, or that is
//! followed by more bytes, is a failure and never published; so is a transfer coding other than
//! `chunked`. A passed body that breaks off ends with a [`PassError`], never as if complete. A
//! body that ends with the connection (neither length nor chunks) cannot be distinguished from a
//! truncated one: routes with such origins should set `gate = { must_contain = "</html>" }`.
//!
//! # Content codings
//!
//! A fetch accepts no coding; with [`Origins::with_decoding`] it accepts gzip, br and zstd, and
//! removes at most two of them, with the headers that describe the coded body. A page with another
//! coding, or more of them, is left as it is. A stream that is truncated, corrupted or followed by
//! more bytes is unreadable, and so is one that inflates to more than 200 times its size and
//! 64 KiB. Decoded piece by piece, it never exceeds [`OriginRequest::max_bytes`]. A passed response
//! is never decoded.
//!
//! # One request per call
//!
//! A request is sent once. If the connection breaks after the request may have been sent, the call
//! fails, and the caller decides about another attempt and counts it. Only a request of which
//! provably nothing was written, because the pooled connection was already closed, is sent on
//! another connection. A passed request with a safe method that is lost on a pooled connection is
//! sent once more, on a new one: the origin was closing the idle connection. A request with an
//! unsafe method always gets a new connection, which the origin is not about to close.
//!
//! Connecting is tried up to four times within the request's time if the origin refuses or closes
//! the connection, as while it restarts: nothing has been sent by then.
//!
//! # Reuse of connections
//!
//! A connection is pooled for one tenant and one origin, for a few seconds. HTTP/1.1 responses do
//! not say which request they belong to, so a connection is reused only if
//!
//! - its last response was read to the end,
//! - nothing has arrived on it since the last response, neither read nor waiting in the socket's
//!   buffer, which is checked at the moment of use, and
//! - it has been idle for at least [`OriginTimeouts::min_idle`].
//!
//! What this detects in a fetch, for a response with `Content-Length: 10` that is followed by 90
//! more bytes or by a second response:
//!
//! | The surplus arrives | Result |
//! |---|---|
//! | before the tenth byte has been read and the connection checked | the fetch fails: the body is not the page. (Over TLS only if it has been decrypted by then; else as in the next row) |
//! | later, before the connection is reused | the ten bytes are the page; the connection is closed, and the surplus is discarded |
//! | after the next request was sent on the connection | **not detected**: it is read as the response to that request, from the same tenant and origin |
//!
//! On a pass the ten bytes are on their way to the visitor in the first row too, and the connection
//! is closed.
//!
//! The last row needs an origin that sends more than its `Content-Length`, later than
//! [`OriginTimeouts::min_idle`]. For such origins `render = { http = …, keep_alive = false }` sends
//! every request on its own connection, with `Connection: close`.
//!
//! # Limits
//!
//! | | Limit |
//! |---|---|
//! | requests at a time, of one tenant to one origin | `render = { http = …, concurrency = 50 }`; others wait within their time. A pass counts until the head of its response, so streams do not count |
//! | passes at a time, of one path | a quarter of those |
//! | connecting to an origin that fails five times in a row | not for a second, doubling to 30, then one attempt; meanwhile requests fail at once. A status is no failure |
//! | connecting, with DNS and TLS | [`OriginTimeouts::connect`] |
//! | head of the response | [`OriginTimeouts::head`], 64 KiB, 100 headers |
//! | fetched body | [`OriginRequest::max_bytes`], counted while it is read |
//! | passed body | none; at most two pieces of 128 KiB are read ahead of the visitor |
//! | the whole, however slow the origin sends | [`OriginRequest::time`], [`PassRequest::time`] |
//!
//! # Layout
//!
//! | Where | What |
//! |---|---|
//! | `request`, `pass` | [`OriginRequest`]; [`PassRequest`] and [`PassResponse`] |
//! | `prepared` | the HTTP request built from either |
//! | `connection_headers` | headers that are never passed on |
//! | `origins` | the exchange, on a pooled connection or a new one |
//! | `addresses` | resolves a host and refuses forbidden addresses |
//! | `connector` | connects to checked addresses, with TLS for `https` |
//! | `connection` | one connection, and how an exchange on it ended |
//! | `limits`, `breaker` | how many requests run at a time; whether connecting is tried |
//! | `pool` | idle connections |
//! | `response` | reads a fetched response to its end, up to the size limit |
//! | `decode`, `codings` | remove the content codings of a fetched page |
//! | `pass_body` | streams a passed response, and pools its connection after the end |

mod addresses;
mod breaker;
mod codings;
mod connection;
mod connection_headers;
mod connector;
mod decode;
mod error;
mod limits;
mod origins;
mod pass;
mod pass_body;
mod pool;
mod prepared;
mod request;
mod response;

pub use origins::{OriginTimeouts, Origins, fetch_over};
pub use pass::{PassRequest, PassResponse};
pub use pass_body::{PassBody, PassError};
pub use request::OriginRequest;
