//! A helper of another language on the same table: what it knows of the rows, how it publishes, and a game between it and us.

pub(crate) mod model;
pub(crate) mod rounds;
mod writer;
