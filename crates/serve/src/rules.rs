//! The HTTP rules: pure functions from what was asked and what is known to what is answered.

pub mod cache_status;
pub mod caching;
pub mod conditional;
pub mod page;
pub mod page_error;
mod plain;
pub mod preview;
pub mod signature;
pub mod trigger;
pub mod trigger_error;
