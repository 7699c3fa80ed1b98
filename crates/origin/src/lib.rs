//! Requests a page from a tenant's HTTP origin: one GET, one response.
//!
//! The origin receives nothing of a reader or producer except the fields of [`OriginRequest`].
//! Redirects are not followed, and proxy settings of the environment are ignored; the response is
//! passed on unchanged.
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
//! A body that ends before its `Content-Length` or in the middle of a chunk, or that is followed by
//! more bytes, is a failure and never published; so is a transfer coding other than `chunked`. A
//! body that ends with the connection (neither length nor chunks) cannot be distinguished from a
//! truncated one: routes with such origins should set `gate = { must_contain = "</html>" }`.
//!
//! # One request per fetch
//!
//! A fetch sends its request once. If the connection breaks after the request may have been sent,
//! the fetch fails, and the caller decides about another attempt and counts it. Only a request of
//! which provably nothing was written, because the pooled connection was already closed, is sent on
//! another connection.
//!
//! # Reuse of connections
//!
//! A connection is pooled for one tenant and one origin, for a few seconds. HTTP/1.1 responses do
//! not say which request they belong to, so a connection is reused only if
//!
//! - nothing has arrived on it since the last response, neither read nor waiting in the socket's
//!   buffer, which is checked at the moment of use, and
//! - it has been idle for at least [`OriginTimeouts::min_idle`].
//!
//! What this detects, for a response with `Content-Length: 10` that is followed by 90 more bytes or
//! by a second response:
//!
//! | The surplus arrives | Result |
//! |---|---|
//! | before the tenth byte has been read and the connection checked | the fetch fails: the body is not the page. (Over TLS only if it has been decrypted by then; else as in the next row) |
//! | later, before the connection is reused | the ten bytes are the page; the connection is closed, and the surplus is discarded |
//! | after the next request was sent on the connection | **not detected**: it is read as the response to that request, from the same tenant and origin |
//!
//! The last row needs an origin that sends more than its `Content-Length`, later than
//! [`OriginTimeouts::min_idle`]. For such origins `render = { http = …, keep_alive = false }` sends
//! every request on its own connection, with `Connection: close`.
//!
//! # Limits
//!
//! | | Limit |
//! |---|---|
//! | connecting, with DNS and TLS | [`OriginTimeouts::connect`] |
//! | head of the response | [`OriginTimeouts::head`], 64 KiB, 100 headers |
//! | body | [`OriginRequest::max_bytes`], counted while it is read |
//! | the whole fetch, however slow the origin sends | [`OriginRequest::time`] |
//!
//! # Layout
//!
//! | Where | What |
//! |---|---|
//! | `request` | [`OriginRequest`], and the HTTP request built from it |
//! | `origins` | the exchange, on a pooled connection or a new one |
//! | `addresses` | resolves a host and refuses forbidden addresses |
//! | `connector` | connects to checked addresses, with TLS for `https` |
//! | `connection` | one connection, and how an exchange on it ended |
//! | `pool` | idle connections |
//! | `response` | reads the response to its end, up to the size limit |

mod addresses;
mod connection;
mod connector;
mod error;
mod origins;
mod pool;
mod request;
mod response;

pub use origins::{OriginTimeouts, Origins, fetch_over};
pub use request::OriginRequest;
