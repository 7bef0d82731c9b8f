// Attention over paged keys and values, grouped queries, causal: decode, verification of drafts, and chunks of prompts.
//
//   q [tokens][heads][head_dim] bf16, rotated and scaled (norm_qkv_rope.cu); pool: see cache.cuh
//   pieces [grid x]: queries and keys of a block; tables: page tables of all sequences
//   out [tokens][heads][head_dim] f32; states: partial results of chunks whose segments are spread over blocks; counters [chunks], zero before the step
//   grid: (pieces, kv_heads)     block: 256     dynamic shared memory: head_dim * 8 NQ * 4 bytes
//   moves keys and values of a segment once for up to 8 NQ queries (query heads of a key head times tokens), 2 (fp8: 1) bytes a number
//   idea: keys and values lie in pages as tensor-core fragments, so scores are K Q^T and the result V^T P^T straight from global memory; only the
//     probabilities cross warps.
//
// The bits of a query's result are a function of its sequence alone. Context is cut into segments of 128 tokens, eight pages, one a warp; each segment has
// its maximum, its sum (over the lanes of a warp, then over warps in order) and its weighted values (pages in order); segments are merged in ascending
// order. Long contexts put each segment into a block of its own (split-K) and the last block merges; long prompts give a block all segments of its
// queries. Both do the same sums in the same order.
#include "attention.cuh"

constexpr u32 WEIGHT_STRIDE = SEGMENT + 8;  // numbers; the padding spreads rows over banks

