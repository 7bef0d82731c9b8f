// Rows of f32, normed where `norm` is given, to the activations of a product: for batches too large to be encoded in the prologue of every block.
//
//   x [.., x_stride] f32, rows (optional) [tokens]: which rows of x; norm (optional) [columns] f32
//   values [tokens][stride], scales [tokens][scales_stride]: see encode.cuh
//   grid: tokens     block: 256     moves 4 bytes a number in, 1 or 2 out
#include "encode.cuh"

template <Encoding E> DEV void encode(const EncodeParams& p) {
  SHARED(float, scratch, 2 * BLOCK_WARPS);
  wait_for_previous();
  let_next_start();
  u32 token = block_x(), row = p.rows ? p.rows[token] : token;
  encode_row<E>(p.x + (u64)row * p.x_stride, p.norm, p.eps, p.columns, p.blocks, p.values + (u64)token * p.stride,
                p.scales + (u64)token * p.scales_stride, scratch);
}
KERNEL(encode_int8, EncodeParams, 256, 2) { encode<Encoding::int8>(p); }
KERNEL(encode_bf16, EncodeParams, 256, 2) { encode<Encoding::bf16>(p); }
KERNEL(encode_f16, EncodeParams, 256, 2) { encode<Encoding::f16>(p); }
