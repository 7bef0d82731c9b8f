// What the versions of norm_gate_up take, and where a result goes: see norm_gate_up.cu.
#pragma once
#include "product.cuh"

struct GateUpParams {
  ProductParams product;
  float* out;
  u32 ffn, unused;
};
static_assert(sizeof(GateUpParams) == 96, "kernels/src/ops/product.rs has the same");

// x / (1 + e^-x)
DEV float silu(float x) { return divide(x, 1.0f + exp2_approx(x * -1.44269504f)); }

DEV void store_gated(const GateUpParams& p, u32 tile, u32 row, u32 token, float gate, float up) {
  u32 column = tile * 8 + row;
  if (column < p.ffn) p.out[(u64)token * p.ffn + column] = silu(gate) * up;
}
