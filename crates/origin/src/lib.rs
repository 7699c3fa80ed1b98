//! Requests a page from a tenant's HTTP origin: one GET, one answer.
//!
//! Nothing of a reader or a producer reaches the origin but what an [`OriginRequest`] carries. Redirects are not followed and proxies
//! are not used, whatever the environment says; the answer is passed on as it came.
//!
//! # Which addresses are asked
//!
//! The origin's host is resolved for each new connection, every address that it has is checked, and the connection is made to one of the
//! checked addresses: nothing is resolved again in between, so a name cannot change its mind. Literal addresses and all spellings that
//! a resolver understands (`127.1`, `0x7f000001`) go the same way.
//!
//! | Address | Asked |
//! |---|---|
//! | public | yes |
//! | private (RFC 1918, RFC 6598, unique local IPv6) | only for a tenant with `render = { http = …, private_network = true }` |
//! | loopback | only by [`Origins::with_loopback`]: `everfresh dev` and tests, never by configuration |
//! | link-local, instance metadata, multicast, reserved, documentation, … | never |
//! | the Lambda Runtime API (`AWS_LAMBDA_RUNTIME_API`), wherever it is | never |
//!
//! A name that has several addresses, and one of them may not be asked, is refused whole: such a record is a mistake or an attack, and
//! which address would be tried first is chance. The ranges, and what becomes of IPv4 addresses inside IPv6 addresses, are in
//! [`everfresh_core::domain::address`]. A refusal is [`RenderFailure::Forbidden`](everfresh_core::render::RenderFailure::Forbidden), and
//! nothing has been connected to.
//!
//! # What counts as an answer
//!
//! A body that ends before its announced length, in the middle of a chunk, or with bytes to spare is no answer but a
//! failure, so it is never published; nor is one with a transfer coding other than `chunked`. A body whose end is the end of the
//! connection (neither length nor chunks) cannot be told from a truncated one: routes with such origins want
//! `gate = { must_contain = "</html>" }`.
//!
//! # One request per fetch
//!
//! A fetch sends its request once. If the connection breaks after the request may have left, the fetch fails, and whether there is
//! another one is the caller's decision, who counts it. Only a request that provably was not written, for the kept connection had been
//! closed already, goes on to another connection.
//!
//! # What a kept connection can carry over
//!
//! A connection is kept for one tenant and one origin, for a few seconds. HTTP/1.1 answers do not say which request they belong to, so
//! it is used again only if
//!
//! - nothing has arrived on it since the last answer: neither read by us nor waiting in the system's buffer, which is looked into at the
//!   moment of use, and
//! - it has been quiet for [`OriginTimeouts::quiet`] at least.
//!
//! What this detects, for an answer with `Content-Length: 10` that is followed by 90 more bytes, or by a second answer:
//!
//! | The surplus arrives | What happens |
//! |---|---|
//! | before the tenth byte has been read and the connection looked at | the fetch fails: the body is not the page. (Over TLS, only if it has been decrypted by then; else as in the next line) |
//! | later, before the connection is used again | the ten bytes were the page; the connection is closed, and the surplus read by nobody |
//! | after the next request was sent on the connection | **not detected**: it looks like the answer to that request. It is a page of the same tenant and origin |
//!
//! The last line needs an origin that sends more than it announced, later than [`OriginTimeouts::quiet`]. For such origins
//! `render = { http = …, keep_alive = false }` sends every request on a connection of its own, with `Connection: close`.
//!
//! # What an origin can cost
//!
//! | | Bound |
//! |---|---|
//! | connecting, DNS and TLS included | [`OriginTimeouts::connect`] |
//! | the answer's head | [`OriginTimeouts::head`], 64 KiB, 100 headers |
//! | the body | [`OriginRequest::max_bytes`], counted while it is read |
//! | everything together, however slowly it drips | [`OriginRequest::time`] |
//!
//! # Layout
//!
//! | Where | What |
//! |---|---|
//! | `request` | what is requested, and the HTTP request that it becomes |
//! | `origins` | the exchange, on a kept connection or a new one |
//! | `addresses` | resolving a host, and refusing addresses |
//! | `connector` | connecting to a checked address, and TLS |
//! | `connection` | one connection, and finding out how an exchange ended |
//! | `pool` | connections that are kept |
//! | `answer` | what came back, read to its end or to the cap |

mod addresses;
mod answer;
mod connection;
mod connector;
mod error;
mod origins;
mod pool;
mod request;

pub use origins::{OriginTimeouts, Origins, fetch_over};
pub use request::OriginRequest;
