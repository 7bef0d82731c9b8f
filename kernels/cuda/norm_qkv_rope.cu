// Queries, keys and values of a layer: norm, the three products, rotation, and keys and values into their pages.
//
//   W [(heads + 2 kv_heads) head_dim][columns] packed, or a run of whole heads of it: Q, then K, then V. The rows of each head are ordered so that row r < 8 and
//     row r + 8 of tile j are dimensions 8 j + r and 8 j + r + head_dim / 2: the pair that turns together (Su et al. 2021) is in one lane.
//   x [tokens][columns] f32, or encoded
//   turns [positions][rope_dim / 2] {cos, sin} f32; positions [tokens]; slots [tokens]: page * 16 + place in the page
//   q [tokens][heads][head_dim] f32, rotated and multiplied by `query_scale` (log2(e) / sqrt(head_dim): attention works with powers of two), as bf16
//   grid: (tiles, tokens / 8 or / 32), or tiles / 2, / 4 or / 8 and tokens / 128     block: 256
//   moves the weights once for each group of tokens, 2 bytes a query number, and the pages' bytes
//   idea: the epilogue of the product rotates in registers. fp8 keys and values need the largest of a head first: they leave as f32 in `kv` and append_fp8 stores them.
#include "cache.cuh"
#include "product.cuh"

struct QkvParams {
  ProductParams product;
  const float2_t* turns;
  const u32* positions;
  const u32* slots;
  u16* q;
  u8* pool;
  float* kv;  // [tokens][2][kv_heads][head_dim], only for fp8
  CacheLayout cache;
  u32 heads, first_head;  // of the run, counted over Q, K and V
  u32 rope_dim;
  float query_scale;
};
static_assert(sizeof(QkvParams) == 168, "kernels/src/ops/qkv.rs has the same");

template <class F, int NT> DEV void norm_qkv_rope(const QkvParams& p) {
  u32 tiles = p.cache.head_dim / TILE_ROWS, half = p.cache.head_dim / 2;
  product<F, NT>(p.product, [&](u32 tile, u32 row, u32 token, float low, float high) {
    u32 head = p.first_head + tile / tiles, dim = tile % tiles * 8 + row, kv_heads = p.cache.kv_heads;
    // The rotated dimensions come first in a head: with rope_dim < head_dim the pairs past half of rope_dim do not turn.
    if (head < p.heads + kv_heads && dim < p.rope_dim / 2) {
      float2_t turn = p.turns[(u64)p.positions[token] * (p.rope_dim / 2) + dim];
      float x = low, y = high;
      low = x * turn.x - y * turn.y;
      high = y * turn.x + x * turn.y;
    }
    if (head < p.heads) {
      u16* q = p.q + ((u64)token * p.heads + head) * p.cache.head_dim;
      q[dim] = (u16)pack_bf16(low * p.query_scale, 0);
      q[dim + half] = (u16)pack_bf16(high * p.query_scale, 0);
      return;
    }
    bool value = head >= p.heads + kv_heads;
    u32 kv_head = head - p.heads - (value ? kv_heads : 0);
    if (p.cache.fp8) {
      float* out = p.kv + (((u64)token * 2 + value) * kv_heads + kv_head) * p.cache.head_dim;
      out[dim] = low;
      out[dim + half] = high;
      return;
    }
    u32 slot = p.slots[token], place = slot % PAGE_TOKENS;
    u16* part = reinterpret_cast<u16*>(p.pool + p.cache.part(slot / PAGE_TOKENS, kv_head) + (value ? p.cache.half_part() : 0));
    part[value ? value_place(place, dim) : key_place(place, dim)] = (u16)pack_bf16(low, 0);
    part[value ? value_place(place, dim + half) : key_place(place, dim + half)] = (u16)pack_bf16(high, 0);
  });
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
