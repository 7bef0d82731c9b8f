// One kernel for the primitives of device_sm90.cuh, as primitives.cu.
#include "device_sm90.cuh"

struct GroupPrimitiveParams {
  const u32* a;      // [128][8]: a0..a3 of two products
  const u8* tiles;   // [2][SHARED_TILE_BYTES]
  u32* out;          // [128][2][64]: bf16, f16
};
// Two products added up, the tiles by the memory engine.
KERNEL(primitive_group, GroupPrimitiveParams, 128, 1) {
  SHARED(u64, arrived, 1);
  SHARED(u8, tiles, 2 * SHARED_TILE_BYTES);
  if (thread_index() == 0) {
    barrier_init(arrived, 1);
    barriers_ready();
  }
  block_sync();
  if (thread_index() == 0) {
    barrier_expect(arrived, 2 * SHARED_TILE_BYTES);
    copy_block(tiles, p.tiles, 2 * SHARED_TILE_BYTES, arrived);
  }
  barrier_wait(arrived, 0);
  const u32* a = p.a + thread_index() * 8;
  float c[2][64] = {};
  mma_group_begin();
UNROLL
  for (u32 i = 0; i < 2; i++) mma_group_bf16(c[0], a[i * 4], a[i * 4 + 1], a[i * 4 + 2], a[i * 4 + 3], shared_tile(tiles + i * SHARED_TILE_BYTES), i > 0);
  mma_group_commit();
  mma_group_wait(c[0]);
  mma_group_begin();
UNROLL
  for (u32 i = 0; i < 2; i++) mma_group_f16(c[1], a[i * 4], a[i * 4 + 1], a[i * 4 + 2], a[i * 4 + 3], shared_tile(tiles + i * SHARED_TILE_BYTES), i > 0);
  mma_group_commit();
  mma_group_wait(c[1]);
UNROLL
  for (u32 k = 0; k < 2; k++)
UNROLL
    for (u32 i = 0; i < 64; i++) p.out[(thread_index() * 2 + k) * 64 + i] = as_bits(c[k][i]);
}