template <bool Fp8Cache, int NQ> DEV void attention(const AttentionParams& p) {
  constexpr u32 QUERIES = 8 * NQ, AT_ONCE = 4;
  SHARED(u16, weights, QUERIES * WEIGHT_STRIDE);
  SHARED(float, warp_most, BLOCK_WARPS * QUERIES);
  SHARED(float, warp_sums, BLOCK_WARPS * QUERIES);
  SHARED(float, most, QUERIES);
  SHARED(float, sums, QUERIES);
  SHARED(float2_t, factors, QUERIES);
  SHARED(u32, arrived, 4);
  DYNAMIC_SHARED(float, values);  // [head_dim][QUERIES]
  wait_for_previous();
  let_next_start();

  const AttentionPiece piece = p.pieces[block_x()];
  u32 kv_head = block_y(), dims = p.cache.head_dim, chunks = dims / 16, queries = piece.tokens * p.group;
  u32 lane = (u32)lane_index(), warp = (u32)warp_index(), g = lane / 4, t = lane % 4;
  u32 last_position = piece.position + piece.tokens - 1, chunk_bytes = 256 * p.cache.number_bytes();
  auto query_row = [&](u32 query) { return ((u64)(piece.first_token + query / p.group) * p.heads + kv_head * p.group + query % p.group) * dims; };

  for (u32 i = thread_index(); i < QUERIES; i += BLOCK_THREADS) {
    most[i] = NEG_INFINITY;
    sums[i] = 0;
  }
  for (u32 i = thread_index(); i < dims * QUERIES; i += BLOCK_THREADS) values[i] = 0;
  block_sync();

  for (u32 segment = piece.first_segment; segment < piece.last_segment; segment++) {
    const u32* pages = p.tables + piece.table + segment * SEGMENT_PAGES;
    u32 start = segment * SEGMENT;
    auto page_there = [&](u32 page) { return start + page * PAGE_TOKENS <= last_position; };

    // Scores of this warp's page: rows are its tokens, columns the queries.
    float score[NQ][4] = {};
    float key_scale[2] = {1, 1};
    if (page_there(warp)) {
      const u8* part = p.pool + p.cache.part(pages[warp], kv_head);
      if (Fp8Cache) {
        const float* scales = reinterpret_cast<const float*>(part + 2 * p.cache.half_part());
        key_scale[0] = scales[g];
        key_scale[1] = scales[g + 8];
      }
      for (u32 c = 0; c < chunks; c += AT_ONCE) {
        Fragment keys[AT_ONCE];
UNROLL
        for (u32 i = 0; i < AT_ONCE; i++)
          if (c + i < chunks) keys[i] = load_fragment<Fp8Cache>(part + (c + i) * chunk_bytes);
UNROLL
        for (u32 i = 0; i < AT_ONCE; i++) {
          if (c + i >= chunks) continue;
UNROLL
          for (u32 n = 0; n < NQ; n++) {
            u32 query = n * 8 + g;
            vec8 b = query < queries ? load8(p.q + query_row(query) + (c + i) * 16 + t * 4) : vec8{{0, 0}};
            mma_bf16(score[n], keys[i].a[0], keys[i].a[1], keys[i].a[2], keys[i].a[3], b.w[0], b.w[1]);
          }
        }
      }
    }
    u32 token = start + warp * PAGE_TOKENS + g;
UNROLL
    for (u32 n = 0; n < NQ; n++) {
      for (u32 e = 0; e < 4; e++) {
        u32 query = n * 8 + t * 2 + e % 2;
        bool seen = query < queries && token + e / 2 * 8 <= piece.position + query / p.group;
        score[n][e] = seen ? (Fp8Cache ? score[n][e] * key_scale[e / 2] : score[n][e]) : NEG_INFINITY;
      }
      for (u32 e = 0; e < 2; e++) {
        float m = larger(score[n][e], score[n][e + 2]);
        for (int mask = 4; mask < 32; mask <<= 1) m = larger(m, shuffle_xor(m, mask));
        if (g == 0) warp_most[warp * QUERIES + n * 8 + t * 2 + e] = m;
      }
    }
    block_sync();

    // Weights: 2^(score - maximum of the segment), as bf16 (of fp8 values: with the value's scale) for the tensor cores, and their sums in f32.
    float value_scale[2] = {1, 1};
    if (Fp8Cache && page_there(warp)) {
      const float* scales = reinterpret_cast<const float*>(p.pool + p.cache.part(pages[warp], kv_head) + 2 * p.cache.half_part()) + PAGE_TOKENS;
      // Behind the newest token there may be nothing yet; its weight is zero, but not times NaN.
      value_scale[0] = token <= last_position ? scales[g] : 0;
      value_scale[1] = token + 8 <= last_position ? scales[g + 8] : 0;
    }
UNROLL
    for (u32 n = 0; n < NQ; n++)
      for (u32 e = 0; e < 2; e++) {
        u32 query = n * 8 + t * 2 + e;
        float m = warp_most[query];
        for (u32 w = 1; w < BLOCK_WARPS; w++) m = larger(m, warp_most[w * QUERIES + query]);
        if (m == NEG_INFINITY) m = 0;
        float near = exp2_approx(score[n][e] - m), far = exp2_approx(score[n][e + 2] - m), sum = near + far;
        u16* row = weights + query * WEIGHT_STRIDE + warp * PAGE_TOKENS + g;
        row[0] = (u16)pack_bf16(Fp8Cache ? near * value_scale[0] : near, 0);
        row[8] = (u16)pack_bf16(Fp8Cache ? far * value_scale[1] : far, 0);
        for (int mask = 4; mask < 32; mask <<= 1) sum += shuffle_xor(sum, mask);
        if (g == 0) warp_sums[warp * QUERIES + query] = sum;
      }
    block_sync();

    if (thread_index() < QUERIES) {
      u32 query = thread_index();
      float m = warp_most[query], sum = warp_sums[query];
      for (u32 w = 1; w < BLOCK_WARPS; w++) {
        m = larger(m, warp_most[w * QUERIES + query]);
        sum += warp_sums[w * QUERIES + query];
      }
      factors[query] = merge_state(most[query], sums[query], m, sum);
    }
    block_sync();

    // Values: rows are 16 dimensions, columns the queries; a warp takes every eighth chunk of dimensions through all pages.
    for (u32 c = warp; c < chunks; c += BLOCK_WARPS) {
      Fragment page_values[SEGMENT_PAGES];
UNROLL
      for (u32 page = 0; page < SEGMENT_PAGES; page++)
        if (page_there(page))
          page_values[page] = load_fragment<Fp8Cache>(p.pool + p.cache.part(pages[page], kv_head) + p.cache.half_part() + c * chunk_bytes);
        else
          page_values[page] = Fragment{{0, 0, 0, 0}};
UNROLL
      for (u32 n = 0; n < NQ; n++) {
        float acc[4] = {};
UNROLL
        for (u32 page = 0; page < SEGMENT_PAGES; page++) {
          vec8 b = load8(weights + (n * 8 + g) * WEIGHT_STRIDE + page * PAGE_TOKENS + t * 4);
          const u32* a = page_values[page].a;
          mma_bf16(acc, a[0], a[1], a[2], a[3], b.w[0], b.w[1]);
        }
        for (u32 e = 0; e < 4; e++) {
          u32 query = n * 8 + t * 2 + e % 2;
          float& value = values[(c * 16 + g + e / 2 * 8) * QUERIES + query];
          value = merge_value(value, acc[e], factors[query]);
        }
      }
    }
  }
  block_sync();

  u32 segments = last_position / SEGMENT + 1;
  if (piece.last_segment - piece.first_segment == segments) {
    for (u32 i = thread_index(); i < queries * dims; i += BLOCK_THREADS)
      p.out[query_row(i / dims) + i % dims] = divide(values[i % dims * QUERIES + i / dims], sums[i / dims]);
    return;
  }

  // Split: leave the state; whoever comes last merges all of the chunk.
  u64 state_size = dims + 2, piece_size = (u64)p.cache.kv_heads * QUERIES * state_size;
  float* state = p.states + piece.state * piece_size + kv_head * QUERIES * state_size;
  for (u32 i = thread_index(); i < queries * dims; i += BLOCK_THREADS) state[i / dims * state_size + i % dims] = values[i % dims * QUERIES + i / dims];
  for (u32 i = thread_index(); i < queries; i += BLOCK_THREADS) {
    state[i * state_size + dims] = most[i];
    state[i * state_size + dims + 1] = sums[i];
  }
  fence();
  block_sync();
  if (thread_index() == 0) arrived[0] = atomic_add(p.counters + piece.chunk * p.cache.kv_heads + kv_head, 1);
  block_sync();
  if (arrived[0] + 1 < segments) return;
  fence();
  const float* first = state - piece.first_segment * piece_size;
  for (u32 i = thread_index(); i < queries * dims; i += BLOCK_THREADS) {
    float m = NEG_INFINITY, sum = 0, value = 0;
    for (u32 s = 0; s < segments; s++) {
      const volatile float* from = first + s * piece_size + i / dims * state_size;
      float2_t factor = merge_state(m, sum, from[dims], from[dims + 1]);
      value = merge_value(value, from[i % dims], factor);
    }
    p.out[query_row(i / dims) + i % dims] = divide(value, sum);
  }
}
KERNEL(attention_bf16_8, AttentionParams, 256, 2) { attention<false, 1>(p); }
KERNEL(attention_bf16_32, AttentionParams, 256, 1) { attention<false, 4>(p); }
KERNEL(attention_bf16_64, AttentionParams, 256, 1) { attention<false, 8>(p); }
KERNEL(attention_fp8_8, AttentionParams, 256, 2) { attention<true, 1>(p); }
KERNEL(attention_fp8_32, AttentionParams, 256, 1) { attention<true, 4>(p); }
KERNEL(attention_fp8_64, AttentionParams, 256, 1) { attention<true, 8>(p); }
