// Pages of the KV cache. A page holds 16 tokens of every layer, for each layer and key head the keys and the values of its tokens:
//
//   page   [layer][kv_head] part          part, bf16: K [head_dim / 16][512 B] | V [head_dim / 16][512 B]
//                                         part, fp8:  K [head_dim / 16][256 B] | V [head_dim / 16][256 B] | K scales f32 [16] | V scales f32 [16]
//
// A chunk of 16 dimensions by 16 tokens is one tensor-core fragment, its bytes in the order in which lanes hold them: keys with tokens as rows, values
// with dimensions as rows. Attention reads it with one load a lane and no shared memory. Of the 16 that are summed over, lane t has 4t..4t+3, so that
// queries and probabilities are read as neighbours too.
//
// fp8 is e4m3 with a scale for each token and head: largest / 448.
//
// Invariant: all bytes of a page in use are finite numbers (a pool starts as zeros and only finite numbers are written), so that a weight of zero takes
// out what lies behind the newest token.
#pragma once
#include "device.cuh"

constexpr u32 PAGE_TOKENS = 16;

struct CacheLayout {
  u64 page_bytes;
  u32 kv_heads, head_dim, layer, fp8;

  MEMBER u32 number_bytes() const { return fp8 ? 1 : 2; }
  MEMBER u32 half_part() const { return head_dim * PAGE_TOKENS * number_bytes(); }
  MEMBER u32 part_bytes() const { return 2 * half_part() + (fp8 ? 2 * PAGE_TOKENS * 4 : 0); }
  // Where the keys of a head begin; its values come `half_part` later, its scales after them.
  MEMBER u64 part(u32 page, u32 kv_head) const { return page * page_bytes + (u64)(layer * kv_heads + kv_head) * part_bytes(); }
};
static_assert(sizeof(CacheLayout) == 24, "kernels/src/ops/cache.rs has the same");

// Where the number (row, k) of a 16 x 16 fragment lies, in numbers.
DEV u32 fragment_place(u32 row, u32 k) {
  u32 lane = row % 8 * 4 + k / 4;
  return lane * 8 + (row / 8 + k % 4 / 2 * 2) * 2 + k % 2;
}
// Places in a part, in numbers.
DEV u32 key_place(u32 token, u32 dim) { return dim / 16 * 256 + fragment_place(token, dim % 16); }
DEV u32 value_place(u32 token, u32 dim) { return dim / 16 * 256 + fragment_place(dim % 16, token); }
