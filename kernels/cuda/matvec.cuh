// What the versions of matvec take, and where a result goes: see matvec.cu.
#pragma once
#include "product.cuh"

struct MatvecParams {
  ProductParams product;
  float* out;
  u32 rows, out_stride, add, unused;
};
static_assert(sizeof(MatvecParams) == 104, "kernels/src/ops/product.rs has the same");

DEV void store_row(const MatvecParams& p, u32 tile, u32 row, u32 token, float low, float high) {
  float* out = p.out + (u64)token * p.out_stride;
  u32 first = tile * TILE_ROWS + row, second = first + 8;
  if (first < p.rows) out[first] = p.add ? out[first] + low : low;
  if (second < p.rows) out[second] = p.add ? out[second] + high : high;
}
