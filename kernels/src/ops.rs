//! One typed description an operation: shapes and buffers in, a checked [`Launch`](crate::launch::Launch) out. What each computes is said in the head of
//! its `.cu` file.

mod attention;
mod cache;
mod embed;
mod encode;
mod product;
mod sample;

pub use attention::{Attention, Piece, SEGMENT_TOKENS, pieces};
pub use cache::{CacheCopy, CacheShape, PAGE_TOKENS, PageCopy};
pub use embed::Embed;
pub use encode::{Encode, EncodeSm90, EncodedShape};
pub use product::{AppendFp8, GateUp, Input, Matvec, Qkv, Rows};
pub use sample::{MOST_LOGPROBS, Sample, SampleResult, SampleRow, SeenToken};

use crate::launch::ShapeError;

/// As the kernels take it.
fn word(what: &str, value: usize) -> Result<u32, ShapeError> {
    u32::try_from(value).map_err(|_| ShapeError(format!("{what} is {value}; at most 2^32 - 1")))
}
