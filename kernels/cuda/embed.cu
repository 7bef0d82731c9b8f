// Rows of the embedding, dequantised: the residual stream at its start.
//
//   W [vocab][columns] packed as for a product, so that a tied output matrix is stored once; tokens [tokens]; x [tokens][columns] f32
//   grid: tokens     block: 256     moves the bytes of a row a token (in pieces of a fragment) and 4 bytes a number
#include "formats.cuh"

struct EmbedParams {
  const u8* weights;
  const u32* tokens;
  float* x;
  u32 records, tile_bytes, columns, unused;
};
static_assert(sizeof(EmbedParams) == 40, "kernels/src/ops/embed.rs has the same");

template <class F> DEV void embed(const EmbedParams& p) {
  wait_for_previous();
  let_next_start();
  u32 token = p.tokens[block_x()];
  const u8* tile = p.weights + (u64)(token / TILE_ROWS) * p.tile_bytes;
  for (u32 column = thread_index(); column < p.columns; column += 256)
    p.x[(u64)block_x() * p.columns + column] = F::element(tile, p.records, token % TILE_ROWS, column);
}
KERNEL(embed_bf16, EmbedParams, 256, 2) { embed<Bf16>(p); }
KERNEL(embed_f16, EmbedParams, 256, 2) { embed<F16>(p); }
KERNEL(embed_fp8, EmbedParams, 256, 2) { embed<Fp8>(p); }
KERNEL(embed_q8_0, EmbedParams, 256, 2) { embed<Q8_0>(p); }
KERNEL(embed_q4_0, EmbedParams, 256, 2) { embed<Q4_0>(p); }
KERNEL(embed_q4_1, EmbedParams, 256, 2) { embed<Q4_1>(p); }
KERNEL(embed_q4_k, EmbedParams, 256, 2) { embed<Q4_K>(p); }
KERNEL(embed_q5_k, EmbedParams, 256, 2) { embed<Q5_K>(p); }
KERNEL(embed_q6_k, EmbedParams, 256, 2) { embed<Q6_K>(p); }
