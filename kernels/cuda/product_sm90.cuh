// Products for prompts on Hopper, for the plain formats: 128 rows by 128 tokens a block. The sums are those of product.cuh, record by record and slice by
// slice.
//
//   weights as ever (formats.cuh); activations as encode_tiles writes them: [tokens / 128][records][TILE_BYTES], each the image of two shared tiles
//   block: two groups of four warps with 64 rows each, and a warp of which one lane asks the memory engine for what comes next
//   dynamic shared memory: STAGES of two records of 8 tiles and of 128 tokens, and the totals of the slices, each thread's own
//   idea: both factors lie in memory as they are wanted in shared memory, so a stage is nine plain copies; weights go on to registers, which is where wgmma
//     takes its first factor from, and fp8 becomes f16 on the way.
#pragma once
#include "device_sm90.cuh"
#include "product.cuh"

constexpr u32 STAGES = 4, STAGE_RECORDS = 2, TOKEN_TILE = 128, GROUPS = 2, BLOCK_TILES = GROUPS * GROUP_WARPS;
constexpr u32 HOPPER_THREADS = (BLOCK_TILES + 1) * WARP;
constexpr u32 TILE_BYTES = 2 * SHARED_TILE_BYTES;  // of a record of 32 columns
constexpr u32 TOTALS_BYTES = BLOCK_TILES * WARP * 64 * 4;
constexpr u32 STAGE_BYTES = STAGE_RECORDS * (BLOCK_TILES * 1024 + TILE_BYTES);

// First factors of a record of 32 columns: two steps of 16.
struct Steps {
  u32 a[2][4];
};
template <class F> DEV Steps load_steps(const u8* record) {
  Steps steps;
  u32 lane = (u32)lane_index();
  if constexpr (F::BYTES == 1024) {
    for (u32 s = 0; s < 2; s++) {
      vec16 w = load16(record + s * 512 + lane * 16);
      for (u32 i = 0; i < 4; i++) steps.a[s][i] = w.w[i];
    }
  } else {
    vec16 w = load16(record + lane * 16);
    for (u32 s = 0; s < 2; s++) {
      e4m3_to_f16(w.w[2 * s], steps.a[s][0], steps.a[s][2]);
      e4m3_to_f16(w.w[2 * s + 1], steps.a[s][1], steps.a[s][3]);
    }
  }
  return steps;
}

