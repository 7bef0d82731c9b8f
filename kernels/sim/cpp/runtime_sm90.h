// Simulator bodies of the primitives in device_sm90.cuh. Copies land as late as they may, when no thread of the block can go on without one, and products
// are done when they are waited for: who reads too early reads what was there before.
#pragma once
#include "runtime.h"

namespace sim {

void barrier_init(u64* barrier, u32 count);
// One arrival, and bytes that will come.
void barrier_arrive(u64* barrier, u32 bytes);
void barrier_wait(u64* barrier, u32 parity);
void copy_block(void* to, const void* from, u32 bytes, u64* barrier);

// A thread's part of a product of its warp group.
struct GroupProduct {
  float* c;
  u32 a[4];
  const u8* b;
  float (*number)(u16);
  bool add;
};
void group_product(const GroupProduct& product);
void group_commit();
void group_wait();

}  // namespace sim

DEV void barrier_init(u64* barrier, u32 count) { sim::barrier_init(barrier, count); }
DEV void barriers_ready() {}
DEV void barrier_arrive(u64* barrier) { sim::barrier_arrive(barrier, 0); }
DEV void barrier_expect(u64* barrier, u32 bytes) { sim::barrier_arrive(barrier, bytes); }
DEV void barrier_wait(u64* barrier, u32 parity) { sim::barrier_wait(barrier, parity); }
DEV void copy_block(void* to, const void* from, u32 bytes, u64* barrier) { sim::copy_block(to, from, bytes, barrier); }

struct SharedTile {
  const u8* at;
};
DEV SharedTile shared_tile(const void* at) {
  sim::check_aligned(at, 16, "shared_tile");
  return SharedTile{static_cast<const u8*>(at)};
}
constexpr u32 SHARED_TILE_BYTES = 16 * 128 * 2;

DEV void mma_group_bf16(float (&c)[64], u32 a0, u32 a1, u32 a2, u32 a3, SharedTile b, bool add) {
  sim::group_product(sim::GroupProduct{c, {a0, a1, a2, a3}, b.at, bf16_number, add});
}
DEV void mma_group_f16(float (&c)[64], u32 a0, u32 a1, u32 a2, u32 a3, SharedTile b, bool add) {
  sim::group_product(sim::GroupProduct{c, {a0, a1, a2, a3}, b.at, f16_number, add});
}
DEV void tiles_written() {}
DEV void mma_group_begin() {}
DEV void mma_group_commit() { sim::group_commit(); }
DEV void mma_group_wait(float (&)[64]) { sim::group_wait(); }
