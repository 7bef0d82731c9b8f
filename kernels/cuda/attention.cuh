// What the versions of attention take and share: see attention.cu.
#pragma once
#include "cache.cuh"
#include "encode.cuh"

constexpr u32 SEGMENT_PAGES = BLOCK_WARPS, SEGMENT = SEGMENT_PAGES * PAGE_TOKENS;

struct AttentionPiece {
  u32 first_token, tokens;  // in the batch; tokens * group <= 8 NQ
  u32 position;             // of the first
  u32 table;                // where the sequence's page table begins
  u32 first_segment, last_segment;
  u32 state;                // of the piece, when the chunk's segments are spread: one segment a piece, states one after another
  u32 chunk;                // whose counter; the chunk has `position`.. / SEGMENT + 1 segments
};
static_assert(sizeof(AttentionPiece) == 32, "kernels/src/ops/attention.rs has the same");

struct AttentionParams {
  const u16* q;
  const u8* pool;
  const AttentionPiece* pieces;
  const u32* tables;
  float* out;
  float* states;  // [state][kv_heads][8 NQ][head_dim + 2]: values, maximum, sum
  u32* counters;  // [chunks][kv_heads]
  CacheLayout cache;
  u32 heads, group;
};
static_assert(sizeof(AttentionParams) == 88, "kernels/src/ops/attention.rs has the same");

// Takes a segment into the state of a query: returns the factors of the old and the new values.
DEV float2_t merge_state(float& most, float& sum, float segment_most, float segment_sum) {
  if (segment_most == NEG_INFINITY) return float2_t{1, 0};
  float both = larger(most, segment_most);
  float2_t factor{exp2_approx(most - both), exp2_approx(segment_most - both)};
  most = both;
  sum = fma(segment_sum, factor.y, sum * factor.x);
  return factor;
}
DEV float merge_value(float value, float segment, float2_t factor) { return fma(segment, factor.y, value * factor.x); }

struct Fragment {
  u32 a[4];
};
template <bool Fp8Cache> DEV Fragment load_fragment(const u8* chunk) {
  u32 lane = (u32)lane_index();
  Fragment f;
  if (Fp8Cache) {
    vec8 w = load8(chunk + lane * 8);
    e4m3_to_bf16(w.w[0], f.a[0], f.a[1]);
    e4m3_to_bf16(w.w[1], f.a[2], f.a[3]);
  } else {
    vec16 w = load_stream(chunk + lane * 16);
    for (int i = 0; i < 4; i++) f.a[i] = w.w[i];
  }
  return f;
}
