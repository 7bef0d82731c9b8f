// out = W x, or out += W x: the o-projection and down with the residual, and the output matrix.
//
//   W [rows][columns] packed; x [tokens][columns], encoded or f32 (with or without norm); out [tokens][out_stride] f32
//   grid: (tokens / 8 or / 32, tiles of 16 rows), or (tokens / 128, tiles / 4)     block: 256
//   moves the weights once for each group of tokens, and 4 bytes a result (8 when it adds)
//   idea: weights stream from memory straight into tensor-core fragments; see product.cuh for the order of the sum
#include "matvec.cuh"

template <class F, int NT> DEV void matvec(const MatvecParams& p) {
  product<F, NT>(p.product, [&](u32 tile, u32 row, u32 token, float low, float high) { store_row(p, tile, row, token, low, high); });
}
PRODUCT_KERNELS(matvec, MatvecParams)
