// Everything that is not plain C++: types, intrinsics and PTX, each with two bodies. For the GPU it is compiled by NVRTC, which needs no header; with
// KERNELS_SIMULATED it is ordinary C++ for kernels/sim, where every thread of a block is a fiber. No other file names an intrinsic or holds PTX.
//
// Both are compiled without contraction of a * b + c (--fmad=false): two versions of a kernel for different batch sizes must round alike, or the text
// would depend on who else is being served. Where one rounding is wanted the source says fma().
#pragma once

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

struct alignas(8) vec8 { u32 w[2]; };
struct alignas(16) vec16 { u32 w[4]; };
struct alignas(8) float2_t { float x, y; };

constexpr int WARP = 32;
constexpr u32 ALL_LANES = 0xffffffffu;
#define NEG_INFINITY as_float(0xff800000u)

#ifdef KERNELS_SIMULATED
#include "runtime.h"
#else

#define DEV static __device__ __forceinline__
#define MEMBER __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define ROLL _Pragma("unroll 1")
#define SHARED(T, name, n) __shared__ __align__(16) T name[n]
#define DYNAMIC_SHARED(T, name) \
  extern __shared__ __align__(16) u8 dynamic_shared_memory[]; \
  T* name = reinterpret_cast<T*>(dynamic_shared_memory)
// `blocks`: as many that there are registers for on one multiprocessor.
#define KERNEL(name, Params, threads, blocks) \
  extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ Params p)

DEV u32 thread_index() { return threadIdx.x; }
DEV u32 block_threads() { return blockDim.x; }
DEV u32 block_x() { return blockIdx.x; }
DEV u32 block_y() { return blockIdx.y; }
DEV u32 block_z() { return blockIdx.z; }
DEV u32 grid_x() { return gridDim.x; }
DEV u32 grid_y() { return gridDim.y; }

DEV void block_sync() { __syncthreads(); }
DEV void warp_sync() { __syncwarp(); }
DEV void fence() { __threadfence(); }

DEV float as_float(u32 bits) { return __uint_as_float(bits); }
DEV u32 as_bits(float x) { return __float_as_uint(x); }
DEV float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
DEV float sqrt_exact(float x) { return __fsqrt_rn(x); }
DEV float divide(float a, float b) { return __fdiv_rn(a, b); }
// Nearest integer, ties to even.
DEV i32 round_to_int(float x) { return __float2int_rn(x); }
// 2^x to about 2 ulp; 0 for -infinity.
DEV float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Base-2 logarithm to about 2^-22.
DEV float log2_approx(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEV u32 count_bits(u32 x) { return (u32)__popc(x); }

// Two numbers rounded to bf16 or f16 (ties to even), the first in the low half.
DEV u32 pack_bf16(float low, float high) {
  u32 d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}
DEV u32 pack_f16(float low, float high) {
  u32 d;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}
// Four fp8 numbers (e4m3, see below) as four bf16, exact. Bits in place are 2^-120 of the value; NaN is not kept.
DEV u32 e4m3_pair_to_bf16(u32 spread) {
  u32 bits = (spread & 0x80008000u) | (spread & 0x7f007f00u) >> 4, d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(bits), "r"(0x7b807b80u), "r"(0x80008000u));
  return d;
}
DEV float f16_to_float(u16 h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}

// Reads once, from memory that no kernel writes while this one runs, and leaves L1 to others. 16-byte aligned.
DEV vec16 load_stream(const void* p) {
  vec16 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
               : "l"(p));
  return v;
}
DEV vec16 load16(const void* p) { return *reinterpret_cast<const vec16*>(p); }
DEV vec8 load8(const void* p) { return *reinterpret_cast<const vec8*>(p); }
DEV u32 load4(const void* p) { return *reinterpret_cast<const u32*>(p); }

DEV float shuffle_xor(float v, int mask) { return __shfl_xor_sync(ALL_LANES, v, mask); }
DEV u32 shuffle_xor(u32 v, int mask) { return __shfl_xor_sync(ALL_LANES, v, mask); }
DEV i32 shuffle_xor(i32 v, int mask) { return __shfl_xor_sync(ALL_LANES, v, mask); }
DEV u32 shuffle_from(u32 v, int lane) { return __shfl_sync(ALL_LANES, v, lane); }
DEV float shuffle_from(float v, int lane) { return __shfl_sync(ALL_LANES, v, lane); }
DEV u32 ballot(bool yes) { return __ballot_sync(ALL_LANES, yes); }

DEV i32 dot4(u32 a, u32 b, i32 c) { return __dp4a((i32)a, (i32)b, c); }

DEV u32 atomic_add(u32* p, u32 v) { return atomicAdd(p, v); }
DEV u64 atomic_add(u64* p, u64 v) { return atomicAdd(p, v); }
DEV u32 atomic_max(u32* p, u32 v) { return atomicMax(p, v); }
DEV u64 atomic_max(u64* p, u64 v) { return atomicMax(p, v); }

DEV u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// Starts a copy of 16 bytes from global to shared memory, of zeros where `there` is false (then `from` need only be a valid address).
DEV void copy_async(void* to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
}
DEV void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `Pending` of this thread's newest groups are on their way.
template <int Pending> DEV void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory"); }

