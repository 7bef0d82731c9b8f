//! The handle on the engine's thread: requests go in by a bounded queue, what each generates comes back by its own bounded channel.

pub mod constraint;
pub mod request;
