//! A foreign writer on the same table: its row models, how it publishes, and random rounds of it
//! against our worker.

pub(crate) mod model;
pub(crate) mod rounds;
mod writer;
