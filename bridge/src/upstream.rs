//! The model server behind the bridge.
pub mod fault;
