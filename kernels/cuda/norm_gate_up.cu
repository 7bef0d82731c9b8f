// The gated half of a feed-forward: norm, gate and up, silu(gate) * up.
//
//   W [2 ffn][columns] packed, gate and up interleaved: rows r < 8 of tile j are gate rows 8 j + r, rows r + 8 the same rows of up
//   x [tokens][columns] f32, or encoded; out [tokens][ffn] f32
//   grid: (ffn / 8, tokens / 8 or / 32), or tiles / 2, / 4 or / 8 and tokens / 128     block: 256
//   moves the weights once for each group of tokens, and 4 bytes a result
//   idea: the two numbers that meet are in one lane
#include "product.cuh"

struct GateUpParams {
  ProductParams product;
  float* out;
  u32 ffn, unused;
};
static_assert(sizeof(GateUpParams) == 96, "kernels/src/ops/gate_up.rs has the same");

// x / (1 + e^-x)
DEV float silu(float x) { return divide(x, 1.0f + exp2_approx(x * -1.44269504f)); }

template <class F, int NT> DEV void norm_gate_up(const GateUpParams& p) {
  product<F, NT>(p.product, [&](u32 tile, u32 row, u32 token, float gate, float up) {
    u32 column = tile * 8 + row;
    if (column < p.ffn) p.out[(u64)token * p.ffn + column] = silu(gate) * up;
  });
}
PRODUCT_KERNELS(norm_gate_up, GateUpParams)
