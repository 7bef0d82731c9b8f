// encode.cu for the products of Hopper: bf16 and f16 rows as the images of shared tiles.
//
//   values [tokens / 128][blocks][TILE_BYTES]: see product_sm90.cuh; places of tokens past the last keep what was there
//   otherwise as encode.cu, with the same numbers; grid: tokens     block: 256     moves 4 bytes a number in, 2 out
//   idea: eight numbers that stand together in a tile are a thread's, and leave as 16 bytes
#include "product_sm90.cuh"

template <Encoding E> DEV void encode_tiles(const EncodeParams& p) {
  SHARED(float, scratch, 2 * BLOCK_WARPS);
  wait_for_previous();
  let_next_start();
  u32 token = block_x(), source = p.rows ? p.rows[token] : token, place = token % TOKEN_TILE;
  Row row = row_of(p.x + (u64)source * p.x_stride, p.norm, p.eps, p.columns, scratch);
  Power power{1, 1};
  if (E == Encoding::f16) power = power_of(row, scratch + BLOCK_WARPS);
  u8* tiles = p.values + (u64)(token / TOKEN_TILE) * p.blocks * TILE_BYTES + place / 8 * 256 + place % 8 * 16;
  for (u32 i = thread_index(); i < p.blocks * 4; i += BLOCK_THREADS) {
    u32 step = i / 2 % 2, half = i % 2, first = i / 4 * 32 + step * 4 + half * 2;
    vec16 out;
    // Of a step, word t of a half is columns 8t and 8t + 1 from its first: as lane t holds them of the weights.
    for (u32 t = 0; t < 4; t++) {
      float low = row.at(first + 8 * t), high = row.at(first + 8 * t + 1);
      out.w[t] = E == Encoding::f16 ? pack_f16(low * power.inverse, high * power.inverse) : pack_bf16(low, high);
    }
    *reinterpret_cast<vec16*>(tiles + i / 4 * TILE_BYTES + step * SHARED_TILE_BYTES + half * 128) = out;
  }
  if (E == Encoding::f16 && thread_index() == 0) p.scales[(u64)token * p.scales_stride] = float2_t{power.scale, 0};
}
KERNEL(encode_bf16_sm90, EncodeParams, 256, 2) { encode_tiles<Encoding::bf16>(p); }
KERNEL(encode_f16_sm90, EncodeParams, 256, 2) { encode_tiles<Encoding::f16>(p); }
