// What only Hopper has (sm_90a): copies of whole blocks by the memory engine, barriers that count their bytes, and products of four warps whose second factor
// stays in shared memory. As in device.cuh every primitive has a body for the simulator (kernels/sim/cpp/runtime_sm90.h); other PTX is nowhere.
#pragma once
#include "device.cuh"

constexpr u32 GROUP_WARPS = 4;  // of a product of a warp group

#ifdef KERNELS_SIMULATED
#include "runtime_sm90.h"
#else

// A barrier in shared memory: a phase is complete when `count` threads have arrived and all bytes that were announced have come.
DEV void barrier_init(u64* barrier, u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory"); }
// After all are made, before the block's barrier: the memory engine sees them too.
DEV void barriers_ready() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEV void barrier_arrive(u64* barrier) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory"); }
// Arrives and announces bytes.
DEV void barrier_expect(u64* barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}
// Waits for the end of the phase of this parity: 0 is the first; the one before the first, 1, has ended.
DEV void barrier_wait(u64* barrier, u32 parity) {
  asm volatile(
      "{\n .reg .pred p;\n"
      "again:\n mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      " @p bra done;\n bra again;\n"
      "done:\n}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// Starts a copy of a block to shared memory; its bytes arrive at the barrier. Addresses and bytes are multiples of 16.
DEV void copy_block(void* to, const void* from, u32 bytes, u64* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)), "l"(from), "r"(bytes),
               "r"(shared_address(barrier))
               : "memory");
}

// The second factor of a product of a warp group, 16 x 128 numbers of 16 bits in shared memory: for each eight columns two runs of 8 x 16 bytes, a run
// holding for each column eight numbers along the sum: [column / 8][half of the sum][column % 8][8].
struct SharedTile {
  u64 descriptor;
};
DEV SharedTile shared_tile(const void* at) {
  // Address, 128 bytes from one half of the sum to the other, 256 bytes from eight columns to the next, each in units of 16; no swizzle.
  return SharedTile{(u64)(shared_address(at) >> 4 & 0x3fffu) | (u64)(128 >> 4) << 16 | (u64)(256 >> 4) << 32};
}
constexpr u32 SHARED_TILE_BYTES = 16 * 128 * 2;

// C[64 x 128] (+)= A[64 x 16] B[16 x 128]. Warp w of the group holds rows 16 w and on: A as of mma_bf16; C as of sixteen products of mma_bf16, side by side.
// The product runs on while the warps do other things: neither its registers nor B may be touched before it was waited for.
DEV void mma_group_bf16(float (&c)[64], u32 a0, u32 a1, u32 a2, u32 a3, SharedTile b, bool add) {
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %69, 0;\n"
               " wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
               "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
               "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
               "{%64, %65, %66, %67}, %68, p, 1, 1, 0;\n}"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]),
               "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]),
               "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]),
               "+f"(c[31]), "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), "+f"(c[40]),
               "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), "+f"(c[48]), "+f"(c[49]), "+f"(c[50]),
               "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]), "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]),
               "+f"(c[61]), "+f"(c[62]), "+f"(c[63])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b.descriptor), "r"((i32)add));
}
DEV void mma_group_f16(float (&c)[64], u32 a0, u32 a1, u32 a2, u32 a3, SharedTile b, bool add) {
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %69, 0;\n"
               " wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
               "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
               "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
               "{%64, %65, %66, %67}, %68, p, 1, 1, 0;\n}"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]),
               "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]),
               "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]),
               "+f"(c[31]), "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), "+f"(c[40]),
               "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), "+f"(c[48]), "+f"(c[49]), "+f"(c[50]),
               "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]), "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]),
               "+f"(c[61]), "+f"(c[62]), "+f"(c[63])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b.descriptor), "r"((i32)add));
}
// After tiles were written by threads, before the barrier behind which products read them.
DEV void tiles_written() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Before the first product after its registers were written.
DEV void mma_group_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Closes a batch of products.
DEV void mma_group_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits for all products of this warp.
DEV void mma_group_wait(float (&c)[64]) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  // Nothing reads C before.
UNROLL
  for (int i = 0; i < 64; i++) asm volatile("" : "+f"(c[i])::"memory");
}
#endif
