//! The response side.
pub mod guard;
pub mod incoming;
