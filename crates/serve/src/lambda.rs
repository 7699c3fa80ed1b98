//! What only Lambda needs: its HTTP event, and the work between a reply and the next event.

pub mod after_reply;
pub mod event;
pub mod response;
