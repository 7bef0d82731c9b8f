// Queries, keys and values of a layer: norm, the three products, rotation, and keys and values into their pages.
//
//   W [(heads + 2 kv_heads) head_dim][columns] packed, or a run of whole heads of it: Q, then K, then V. The rows of each head are ordered so that row r < 8 and
//     row r + 8 of tile j are dimensions 8 j + r and 8 j + r + head_dim / 2: the pair that turns together (Su et al. 2021) is in one lane.
//   x [tokens][columns] f32, or encoded
//   turns [positions][rope_dim / 2] {cos, sin} f32; positions [tokens]; slots [tokens]: page * 16 + place in the page
//   q [tokens][heads][head_dim] f32, rotated and multiplied by `query_scale` (log2(e) / sqrt(head_dim): attention works with powers of two), as bf16
//   grid: (tokens / 8 or / 32, tiles of 16 rows), or (tokens / 128, tiles / 4)     block: 256
//   moves the weights once for each group of tokens, 2 bytes a query number, and the pages' bytes
//   idea: the epilogue of the product rotates in registers. fp8 keys and values need the largest of a head first: they leave as f32 in `kv` and append_fp8 stores them.
#include "norm_qkv_rope.cuh"

template <class F, int NT> DEV void norm_qkv_rope(const QkvParams& p) {
  product<F, NT>(p.product, [&](u32 tile, u32 row, u32 token, float low, float high) { store_turned(p, tile, row, token, low, high); });
}
PRODUCT_KERNELS(norm_qkv_rope, QkvParams)

// Keys and values of new tokens as fp8 into their pages: a warp for each token, kind and head.
//   kv [tokens][2][kv_heads][head_dim] f32     grid: tokens * 2 * kv_heads / 8     block: 256     moves 5 bytes a number
KERNEL(append_fp8, QkvParams, 256, 2) {
  wait_for_previous();
  let_next_start();
  u32 item = block_x() * BLOCK_WARPS + (u32)warp_index(), lane = (u32)lane_index(), kv_heads = p.cache.kv_heads, dims = p.cache.head_dim;
  if (item >= p.product.tokens * 2 * kv_heads) return;
  u32 kv_head = item % kv_heads, value = item / kv_heads % 2, token = item / kv_heads / 2;
  const float* x = p.kv + (u64)item * dims;
  float most = 0;
  for (u32 d = lane; d < dims; d += WARP) most = larger(most, absolute(x[d]));
  most = warp_max(most);
  float scale = divide(most, 448.0f), inverse = most > 0 ? divide(448.0f, most) : 0;
  u32 slot = p.slots[token], place = slot % PAGE_TOKENS;
  u8* part = p.pool + p.cache.part(slot / PAGE_TOKENS, kv_head);
  u8* numbers = part + value * p.cache.half_part();
  for (u32 d = lane; d < dims; d += WARP) numbers[value ? value_place(place, d) : key_place(place, d)] = float_to_e4m3(x[d] * inverse);
  if (lane == 0) reinterpret_cast<float*>(part + 2 * p.cache.half_part())[value * PAGE_TOKENS + place] = scale;
}
