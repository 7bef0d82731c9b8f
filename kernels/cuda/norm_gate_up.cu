// The gated half of a feed-forward: norm, gate and up, silu(gate) * up.
//
//   W [2 ffn][columns] packed, gate and up interleaved: rows r < 8 of tile j are gate rows 8 j + r, rows r + 8 the same rows of up
//   x [tokens][columns] f32, or encoded; out [tokens][ffn] f32
//   grid: (tokens / 8 or / 32, ffn / 8), or (tokens / 128, ffn / 32)     block: 256
//   moves the weights once for each group of tokens, and 4 bytes a result
//   idea: the two numbers that meet are in one lane
#include "norm_gate_up.cuh"

template <class F, int NT> DEV void norm_gate_up(const GateUpParams& p) {
  product<F, NT>(p.product, [&](u32 tile, u32 row, u32 token, float gate, float up) { store_gated(p, tile, row, token, gate, up); });
}
PRODUCT_KERNELS(norm_gate_up, GateUpParams)
