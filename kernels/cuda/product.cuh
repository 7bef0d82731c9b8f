// Tiles of 16 rows of a weight matrix times tokens, by a block of eight warps.
//
// The sum over columns is cut into eight slices of whole records, each summed in ascending order; the eight sums are added in ascending order.
// The cut depends on the matrix alone and a token is a column of the tensor core's result, so the bits of a result do not depend on how many tokens there
// are, which of them shares a fragment with which, or which kernel computed it. Every product of the engine must keep this order.
#pragma once
#include "encode.cuh"

constexpr u32 SLICES = BLOCK_WARPS;
// Groups of eight tokens of a warp in a product for prompts.
constexpr u32 WIDE_GROUPS = 8;

// What every product takes. Activations are either encoded (`values`, `scales`) or f32 rows (`x`) that each block encodes for itself into dynamic shared
// memory, which for few tokens is cheaper than a launch.
struct ProductParams {
  const u8* weights;  // [tiles][tile_bytes], see formats.cuh
  const u8* values;
  const float2_t* scales;
  const float* x;
  const float* norm;
  u32 tiles, records, tile_bytes, tokens;
  u32 stride, scales_stride;  // of encoded rows
  u32 x_stride, columns;      // of f32 rows
  float eps;
  u32 unused;
};
static_assert(sizeof(ProductParams) == 80, "kernels/src/ops/product.rs has the same");

// Tokens from `first` on, at most 8 NT.
template <class F, int NT> DEV Activations activations(const ProductParams& p, u32 first, float* scratch) {
  Activations x{p.values, p.scales, p.stride, p.scales_stride, (u32)smaller((int)(p.tokens - first), 8 * NT)};
  if (!p.x) {
    x.values += (u64)first * x.stride;
    x.scales += (u64)first * x.blocks;
    return x;
  }
  DYNAMIC_SHARED(u8, memory);
  u32 blocks = p.records * (F::COLUMNS / 32);
  float2_t* scales = reinterpret_cast<float2_t*>(memory + (u64)x.tokens * x.stride);
  for (u32 t = 0; t < x.tokens; t++)
    encode_row<F::ENCODING>(p.x + (u64)(first + t) * p.x_stride, p.norm, p.eps, p.columns, blocks, memory + t * x.stride, scales + t * x.blocks, scratch);
  x.values = memory;
  x.scales = scales;
  return x;
}

template <class F, int NT> DEV void multiply_slice(float (&acc)[NT][4], const u8* tile, u32 first, u32 last, const Activations& x) {
  int lane = lane_index();
  if constexpr (NT > 1 && F::AHEAD == 1) {
    for (u32 r = first; r < last; r++) multiply_from<F>(acc, tile + (u64)r * F::BYTES, lane, x, r);
    return;
  }
  for (u32 r = first; r < last; r += F::AHEAD) {
    typename F::Record records[F::AHEAD];
UNROLL
    for (u32 a = 0; a < F::AHEAD; a++)
      if (r + a < last) records[a] = F::load(tile + (u64)(r + a) * F::BYTES, lane);
UNROLL
    for (u32 a = 0; a < F::AHEAD; a++)
      if (r + a < last) F::multiply(acc, records[a], x, r + a);
  }
}

// One tile by up to 8 NT tokens, a slice a warp. Calls `epilogue(tile, row, token, low, high)` for every token with the sums of rows `row` and `row + 8` of
// the tile, row < 8.
template <class F, int NT, class Epilogue> DEV void narrow_product(const ProductParams& p, Epilogue epilogue) {
  u32 tile_index = block_y(), first = block_x() * 8 * NT;
  SHARED(float, scratch, 2 * BLOCK_WARPS);
  SHARED(float, partial, SLICES * NT * 4 * WARP);
  const u8* tile = p.weights + (u64)tile_index * p.tile_bytes;
  wait_for_previous();
  Activations x = activations<F, NT>(p, first, scratch);
  let_next_start();

  float acc[NT][4] = {};
  u32 slice = (u32)warp_index(), lane = (u32)lane_index();
  multiply_slice<F, NT>(acc, tile, p.records * slice / SLICES, p.records * (slice + 1) / SLICES, x);
UNROLL
  for (u32 n = 0; n < NT; n++)
UNROLL
    for (u32 e = 0; e < 4; e++) partial[((slice * NT + n) * 4 + e) * WARP + lane] = acc[n][e];
  block_sync();

  for (u32 i = thread_index(); i < NT * 2 * WARP; i += BLOCK_THREADS) {
    u32 l = i % WARP, e = i / WARP % 2, n = i / WARP / 2, token = n * 8 + l % 4 * 2 + e, row = l / 4;
    if (token >= x.tokens) continue;
    float low = 0, high = 0;
    for (u32 s = 0; s < SLICES; s++) {
      low += partial[((s * NT + n) * 4 + e) * WARP + l];
      high += partial[((s * NT + n) * 4 + e + 2) * WARP + l];
    }
    epilogue(tile_index, row, first + token, finish_sum<F>(low, x, tile, p.records, token, row), finish_sum<F>(high, x, tile, p.records, token, row + 8));
  }
}