template <class F, class Epilogue> DEV void hopper_product(const ProductParams& p, Epilogue epilogue) {
  SHARED(u64, full, STAGES);
  SHARED(u64, empty, STAGES);
  DYNAMIC_SHARED(u8, memory);
  u32 warp = (u32)warp_index(), lane = (u32)lane_index(), token_tile = block_x(), first_tile = block_y() * BLOCK_TILES;
  u32 tiles = (u32)smaller((int)(p.tiles - first_tile), (int)BLOCK_TILES), stages = (p.records + STAGE_RECORDS - 1) / STAGE_RECORDS;
  if (thread_index() == 0) {
    for (u32 i = 0; i < STAGES; i++) {
      barrier_init(full + i, 1);
      barrier_init(empty + i, BLOCK_TILES);
    }
    barriers_ready();
  }
  block_sync();
  wait_for_previous();
  let_next_start();
  u8* buffers = memory + TOTALS_BYTES;

  if (warp == BLOCK_TILES) {
    if (lane != 0) return;
    for (u32 i = 0; i < stages; i++) {
      u32 stage = i % STAGES, first = i * STAGE_RECORDS, records = (u32)smaller((int)(p.records - first), (int)STAGE_RECORDS);
      barrier_wait(empty + stage, i / STAGES % 2 ^ 1);
      barrier_expect(full + stage, records * (tiles * F::BYTES + TILE_BYTES));
      u8* to = buffers + stage * STAGE_BYTES;
      copy_block(to, p.values + ((u64)token_tile * p.records + first) * TILE_BYTES, records * TILE_BYTES, full + stage);
      for (u32 t = 0; t < tiles; t++)
        copy_block(to + STAGE_RECORDS * (TILE_BYTES + t * F::BYTES), p.weights + (u64)(first_tile + t) * p.tile_bytes + (u64)first * F::BYTES,
                   records * F::BYTES, full + stage);
    }
    return;
  }

  // Warps without a tile work on whatever is in shared memory, for a group is four warps, and keep nothing of it.
  float* own = reinterpret_cast<float*>(memory) + warp * 64 * WARP + lane;
  for (u32 i = 0; i < 64; i++) own[i * WARP] = 0;
  auto weights_of = [&](u32 record) { return buffers + record / STAGE_RECORDS % STAGES * STAGE_BYTES + STAGE_RECORDS * TILE_BYTES + (warp * STAGE_RECORDS + record % STAGE_RECORDS) * F::BYTES; };
  float acc[64] = {};
  u32 slice = 0, slice_end = p.records / SLICES;
  bool add = false;
  barrier_wait(full, 0);
  Steps steps = load_steps<F>(weights_of(0));
  for (u32 record = 0; record < p.records; record++) {
    while (record >= slice_end) slice_end = p.records * (++slice + 1) / SLICES;
    u32 stage = record / STAGE_RECORDS % STAGES;
    const u8* tile = buffers + stage * STAGE_BYTES + record % STAGE_RECORDS * TILE_BYTES;
    mma_group_begin();
UNROLL
    for (u32 s = 0; s < 2; s++) {
      const u32* a = steps.a[s];
      SharedTile b = shared_tile(tile + s * SHARED_TILE_BYTES);
      if (F::ENCODING == Encoding::bf16)
        mma_group_bf16(acc, a[0], a[1], a[2], a[3], b, add || s > 0);
      else
        mma_group_f16(acc, a[0], a[1], a[2], a[3], b, add || s > 0);
    }
    mma_group_commit();
    add = true;
    Steps next = steps;
    u32 following = record + 1;
    if (following < p.records) {
      if (following % STAGE_RECORDS == 0) barrier_wait(full + following / STAGE_RECORDS % STAGES, following / STAGE_RECORDS / STAGES % 2);
      next = load_steps<F>(weights_of(following));
    }
    mma_group_wait(acc);
    if (lane == 0 && (following % STAGE_RECORDS == 0 || following == p.records)) barrier_arrive(empty + stage);
    steps = next;
    if (following == slice_end) {
UNROLL
      for (u32 i = 0; i < 64; i++) own[i * WARP] += acc[i];
      add = false;
    }
  }

  u32 tile_index = first_tile + warp, first = token_tile * TOKEN_TILE;
  if (tile_index >= p.tiles) return;
  Activations x{p.values, p.scales + (u64)first * p.scales_stride, p.stride, p.scales_stride, (u32)smaller((int)(p.tokens - first), (int)TOKEN_TILE)};
  const u8* weights = p.weights + (u64)tile_index * p.tile_bytes;
ROLL
  for (u32 i = 0; i < 32; i++) {
    u32 n = i / 2, e = i % 2, token = n * 8 + lane % 4 * 2 + e, row = lane / 4;
    if (token >= x.tokens) continue;
    float low = own[(n * 4 + e) * WARP], high = own[(n * 4 + e + 2) * WARP];
    epilogue(tile_index, row, first + token, finish_sum<F>(low, x, weights, p.records, token, row), finish_sum<F>(high, x, weights, p.records, token, row + 8));
  }
}

#define HOPPER_KERNELS(name, Params)                                                                        \
  KERNEL(name##_bf16_sm90, Params, HOPPER_THREADS, 1) { name##_sm90<Bf16>(p); }                              \
  KERNEL(name##_f16_sm90, Params, HOPPER_THREADS, 1) { name##_sm90<F16>(p); }                                \
  KERNEL(name##_fp8_sm90, Params, HOPPER_THREADS, 1) { name##_sm90<Fp8>(p); }
