// norm_gate_up.cu for prompts on Hopper, bf16, f16 and fp8: see product_sm90.cuh.
//
//   x as encode_tiles writes it; the rest as there
//   grid: (tokens / 128, ffn / 64)     block: 288
#include "norm_gate_up.cuh"
#include "product_sm90.cuh"

template <class F> DEV void norm_gate_up_sm90(const GateUpParams& p) {
  hopper_product<F>(p.product, [&](u32 tile, u32 row, u32 token, float gate, float up) { store_gated(p, tile, row, token, gate, up); });
}
HOPPER_KERNELS(norm_gate_up, GateUpParams)
