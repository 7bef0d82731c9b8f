// A row of f32 activations as tensor cores take it, after the root mean square norm where there is one. A whole block of 256 threads works on one row, and
// all kernels that encode do it here: the bits are the same whether the row was encoded alone or in the prologue of a product.
//
//   int8  blocks of 32 columns: d = max / 127, q = round(x / d), and d sum(q) for weights with minima
//   bf16  rounded
//   f16   multiplied by a power of two that brings the largest to 128..256, then rounded: eleven bits of precision whatever the range
#pragma once
#include "formats.cuh"

constexpr u32 BLOCK_THREADS = 256, BLOCK_WARPS = BLOCK_THREADS / WARP;

// Sum or maximum over the block; `scratch` is [BLOCK_WARPS] and free again when the next barrier is passed.
DEV float block_sum(float v, float* scratch) {
  v = warp_sum(v);
  if (lane_index() == 0) scratch[warp_index()] = v;
  block_sync();
  float sum = scratch[0];
  for (u32 i = 1; i < BLOCK_WARPS; i++) sum += scratch[i];
  return sum;
}
DEV float block_max(float v, float* scratch) {
  v = warp_max(v);
  if (lane_index() == 0) scratch[warp_index()] = v;
  block_sync();
  float most = scratch[0];
  for (u32 i = 1; i < BLOCK_WARPS; i++) most = larger(most, scratch[i]);
  return most;
}

// Factor of the root mean square norm (Zhang and Sennrich 2019): 1 / sqrt(mean(x^2) + eps).
DEV float norm_factor(const float* x, u32 columns, float eps, float* scratch) {
  float squares = 0;
  for (u32 i = thread_index(); i < columns; i += BLOCK_THREADS) squares = fma(x[i], x[i], squares);
  return divide(1.0f, sqrt_exact(divide(block_sum(squares, scratch), (float)columns) + eps));
}

// A row before it is encoded: x * factor * weight, or x.
struct Row {
  const float* x;
  const float* weight;
  u32 columns;
  float factor;

  MEMBER float at(u32 column) const {
    if (column >= columns) return 0;
    return weight ? x[column] * factor * weight[column] : x[column];
  }
};

DEV Row row_of(const float* x, const float* weight, float eps, u32 columns, float* scratch) {
  return Row{x, weight, columns, weight ? norm_factor(x, columns, eps, scratch) : 1.0f};
}

// The power of two of a row as f16. `scratch` as in block_max.
struct Power {
  float scale, inverse;
};
DEV Power power_of(const Row& row, float* scratch) {
  float most = 0;
  for (u32 i = thread_index(); i < row.columns; i += BLOCK_THREADS) most = larger(most, absolute(row.at(i)));
  most = block_max(most, scratch);
  u32 exponent = as_bits(most) >> 23;
  if (exponent == 0) exponent = 134;
  if (exponent < 8) exponent = 8;
  return Power{as_float((exponent - 7) << 23), as_float((261 - exponent) << 23)};
}

// `values`: whole blocks of 32 columns, `blocks` of them; `scales`: [blocks] for int8, [1] for f16. `scratch`: [2 * BLOCK_WARPS] of shared memory.
template <Encoding E>
DEV void encode_row(const float* x, const float* weight, float eps, u32 columns, u32 blocks, u8* values, float2_t* scales, float* scratch) {
  Row row = row_of(x, weight, eps, columns, scratch);
  u32 lane = (u32)lane_index();
  if (E == Encoding::int8) {
    for (u32 b = (u32)warp_index(); b < blocks; b += BLOCK_WARPS) {
      float v = row.at(b * 32 + lane), most = warp_max(absolute(v));
      float d = divide(most, 127.0f), inverse = most > 0 ? divide(127.0f, most) : 0;
      i32 q = round_to_int(v * inverse), sum = warp_sum(q);
      values[b * 32 + lane] = (u8)(i8)q;
      if (lane == 0) scales[b] = float2_t{d, d * (float)sum};
    }
  } else if (E == Encoding::bf16) {
    u16* out = reinterpret_cast<u16*>(values);
    for (u32 i = thread_index(); i < blocks * 32; i += BLOCK_THREADS) out[i] = (u16)pack_bf16(row.at(i), 0);
  } else {
    Power power = power_of(row, scratch + BLOCK_WARPS);
    u16* out = reinterpret_cast<u16*>(values);
    for (u32 i = thread_index(); i < blocks * 32; i += BLOCK_THREADS) out[i] = (u16)pack_f16(row.at(i) * power.inverse, 0);
    if (thread_index() == 0) scales[0] = float2_t{power.scale, 0};
  }
  block_sync();
}

// What the kernels of encode.cu and encode_sm90.cu take.
struct EncodeParams {
  const float* x;
  const float* norm;
  const u32* rows;
  u8* values;
  float2_t* scales;
  u32 x_stride, columns, blocks, stride, scales_stride;
  float eps;
};
static_assert(sizeof(EncodeParams) == 64, "kernels/src/ops/encode.rs has the same");
