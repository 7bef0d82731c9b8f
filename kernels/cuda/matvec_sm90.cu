// matvec.cu for prompts on Hopper, bf16, f16 and fp8: see product_sm90.cuh.
//
//   x as encode_tiles writes it; the rest as there
//   grid: (tokens / 128, rows / 128)     block: 288
#include "matvec.cuh"
#include "product_sm90.cuh"

template <class F> DEV void matvec_sm90(const MatvecParams& p) {
  hopper_product<F>(p.product, [&](u32 tile, u32 row, u32 token, float low, float high) { store_row(p, tile, row, token, low, high); });
}
HOPPER_KERNELS(matvec, MatvecParams)
