// attention.cu for prompts on Hopper: 128 queries a block, by warp groups. Bits and layouts are those of attention.cu; pieces hold all segments of their queries.
//
//   grid: (pieces, kv_heads)     block: 256, two groups
//   dynamic shared memory: queries as tiles, head_dim * 256 bytes; the weights of a segment as tiles, 32 KiB; values of each thread, head_dim * 512 bytes
//   moves keys and values once for 128 queries (query heads of a key head times tokens)
//   idea: pages hold keys and values as wgmma takes its first factor from registers, a page or 16 dimensions a warp; queries and weights are the second
//     factor, in shared memory, where all four warps read them.
#include "attention.cuh"
#include "device_sm90.cuh"

constexpr u32 QUERIES = 128, ALL = QUERIES / 2;  // ALL: results of a thread

// Where a number of a tile lies, in numbers: `k` along the sum, in the order of cache.cuh.
DEV u32 tile_place(u32 query, u32 k) { return query / 8 * 128 + k / 2 % 2 * 64 + query % 8 * 8 + k / 4 * 2 + k % 2; }

template <bool Fp8Cache> DEV void attention_sm90(const AttentionParams& p) {
  constexpr u32 AT_ONCE = 4;
  SHARED(float, warp_most, BLOCK_WARPS * QUERIES);
  SHARED(float, warp_sums, BLOCK_WARPS * QUERIES);
  SHARED(float, most, QUERIES);
  SHARED(float, sums, QUERIES);
  SHARED(float2_t, factors, QUERIES);
  DYNAMIC_SHARED(u8, memory);
  wait_for_previous();
  let_next_start();

  const AttentionPiece piece = p.pieces[block_x()];
  u32 kv_head = block_y(), dims = p.cache.head_dim, chunks = dims / 16, queries = piece.tokens * p.group;
  u32 lane = (u32)lane_index(), warp = (u32)warp_index(), g = lane / 4, t = lane % 4;
  // What decides whether a group multiplies.
  u32 group = uniform(warp / GROUP_WARPS), last_position = uniform(piece.position + piece.tokens - 1);
  u32 first_segment = uniform(piece.first_segment), last_segment = uniform(piece.last_segment), chunk_bytes = 256 * p.cache.number_bytes();
  auto query_row = [&](u32 query) { return ((u64)(piece.first_token + query / p.group) * p.heads + kv_head * p.group + query % p.group) * dims; };
  u8* query_tiles = memory;
  u8* weight_tiles = query_tiles + chunks * SHARED_TILE_BYTES;
  float* values = reinterpret_cast<float*>(weight_tiles + SEGMENT_PAGES * SHARED_TILE_BYTES) + lane;  // [chunk][ALL][lane]

  for (u32 i = thread_index(); i < QUERIES; i += BLOCK_THREADS) {
    most[i] = NEG_INFINITY;
    sums[i] = 0;
  }
  for (u32 i = thread_index(); i < QUERIES * dims / 2; i += BLOCK_THREADS) {
    u32 query = i / (dims / 2), dim = i % (dims / 2) * 2;
    u32 pair = query < queries ? load4(p.q + query_row(query) + dim) : 0;
    *reinterpret_cast<u32*>(query_tiles + dim / 16 * SHARED_TILE_BYTES + tile_place(query, dim % 16) * 2) = pair;
  }
  for (u32 c = warp; c < chunks; c += BLOCK_WARPS)
    for (u32 i = 0; i < ALL; i++) values[(c * ALL + i) * WARP] = 0;
  tiles_written();
  block_sync();

  for (u32 segment = first_segment; segment < last_segment; segment++) {
    const u32* pages = p.tables + piece.table + segment * SEGMENT_PAGES;
    u32 start = segment * SEGMENT;
    auto page_there = [&](u32 page) { return start + page * PAGE_TOKENS <= last_position; };

    // Scores: rows are the tokens of this warp's page, columns the queries.
    float score[ALL] = {};
    float key_scale[2] = {1, 1};
    if (page_there(group * GROUP_WARPS)) {
      bool there = page_there(warp);
      const u8* part = p.pool + p.cache.part(pages[there ? warp : group * GROUP_WARPS], kv_head);
      if (Fp8Cache && there) {
        const float* scales = reinterpret_cast<const float*>(part + 2 * p.cache.half_part());
        key_scale[0] = scales[g];
        key_scale[1] = scales[g + 8];
      }
      for (u32 c = 0; c < chunks; c += AT_ONCE) {
        Fragment keys[AT_ONCE];
UNROLL
        for (u32 i = 0; i < AT_ONCE; i++)
          if (c + i < chunks) keys[i] = load_fragment<Fp8Cache>(part + (c + i) * chunk_bytes);
        mma_group_begin();
UNROLL
        for (u32 i = 0; i < AT_ONCE; i++)
          if (c + i < chunks)
            mma_group_bf16(score, keys[i].a[0], keys[i].a[1], keys[i].a[2], keys[i].a[3], shared_tile(query_tiles + (c + i) * SHARED_TILE_BYTES), true);
        mma_group_commit();
        mma_group_wait(score);
      }
    }
    u32 token = start + warp * PAGE_TOKENS + g;
    bool page = page_there(warp);
UNROLL
    for (u32 n = 0; n < QUERIES / 8; n++) {
UNROLL
      for (u32 e = 0; e < 4; e++) {
        u32 query = n * 8 + t * 2 + e % 2;
        bool seen = page && query < queries && token + e / 2 * 8 <= piece.position + query / p.group;
        float& s = score[n * 4 + e];
        s = seen ? (Fp8Cache ? s * key_scale[e / 2] : s) : NEG_INFINITY;
      }
UNROLL
      for (u32 e = 0; e < 2; e++) {
        float m = larger(score[n * 4 + e], score[n * 4 + e + 2]);
        for (int mask = 4; mask < 32; mask <<= 1) m = larger(m, shuffle_xor(m, mask));
        if (g == 0) warp_most[warp * QUERIES + n * 8 + t * 2 + e] = m;
      }
    }
    block_sync();

    // Weights as in attention.cu, as bf16 into the tile of this warp's page.
    float value_scale[2] = {1, 1};
    if (Fp8Cache && page) {
      const float* scales = reinterpret_cast<const float*>(p.pool + p.cache.part(pages[warp], kv_head) + 2 * p.cache.half_part()) + PAGE_TOKENS;
      value_scale[0] = token <= last_position ? scales[g] : 0;
      value_scale[1] = token + 8 <= last_position ? scales[g + 8] : 0;
    }
    u16* tile = reinterpret_cast<u16*>(weight_tiles + warp * SHARED_TILE_BYTES);
UNROLL
    for (u32 n = 0; n < QUERIES / 8; n++)
UNROLL
      for (u32 e = 0; e < 2; e++) {
        u32 query = n * 8 + t * 2 + e;
        float m = warp_most[query];
        for (u32 w = 1; w < BLOCK_WARPS; w++) m = larger(m, warp_most[w * QUERIES + query]);
        if (m == NEG_INFINITY) m = 0;
        float near = exp2_approx(score[n * 4 + e] - m), far = exp2_approx(score[n * 4 + e + 2] - m), sum = near + far;
        tile[tile_place(query, g)] = (u16)pack_bf16(Fp8Cache ? near * value_scale[0] : near, 0);
        tile[tile_place(query, g + 8)] = (u16)pack_bf16(Fp8Cache ? far * value_scale[1] : far, 0);
        for (int mask = 4; mask < 32; mask <<= 1) sum += shuffle_xor(sum, mask);
        if (g == 0) warp_sums[warp * QUERIES + query] = sum;
      }
    tiles_written();
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

    // Values: rows are 16 dimensions of a warp, columns the queries. A group works while one of its warps has dimensions.
    for (u32 first = group * GROUP_WARPS; first < chunks; first += BLOCK_WARPS) {
      u32 c = first + warp % GROUP_WARPS;
      float acc[ALL] = {};
      for (u32 from = 0; from < SEGMENT_PAGES && page_there(from); from += AT_ONCE) {
        Fragment parts[AT_ONCE];
UNROLL
        for (u32 i = 0; i < AT_ONCE; i++)
          parts[i] = c < chunks && page_there(from + i)
                         ? load_fragment<Fp8Cache>(p.pool + p.cache.part(pages[from + i], kv_head) + p.cache.half_part() + c * chunk_bytes)
                         : Fragment{{0, 0, 0, 0}};
        mma_group_begin();
UNROLL
        for (u32 i = 0; i < AT_ONCE; i++)
          mma_group_bf16(acc, parts[i].a[0], parts[i].a[1], parts[i].a[2], parts[i].a[3], shared_tile(weight_tiles + (from + i) * SHARED_TILE_BYTES), true);
        mma_group_commit();
        mma_group_wait(acc);
      }
      if (c < chunks) {
UNROLL
        for (u32 i = 0; i < ALL; i++) {
          float& value = values[(c * ALL + i) * WARP];
          value = merge_value(value, acc[i], factors[i / 4 * 8 + t * 2 + i % 2]);
        }
      }
    }
  }

  for (u32 first = group * GROUP_WARPS; first < chunks; first += BLOCK_WARPS) {
    u32 c = first + warp % GROUP_WARPS;
    if (c >= chunks) continue;
    for (u32 i = 0; i < ALL; i++) {
      u32 query = i / 4 * 8 + t * 2 + i % 2;
      if (query < queries) p.out[query_row(query) + c * 16 + g + i % 4 / 2 * 8] = divide(values[(c * ALL + i) * WARP], sums[query]);
    }
  }
}
KERNEL(attention_bf16_sm90, AttentionParams, 256, 1) { attention_sm90<false>(p); }
KERNEL(attention_fp8_sm90, AttentionParams, 256, 1) { attention_sm90<true>(p); }
