//! What a page is, when it is fresh, when a request is covered, and what follows.
//!
//! Everything here is pure. Time and random numbers are passed in, and nothing is read or written.
//! A name that ends in `_ms` is milliseconds, one that ends in `_at` or `_seconds` is seconds, as
//! the shared table has it.
//!
//! # Layout
//!
//! | Where | What |
//! |---|---|
//! | [`path`], [`page_key`] | the canonical form of a path, and the page it names |
//! | `keys` | every partition key and sort key of the table |
//! | [`request`], [`tag`] | a request to regenerate, its hash and its public handle |
//! | [`version`] | ids of a page's commits, which grow whatever the clocks say |
//! | [`page`], [`health`], [`invalidations`], [`request_events`] | the rows of the table as values |
//! | [`freshness`] | whether a page is good enough to serve |
//! | [`coverage`] | whether a page already covers a request |
//! | [`claim`], [`lease`] | the right to handle a request, and the right to publish |
//! | [`artifact`], [`headers`], [`publish_gate`] | the response of a render, which headers are stored, and what may be published |
//! | [`response_sharing`], [`cache_control`] | what an origin's headers say about storing its answer |
//! | [`fragment_headers`] | which requests are not for the stored page |
//! | [`bypass`] | a version that says that nothing is stored |
//! | [`validators`] | conditional requests to the origin |
//! | [`origin_address`] | which network addresses an origin may have |
//! | [`response_age`] | whether a response was made now, or came out of a cache |
//! | [`outcome`], [`disposition`] | the result of a message, and what is done with it on the queue |
//! | [`request_state`] | what became of a request that has no record |
//! | [`retention`] | what a page no longer needs |
//! | [`scrub`] | what of a page, a key or any text may be logged |
//! | [`digest`], [`seconds`] | SHA-256 over fields; rounding between milliseconds and seconds |

pub mod artifact;
pub mod bypass;
pub mod cache_control;
pub mod claim;
pub mod coverage;
pub mod digest;
pub mod disposition;
pub mod fragment_headers;
pub mod freshness;
pub mod headers;
pub mod health;
pub mod invalidations;
pub(crate) mod keys;
pub mod lease;
pub mod origin_address;
pub mod outcome;
pub mod page;
pub mod page_key;
pub mod path;
pub mod publish_gate;
pub mod request;
pub mod request_events;
pub mod request_state;
pub mod response_age;
pub mod response_sharing;
pub mod retention;
pub mod scrub;
pub mod seconds;
pub mod tag;
pub mod validators;
pub mod version;
