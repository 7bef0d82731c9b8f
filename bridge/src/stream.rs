//! The response side: bytes of an upstream's stream in, the stream the client's own request asked for out.
//!
//! `guard` makes whole frames of bytes, `incoming` reads one frame, `rewriter` decides what becomes of it: `items` routes
//! it to its item's `lifecycle`, `form` restores the item, `order` says when it may open and end, `parts` sends what is
//! inside it, `resource` is the response's own object, `terminal` ends it, `fault` reads an upstream's own error, `out`
//! numbers and prints. `pull` drives them from a socket. `peek` reads and changes single fields without building the
//! event.

pub(crate) mod fault;
mod form;
pub mod fuzz;
pub mod guard;
pub mod incoming;
mod items;
mod lifecycle;
mod order;
mod out;
mod parts;
mod peek;
mod pull;
mod resource;
pub mod rewriter;
mod terminal;

pub use out::Sent;
pub(crate) use pull::release_body;
pub use pull::{Body, Connected, Connecting, OnEnd, ResponseStream, Stopping};
pub use rewriter::{End, Rewriter, Settings};
