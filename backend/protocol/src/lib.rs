//! The Responses wire language, as both sides of the bridge speak it. No I/O.
//!
//! *Lossless* is the invariant: a value this crate does not know is a value, not an error, and leaves as it came.
//! So nothing here is a closed struct. Items, requests and responses are ordered JSON objects ([`Object`]) and the
//! functions of this crate read or change single fields of them; what nobody touched keeps its place, its unknown
//! fields and the very digits of its numbers.

#![forbid(unsafe_code)]

pub mod error;
pub mod event;
pub mod id;
pub mod item;
pub mod object;
pub mod response;
pub mod sse;
pub mod tool;

pub use error::{ApiError, ErrorKind};
pub use event::EventKind;
pub use id::Ids;
pub use item::ItemKind;
pub use object::{FieldError, Object};
pub use response::Phase;
pub use tool::{ToolId, ToolKind};
