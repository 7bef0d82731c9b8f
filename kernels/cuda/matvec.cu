// out = W x, or out += W x: the o-projection and down with the residual, and the output matrix.
//
//   W [rows][columns] packed; x [tokens][columns], encoded or f32 (with or without norm); out [tokens][out_stride] f32
//   grid: (tiles of 16 rows, tokens / 8 or / 32), or tiles / 2, / 4 or / 8 and tokens / 128     block: 256
//   moves the weights once for each group of tokens, and 4 bytes a result (8 when it adds)
//   idea: weights stream from memory straight into tensor-core fragments; see product.cuh for the order of the sum
#include "product.cuh"

struct MatvecParams {
  ProductParams product;
  float* out;
  u32 rows, out_stride, add, unused;
};
static_assert(sizeof(MatvecParams) == 104, "kernels/src/ops/matvec.rs has the same");

template <class F, int NT> DEV void matvec(const MatvecParams& p) {
  product<F, NT>(p.product, [&](u32 tile, u32 row, u32 token, float low, float high) {
    float* out = p.out + (u64)token * p.out_stride;
    u32 first = tile * TILE_ROWS + row, second = first + 8;
    if (first < p.rows) out[first] = p.add ? out[first] + low : low;
    if (second < p.rows) out[second] = p.add ? out[second] + high : high;
  });
}
PRODUCT_KERNELS(matvec, MatvecParams)
