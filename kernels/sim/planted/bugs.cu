// Kernels with one mistake each, which the tests must see.
#include "cache.cuh"
#include "device_sm90.cuh"
#include "encode.cuh"

struct BugParams {
  const float* x;  // [256]
  float* y;        // [256]
};

// y[i] = x[255 - i] through shared memory, without the barrier between writing and reading.
KERNEL(bug_missing_barrier, BugParams, 256, 2) {
  SHARED(float, turned, 256);
  turned[thread_index()] = p.x[thread_index()];
  p.y[thread_index()] = turned[255 - thread_index()];
}

// Reads what an asynchronous copy brings without waiting for it.
KERNEL(bug_missing_copy_wait, BugParams, 32, 2) {
  SHARED(float, kept, 128);
  copy_async(kept + thread_index() * 4, p.x + thread_index() * 4, true);
  copy_commit();
  block_sync();
  for (u32 i = 0; i < 4; i++) p.y[thread_index() * 4 + i] = kept[thread_index() * 4 + i];
}

// Waits for one group too few: the second is on its way when it is read.
KERNEL(bug_early_copy_wait, BugParams, 32, 2) {
  SHARED(float, kept, 256);
  for (u32 half = 0; half < 2; half++) {
    copy_async(kept + half * 128 + thread_index() * 4, p.x + half * 128 + thread_index() * 4, true);
    copy_commit();
  }
  copy_wait<1>();
  block_sync();
  for (u32 i = 0; i < 8; i++) p.y[thread_index() * 8 + i] = kept[thread_index() * 8 + i];
}

// A shuffle that half of the warp does not reach.
KERNEL(bug_divergent_shuffle, BugParams, 32, 2) {
  float v = p.x[thread_index()];
  if (thread_index() < 16) v += shuffle_xor(v, 1);
  p.y[thread_index()] = v;
}

// Lanes of one warp at different operations.
KERNEL(bug_mixed_operations, BugParams, 32, 2) {
  float v = p.x[thread_index()];
  if (thread_index() < 16)
    v += shuffle_xor(v, 1);
  else
    v += (float)ballot(v > 0);
  p.y[thread_index()] = v;
}

// A barrier that the last warp leaves out while the others come twice.
KERNEL(bug_divergent_barrier, BugParams, 64, 2) {
  SHARED(float, kept, 64);
  kept[thread_index()] = p.x[thread_index()];
  if (thread_index() < 32) block_sync();
  p.y[thread_index()] = kept[63 - thread_index()];
  if (thread_index() < 32) {
    warp_sync();
  } else if (thread_index() == 40) {
    warp_sync();
  }
}

// One element past the end of shared memory.
KERNEL(bug_shared_overrun, BugParams, 64, 2) {
  SHARED(float, kept, 64);
  kept[thread_index() + 1] = p.x[thread_index()];
  block_sync();
  p.y[thread_index()] = kept[thread_index()];
}

// One element past the end of a buffer of 256 numbers: reading, and writing.
KERNEL(bug_buffer_overread, BugParams, 256, 2) { p.y[thread_index()] = p.x[thread_index() + 1]; }
KERNEL(bug_buffer_overwrite, BugParams, 256, 2) { p.y[thread_index() + 1] = p.x[thread_index()]; }

// A vector load from an odd number.
KERNEL(bug_misaligned, BugParams, 32, 2) { p.y[thread_index()] = as_float(load16(p.x + thread_index()).w[0]); }

// A number of shared memory that nobody wrote.
KERNEL(bug_unwritten, BugParams, 32, 2) {
  SHARED(float, kept, 64);
  kept[thread_index()] = p.x[thread_index()];
  block_sync();
  p.y[thread_index()] = kept[thread_index() + 32];
}

// More shared memory than a block may have.
KERNEL(bug_too_much_shared, BugParams, 32, 2) {
  SHARED(float, kept, 13 * 1024);
  kept[thread_index()] = p.x[thread_index()];
  p.y[thread_index()] = kept[thread_index()];
}

struct PageBugParams {
  const u16* pool;    // pages of 256 bf16
  const u32* table;   // [pages]
  float* sums;        // [pages]
  u32 use_table;
  u32 unused;
};
// Sums of pages in the order of a table; the mistake is to take the pages as they lie.
KERNEL(bug_wrong_page, PageBugParams, 32, 2) {
  u32 page = p.use_table ? p.table[block_x()] : block_x();
  float sum = 0;
  for (u32 i = thread_index(); i < 256; i += WARP) sum += bf16_to_float(p.pool[page * 256 + i]);
  sum = warp_sum(sum);
  if (thread_index() == 0) p.sums[block_x()] = sum;
}

// Reads what the memory engine brings without waiting for it.
KERNEL(bug_missing_phase_wait, BugParams, 32, 2) {
  SHARED(u64, arrived, 1);
  SHARED(float, kept, 256);
  if (thread_index() == 0) {
    barrier_init(arrived, 1);
    barriers_ready();
    barrier_expect(arrived, 1024);
    copy_block(kept, p.x, 1024, arrived);
  }
  block_sync();
  for (u32 i = 0; i < 8; i++) p.y[thread_index() * 8 + i] = kept[thread_index() * 8 + i];
  barrier_wait(arrived, 0);
}

// Waits for a phase that lacks an arrival.
KERNEL(bug_forgotten_arrival, BugParams, 32, 2) {
  SHARED(u64, arrived, 1);
  if (thread_index() == 0) barrier_init(arrived, 2);
  block_sync();
  if (thread_index() == 0) barrier_arrive(arrived);
  barrier_wait(arrived, 0);
  p.y[thread_index()] = p.x[thread_index()];
}

// Reads a product of a warp group before it was waited for.
KERNEL(bug_missing_group_wait, BugParams, 128, 1) {
  SHARED(u8, tile, SHARED_TILE_BYTES);
  for (u32 i = thread_index(); i < SHARED_TILE_BYTES / 2; i += 128) reinterpret_cast<u16*>(tile)[i] = (u16)pack_bf16(1, 0);
  block_sync();
  float c[64] = {};
  mma_group_begin();
  u32 ones = pack_bf16(1, 1);
  mma_group_bf16(c, ones, ones, ones, ones, shared_tile(tile), false);
  mma_group_commit();
  p.y[thread_index()] = c[0] + p.x[thread_index()];
  mma_group_wait(c);
  p.y[128 + thread_index()] = c[0] + p.x[thread_index()];
}