// For prompts: 128 tokens by 4 tiles. A warp takes one tile and 64 tokens through all slices, so that what it unpacked meets many tokens; the totals of the
// slices stay in shared memory, each lane's own, which leaves the registers to the slice at work. The sums are those of narrow_product.
template <class F, class Epilogue> DEV void wide_product(const ProductParams& p, Epilogue epilogue) {
  constexpr u32 NT = WIDE_GROUPS, TOKENS = NT * 8, ROW_WARPS = BLOCK_WARPS * TOKENS / 128;
  SHARED(float, totals, BLOCK_WARPS * NT * 4 * WARP);
  u32 warp = (u32)warp_index(), lane = (u32)lane_index(), first = block_x() * 128 + warp / ROW_WARPS * TOKENS;
  u32 tile_index = block_y() * ROW_WARPS + warp % ROW_WARPS;
  wait_for_previous();
  let_next_start();
  if (first >= p.tokens || tile_index >= p.tiles) return;
  Activations x{p.values + (u64)first * p.stride, p.scales + (u64)first * p.scales_stride, p.stride, p.scales_stride,
                (u32)smaller((int)(p.tokens - first), (int)TOKENS)};
  const u8* tile = p.weights + (u64)tile_index * p.tile_bytes;
  float* own = totals + warp * NT * 4 * WARP + lane;
  for (u32 slice = 0; slice < SLICES; slice++) {
    u32 end = p.records * (slice + 1) / SLICES;
    float acc[NT][4] = {};
    for (u32 r = p.records * slice / SLICES; r < end; r++) multiply_from<F>(acc, tile + (u64)r * F::BYTES, (int)lane, x, r);
UNROLL
    for (u32 n = 0; n < NT; n++)
UNROLL
      for (u32 e = 0; e < 4; e++) {
        float& total = own[(n * 4 + e) * WARP];
        total = slice == 0 ? 0.0f + acc[n][e] : total + acc[n][e];
      }
  }
ROLL
  for (u32 i = 0; i < NT * 2; i++) {
    u32 n = i / 2, e = i % 2, token = n * 8 + lane % 4 * 2 + e, row = lane / 4;
    if (token >= x.tokens) continue;
    float low = own[(n * 4 + e) * WARP], high = own[(n * 4 + e + 2) * WARP];
    epilogue(tile_index, row, first + token, finish_sum<F>(low, x, tile, p.records, token, row), finish_sum<F>(high, x, tile, p.records, token, row + 8));
  }
}

// Up to 8 or 32 tokens a block; WIDE: 128.
constexpr int WIDE = 16;
template <class F, int NT, class Epilogue> DEV void product(const ProductParams& p, Epilogue epilogue) {
  if constexpr (NT == WIDE)
    wide_product<F>(p, epilogue);
  else
    narrow_product<F, NT>(p, epilogue);
}

// Entry points of a product for every format, for up to 8, 32 and 128 tokens a block: `name_q4_0_8`, ...
#define PRODUCT_KERNELS(name, Params)                                    \
  PRODUCT_KERNEL(name, bf16, Bf16, Params)                               \
  PRODUCT_KERNEL(name, f16, F16, Params)                                 \
  PRODUCT_KERNEL(name, fp8, Fp8, Params)                                 \
  PRODUCT_KERNEL(name, q8_0, Q8_0, Params)                               \
  PRODUCT_KERNEL(name, q4_0, Q4_0, Params)                               \
  PRODUCT_KERNEL(name, q4_1, Q4_1, Params)                               \
  PRODUCT_KERNEL(name, q4_k, Q4_K, Params)                               \
  PRODUCT_KERNEL(name, q5_k, Q5_K, Params)                               \
  PRODUCT_KERNEL(name, q6_k, Q6_K, Params)
#define PRODUCT_KERNEL(name, format, F, Params)                          \
  KERNEL(name##_##format##_8, Params, 256, 2) { name<F, 1>(p); }            \
  KERNEL(name##_##format##_32, Params, 256, 1) { name<F, 4>(p); }        \
  KERNEL(name##_##format##_128, Params, 256, 1) { name<F, WIDE>(p); }