// Four 8 x 8 matrices of 16-bit numbers; lane 8 i + r gives the address of row r of matrix i. Lane 4 r + c receives elements 2 c and 2 c + 1 of row r.
DEV void load_matrices(u32 (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
// The same, each matrix transposed on the way.
DEV void load_matrices_transposed(u32 (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// C[16 x 8] += A[16 x k] B[k x 8] on tensor cores. With g = lane / 4 and t = lane % 4, a lane holds
//   C  c0 (g, 2t)  c1 (g, 2t + 1)  c2 (g + 8, 2t)  c3 (g + 8, 2t + 1)
//   16-bit, k = 16:  A  a0 (g, 2t..)  a1 (g + 8, 2t..)  a2 (g, 2t + 8..)  a3 (g + 8, 2t + 8..)    B  b0 (2t.., g)  b1 (2t + 8.., g)     two numbers each
//   8-bit, k = 32:   A  a0 (g, 4t..)  a1 (g + 8, 4t..)  a2 (g, 4t + 16..)  a3 (g + 8, 4t + 16..)  B  b0 (4t.., g)  b1 (4t + 16.., g)    four numbers each
//   8-bit, k = 16:   A  a0 (g, 4t..)  a1 (g + 8, 4t..)                                            B  b0 (4t.., g)
DEV void mma_bf16(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
DEV void mma_f16(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
DEV void mma_s8(i32 (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// A is unsigned.
DEV void mma_u8(i32 (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
DEV void mma_s8_half(i32 (&c)[4], u32 a0, u32 a1, u32 b0) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
               : "r"(a0), "r"(a1), "r"(b0));
}

// Programmatic dependent launch: the next kernel may start its prologue; wait for what the kernel before has written. Nothing below sm_90.
DEV void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
DEV void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
#endif

// From here on plain C++, the same for both.

DEV int lane_index() { return (int)(thread_index() % WARP); }
DEV int warp_index() { return (int)(thread_index() / WARP); }
// What is the same in all lanes anyway, so that the compiler knows it too.
DEV u32 uniform(u32 v) { return shuffle_from(v, 0); }
DEV float absolute(float x) { return as_float(as_bits(x) & 0x7fffffffu); }
// Of two numbers; the other where one is NaN.
DEV float larger(float a, float b) { return a > b || b != b ? a : b; }
DEV int smaller(int a, int b) { return a < b ? a : b; }

DEV float bf16_to_float(u16 b) { return as_float((u32)b << 16); }
DEV float bf16_low(u32 pair) { return as_float(pair << 16); }
DEV float bf16_high(u32 pair) { return as_float(pair & 0xffff0000u); }

// fp8 with four bits of exponent and three of mantissa (e4m3fn: no infinities, S.1111.111 is NaN).
DEV float e4m3_to_float(u8 v) {
  u32 sign = (u32)(v & 0x80) << 24, magnitude = v & 0x7f;
  if (magnitude == 0x7f) return as_float(sign | 0x7fc00000u);
  if (magnitude < 8) return as_float(sign | as_bits((float)magnitude * 0.001953125f));
  return as_float(sign | ((magnitude << 20) + (120u << 23)));
}
// Nearest, ties to even; beyond 448 becomes 448.
DEV u8 float_to_e4m3(float x) {
  u32 bits = as_bits(x), sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return (u8)(sign | 0x7f);
  if (magnitude >= as_bits(464.0f)) return (u8)(sign | 0x7e);
  if (magnitude < as_bits(0.015625f)) return (u8)(sign | (u32)round_to_int(as_float(magnitude) * 512.0f));
  u32 rounded = magnitude + 0x7ffffu + (magnitude >> 20 & 1);
  u32 code = (rounded - (120u << 23)) >> 20;
  return (u8)(sign | (code > 0x7e ? 0x7e : code));
}
// Four fp8 numbers as four f16 of 1/256 of their value, which is exact: only the exponent's bias differs.
DEV void e4m3_to_f16(u32 four, u32& low, u32& high) {
  u32 even = (four & 0xffu) << 8 | (four & 0xff00u) << 16, odd = (four & 0xff0000u) >> 8 | (four & 0xff000000u);
  low = (even & 0x80008000u) | (even & 0x7f007f00u) >> 1;
  high = (odd & 0x80008000u) | (odd & 0x7f007f00u) >> 1;
}

DEV void e4m3_to_bf16(u32 four, u32& low, u32& high) {
  low = e4m3_pair_to_bf16((four & 0xffu) << 8 | (four & 0xff00u) << 16);
  high = e4m3_pair_to_bf16((four & 0xff0000u) >> 8 | (four & 0xff000000u));
}

// Every lane receives the same bits: the order of additions is that of the butterfly.
DEV float warp_sum(float v) {
  for (int mask = 16; mask; mask >>= 1) v += shuffle_xor(v, mask);
  return v;
}
DEV i32 warp_sum(i32 v) {
  for (int mask = 16; mask; mask >>= 1) v += shuffle_xor(v, mask);
  return v;
}
DEV float warp_max(float v) {
  for (int mask = 16; mask; mask >>= 1) v = larger(v, shuffle_xor(v, mask));
  return v;
}
