// norm_qkv_rope.cu for prompts on Hopper, bf16, f16 and fp8: see product_sm90.cuh.
//
//   x as encode_tiles writes it; the rest as there
//   grid: (tokens / 128, rows / 128)     block: 288
#include "norm_qkv_rope.cuh"
#include "product_sm90.cuh"

template <class F> DEV void norm_qkv_rope_sm90(const QkvParams& p) {
  hopper_product<F>(p.product, [&](u32 tile, u32 row, u32 token, float low, float high) { store_turned(p, tile, row, token, low, high); });
}
HOPPER_KERNELS(norm_qkv_rope, QkvParams)
