//! Pure HTTP rules: functions of the request and of what is published, without clock or I/O.

pub mod cache_directives;
pub mod cache_status;
pub(crate) mod canonical_hex;
pub mod conditional;
pub mod page_response;
pub(crate) mod reference;
pub mod reply;
pub mod request;

pub use reply::Reply;
pub use request::{Method, Request};
