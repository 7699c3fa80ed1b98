//! Asks a tenant's HTTP origin: one GET, one answer.
//!
//! Nothing of a reader or a producer reaches the origin but what an [`Ask`] carries. Redirects are not followed and proxies are
//! not used; the answer is passed on as it came.
//!
//! # What counts as an answer
//!
//! A body that ends before its announced length, in the middle of a chunk, or with bytes to spare is no answer but a
//! failure, so it is never published. A body whose end is the end of the connection (neither length nor chunks) cannot be
//! told from a truncated one: routes with such origins want `gate = { must_contain = "</html>" }`.
//!
//! # What an origin can cost
//!
//! | | Bound |
//! |---|---|
//! | connecting, DNS and TLS included | [`Patience::connect`] |
//! | the answer's head | [`Patience::head`], 64 KiB, 100 headers |
//! | the body | [`Ask::max_bytes`], counted while it is read |
//! | everything together, however slowly it drips | [`Ask::time`] |
//!
//! # Layout
//!
//! | Where | What |
//! |---|---|
//! | `ask` | what is asked, and the request that it becomes |
//! | `origins` | the exchange: a kept connection or a new one, and one more try where that is harmless |
//! | `connections` | opening connections, keeping them, and finding out how an exchange ended |
//! | `answer` | what came back, read to its end or to the cap |

mod answer;
mod ask;
mod connections;
mod origins;

pub use ask::Ask;
pub use origins::{Origins, Patience};
