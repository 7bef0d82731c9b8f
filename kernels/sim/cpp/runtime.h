// Simulator bodies of the primitives in device.cuh. A kernel is ordinary C++ here; each thread of a block is a fiber of one OS thread.
//
// What a fast emulator would hide is made visible: threads and blocks run forward, in reverse or at random, so that a missing barrier changes results;
// shared memory is NaN before every block and ends at a guard page; an asynchronous copy lands only when it is waited for; lanes of a warp that come to
// different operations, or never come, are reported instead of deadlocking; unaligned vector accesses are refused; device buffers end at guard pages.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#define DEV static inline
#define MEMBER inline
#define UNROLL
#define ROLL
#define SHARED(T, name, n) T* name = static_cast<T*>(sim::shared(__FILE__, __LINE__, #name, sizeof(T) * (n)))
#define DYNAMIC_SHARED(T, name) T* name = static_cast<T*>(sim::dynamic_shared())
#define KERNEL(name, Params, threads, blocks)                                                                                   \
  static void name(const Params& p);                                                                                      \
  static sim::Registered registered_##name(#name, sizeof(Params), threads,                                                \
                                           [](const void* params) { name(*static_cast<const Params*>(params)); });        \
  static void name([[maybe_unused]] const Params& p)

namespace sim {

struct Position {
  u32 thread, threads, block[3], grid[3];
};
extern thread_local Position here;

typedef void (*Entry)(const void* params);
struct Registered {
  Registered(const char* name, size_t params, u32 threads, Entry entry);
};

// The same pointer for every thread of the block.
void* shared(const char* file, int line, const char* name, size_t bytes);
void* dynamic_shared();
void sync_block();

constexpr size_t SLOT = 64;
// All 32 lanes of a warp put down `bytes`; the last to come runs `finish` on the slots of all, then each takes its own slot back (`out`, may be smaller).
// Lanes that meet with different `finish` are at different operations: an error.
void meet(const char* operation, void (*finish)(u8* slots), const void* mine, size_t bytes, void* out, size_t out_bytes);

void copy_async(void* to, const void* from, bool there);
void copy_commit();
void copy_wait(int pending);
// Ends the launch with a message.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
void check_aligned(const void* p, size_t alignment, const char* operation);

template <class T> inline T& slot(u8* slots, int lane) { return *reinterpret_cast<T*>(slots + lane * SLOT); }

}  // namespace sim

DEV u32 thread_index() { return sim::here.thread; }
DEV u32 block_threads() { return sim::here.threads; }
DEV u32 block_x() { return sim::here.block[0]; }
DEV u32 block_y() { return sim::here.block[1]; }
DEV u32 block_z() { return sim::here.block[2]; }
DEV u32 grid_x() { return sim::here.grid[0]; }
DEV u32 grid_y() { return sim::here.grid[1]; }

DEV void block_sync() { sim::sync_block(); }
DEV void warp_sync() {
  sim::meet("warp_sync", [](u8*) {}, nullptr, 0, nullptr, 0);
}
DEV void fence() {}

