//! Tiny models for tests, written by the tests themselves: [`TinyLlama`] has seeded random weights in any format, [`Scripted`] has weights that answer with
//! given text; and tools to offer them ([`schemas`]). Behind the feature `testing`; no part of the product.
//!
//! ```
//! use codex_bridge_backend::{model, testing::TinyLlama};
//!
//! let folder = tempfile::tempdir().unwrap();
//! let path = folder.path().join("tiny.gguf");
//! TinyLlama { heads: 4, kv_heads: 1, ..TinyLlama::default() }.write_gguf(&path).unwrap();
//! assert_eq!(model::open(&path).unwrap().config.kv_heads, 1);
//! ```

pub mod events;
pub mod gguf;
mod huggingface;
pub mod quantize;
mod random;
pub mod schemas;
mod scripted;
mod smollm2;
mod surroundings;
mod tiny;
mod vocabulary;

pub use random::Random;
pub use scripted::Scripted;
pub use smollm2::smollm2;
pub use surroundings::{fuzz_runs, recordings};
pub use tiny::{Matrix, TinyLlama, TinyRope};
pub use vocabulary::{Kind, Vocabulary};
