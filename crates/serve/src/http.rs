//! Pure HTTP rules: functions of the request and of what is published, without clock or I/O.

pub mod cache_directives;
pub mod cache_status;
pub mod conditional;
pub mod page_response;
pub mod reply;
pub mod request;
pub(crate) mod strict_encoding;

pub use reply::Reply;
pub use request::{Method, Request};