DEV float as_float(u32 bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
DEV u32 as_bits(float x) {
  u32 bits;
  memcpy(&bits, &x, 4);
  return bits;
}
DEV float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEV float sqrt_exact(float x) { return __builtin_sqrtf(x); }
DEV float divide(float a, float b) { return a / b; }
DEV i32 round_to_int(float x) { return (i32)__builtin_rintf(x); }
DEV float exp2_approx(float x) { return exp2f(x); }
DEV float log2_approx(float x) { return log2f(x); }
DEV u32 count_bits(u32 x) { return (u32)__builtin_popcount(x); }

DEV u32 bf16_bits(float x) {
  u32 bits = as_bits(x);
  return x != x ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}
DEV u32 pack_bf16(float low, float high) { return bf16_bits(low) | bf16_bits(high) << 16; }
DEV u32 f16_bits(float x) {
  _Float16 h = (_Float16)x;
  u16 bits;
  memcpy(&bits, &h, 2);
  return bits;
}
DEV u32 pack_f16(float low, float high) { return f16_bits(low) | f16_bits(high) << 16; }
DEV float f16_to_float(u16 bits) {
  _Float16 h;
  memcpy(&h, &bits, 2);
  return (float)h;
}

DEV u32 e4m3_pair_to_bf16(u32 spread) {
  auto one = [](u32 code) {
    u32 exponent = code >> 3 & 15, mantissa = code & 7;
    float magnitude = exponent ? __builtin_ldexpf(1.0f + (float)mantissa / 8, (int)exponent - 7) : __builtin_ldexpf((float)mantissa, -9);
    return bf16_bits(code & 0x80 ? -magnitude : magnitude);
  };
  return one(spread >> 8 & 0xff) | one(spread >> 24) << 16;
}

template <class T> DEV T checked_load(const void* p, const char* operation) {
  sim::check_aligned(p, sizeof(T), operation);
  T v;
  memcpy(&v, p, sizeof v);
  return v;
}
DEV vec16 load_stream(const void* p) { return checked_load<vec16>(p, "load_stream"); }
DEV vec16 load16(const void* p) { return checked_load<vec16>(p, "load16"); }
DEV vec8 load8(const void* p) { return checked_load<vec8>(p, "load8"); }
DEV u32 load4(const void* p) { return checked_load<u32>(p, "load4"); }

template <class T> struct Shuffle {
  T value;
  int from;
};
template <class T> DEV T shuffle(const char* operation, T value, int from) {
  Shuffle<T> mine{value, from};
  sim::meet(
      operation,
      [](u8* slots) {
        T values[WARP];
        for (int i = 0; i < WARP; i++) values[i] = sim::slot<Shuffle<T>>(slots, i).value;
        for (int i = 0; i < WARP; i++) sim::slot<Shuffle<T>>(slots, i).value = values[sim::slot<Shuffle<T>>(slots, i).from];
      },
      &mine, sizeof mine, &mine, sizeof mine);
  return mine.value;
}
DEV float shuffle_xor(float v, int mask) { return shuffle("shuffle_xor", v, (int)(thread_index() % WARP) ^ mask); }
DEV u32 shuffle_xor(u32 v, int mask) { return shuffle("shuffle_xor", v, (int)(thread_index() % WARP) ^ mask); }
DEV i32 shuffle_xor(i32 v, int mask) { return shuffle("shuffle_xor", v, (int)(thread_index() % WARP) ^ mask); }
DEV u32 shuffle_from(u32 v, int lane) { return shuffle("shuffle_from", v, lane & 31); }
DEV float shuffle_from(float v, int lane) { return shuffle("shuffle_from", v, lane & 31); }
DEV u32 ballot(bool yes) {
  u32 mine = yes;
  sim::meet(
      "ballot",
      [](u8* slots) {
        u32 bits = 0;
        for (int i = 0; i < WARP; i++) bits |= sim::slot<u32>(slots, i) << i;
        for (int i = 0; i < WARP; i++) sim::slot<u32>(slots, i) = bits;
      },
      &mine, 4, &mine, 4);
  return mine;
}

DEV i32 dot4(u32 a, u32 b, i32 c) {
  for (int i = 0; i < 4; i++) c += (i32)(i8)(a >> 8 * i) * (i32)(i8)(b >> 8 * i);
  return c;
}

// Blocks share one OS thread, so plain reads and writes are atomic.
template <class T> DEV T atomic_add(T* p, std::common_type_t<T> v) {
  T old = *p;
  *p = old + v;
  return old;
}
template <class T> DEV T atomic_max(T* p, std::common_type_t<T> v) {
  T old = *p;
  if (v > old) *p = v;
  return old;
}

DEV void copy_async(void* to, const void* from, bool there) { sim::copy_async(to, from, there); }
DEV void copy_commit() { sim::copy_commit(); }
template <int Pending> DEV void copy_wait() { sim::copy_wait(Pending); }

template <bool Transposed> DEV void matrices(const char* operation, u32 (&r)[4], const void* row) {
  sim::check_aligned(row, 16, operation);
  const void* mine = row;
  sim::meet(
      operation,
      [](u8* slots) {
        u16 m[4][8][8];
        for (int i = 0; i < WARP; i++) memcpy(m[i / 8][i % 8], sim::slot<const void*>(slots, i), 16);
        for (int i = 0; i < WARP; i++) {
          int row = i / 4, column = i % 4 * 2;
          for (int k = 0; k < 4; k++) {
            u32 low = Transposed ? m[k][column][row] : m[k][row][column];
            u32 high = Transposed ? m[k][column + 1][row] : m[k][row][column + 1];
            (&sim::slot<u32>(slots, i))[k] = low | high << 16;
          }
        }
      },
      &mine, sizeof mine, r, 16);
}
DEV void load_matrices(u32 (&r)[4], const void* row) { matrices<false>("load_matrices", r, row); }
DEV void load_matrices_transposed(u32 (&r)[4], const void* row) { matrices<true>("load_matrices_transposed", r, row); }

// The multiplication itself, once a warp. `Element` turns packed numbers into what is multiplied; C is exact in order of k.
struct Fragments {
  u32 c[4], a[4], b[2];
};
template <class Acc, class A, class B> DEV void multiply_fragments(u8* slots, const A (&a)[16][32], const B (&b)[32][8], int k) {
  Acc c[16][8];
  for (int i = 0; i < WARP; i++)
    for (int e = 0; e < 4; e++) memcpy(&c[i / 4 + e / 2 * 8][i % 4 * 2 + e % 2], &sim::slot<Fragments>(slots, i).c[e], 4);
  for (int column = 0; column < 8; column++) {
    bool zero = true;
    for (int i = 0; i < k; i++) zero = zero && b[i][column] == 0;
    // Unused columns cost nothing. Adding zeros changes no bit unless A holds an infinity, which weights and keys do not.
    if (zero) continue;
    for (int row = 0; row < 16; row++) {
      Acc sum = c[row][column];
      for (int i = 0; i < k; i++) sum += (Acc)a[row][i] * (Acc)b[i][column];
      c[row][column] = sum;
    }
  }
  for (int i = 0; i < WARP; i++)
    for (int e = 0; e < 4; e++) memcpy(&sim::slot<Fragments>(slots, i).c[e], &c[i / 4 + e / 2 * 8][i % 4 * 2 + e % 2], 4);
}
template <float (*Number)(u16)> DEV void finish_halves(u8* slots) {
  float a[16][32], b[32][8];
  for (int i = 0; i < WARP; i++) {
    const Fragments& f = sim::slot<Fragments>(slots, i);
    int g = i / 4, t = i % 4;
    for (int e = 0; e < 2; e++) {
      for (int r = 0; r < 4; r++) a[g + r % 2 * 8][2 * t + r / 2 * 8 + e] = Number((u16)(f.a[r] >> 16 * e));
      for (int r = 0; r < 2; r++) b[2 * t + r * 8 + e][g] = Number((u16)(f.b[r] >> 16 * e));
    }
  }
  multiply_fragments<float>(slots, a, b, 16);
}
template <class A, int Registers> DEV void finish_bytes(u8* slots) {
  i32 a[16][32], b[32][8];
  for (int i = 0; i < WARP; i++) {
    const Fragments& f = sim::slot<Fragments>(slots, i);
    int g = i / 4, t = i % 4;
    for (int e = 0; e < 4; e++) {
      for (int r = 0; r < Registers; r++) a[g + r % 2 * 8][4 * t + r / 2 * 16 + e] = (A)(f.a[r] >> 8 * e);
      for (int r = 0; r < Registers / 2; r++) b[4 * t + r * 16 + e][g] = (i8)(f.b[r] >> 8 * e);
    }
  }
  multiply_fragments<i32>(slots, a, b, Registers * 8);
}
DEV float bf16_number(u16 b) { return as_float((u32)b << 16); }
DEV float f16_number(u16 b) { return f16_to_float(b); }

template <class C> DEV void mma(const char* operation, void (*finish)(u8*), C (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  Fragments mine{{}, {a0, a1, a2, a3}, {b0, b1}};
  memcpy(mine.c, c, 16);
  sim::meet(operation, finish, &mine, sizeof mine, c, 16);
}
DEV void mma_bf16(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  mma("mma_bf16", finish_halves<bf16_number>, c, a0, a1, a2, a3, b0, b1);
}
DEV void mma_f16(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  mma("mma_f16", finish_halves<f16_number>, c, a0, a1, a2, a3, b0, b1);
}
DEV void mma_s8(i32 (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  mma("mma_s8", finish_bytes<i8, 4>, c, a0, a1, a2, a3, b0, b1);
}
DEV void mma_u8(i32 (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  mma("mma_u8", finish_bytes<u8, 4>, c, a0, a1, a2, a3, b0, b1);
}
DEV void mma_s8_half(i32 (&c)[4], u32 a0, u32 a1, u32 b0) { mma("mma_s8_half", finish_bytes<i8, 2>, c, a0, a1, 0, 0, b0, 0); }

// Launches follow each other here.
DEV void let_next_start() {}
DEV void wait_for_previous() {}
