// One kernel a primitive of device.cuh: inputs by lane, outputs by lane, so that a test can compare with the definition, and a GPU with the simulator.
#include "encode.cuh"

struct PrimitiveParams {
  const u32* in;  // [threads][8]
  u32* out;       // [threads][8]
};

#define LANE_WORDS                               \
  const u32* in = p.in + thread_index() * 8;     \
  u32* out = p.out + thread_index() * 8;

KERNEL(primitive_shuffles, PrimitiveParams, 64, 2) {
  LANE_WORDS
  out[0] = shuffle_xor(in[0], 5);
  out[1] = shuffle_from(in[0], (int)in[1] % 32);
  out[2] = ballot(in[0] % 3 == 0);
  out[3] = as_bits(warp_sum(as_float(in[2])));
  out[4] = (u32)warp_sum((i32)in[3]);
  out[5] = as_bits(warp_max(as_float(in[2])));
  out[6] = dot4(in[0], in[1], (i32)in[3]);
  out[7] = as_bits(fma(as_float(in[2]), as_float(in[4]), as_float(in[5])));
}

KERNEL(primitive_barrier, PrimitiveParams, 64, 2) {
  LANE_WORDS
  SHARED(u32, turned, 64);
  for (u32 i = 0; i < 8; i++) {
    turned[thread_index()] = in[i];
    block_sync();
    out[i] = turned[63 - thread_index()];
    block_sync();
  }
}

KERNEL(primitive_copy, PrimitiveParams, 64, 2) {
  LANE_WORDS
  SHARED(u32, kept, 64 * 8);
  u32* mine = kept + thread_index() * 8;
  copy_async(mine, in, true);
  copy_commit();
  copy_async(mine + 4, in + 4, thread_index() % 2 == 0);
  copy_commit();
  copy_wait<1>();
  for (u32 i = 0; i < 4; i++) out[i] = mine[i];
  copy_wait<0>();
  for (u32 i = 4; i < 8; i++) out[i] = mine[i];
}

KERNEL(primitive_matrices, PrimitiveParams, 32, 2) {
  LANE_WORDS
  SHARED(u32, rows, 32 * 4);
  for (u32 i = 0; i < 4; i++) rows[thread_index() * 4 + i] = in[i];
  block_sync();
  u32 plain[4], turned[4];
  load_matrices(plain, rows + lane_index() * 4);
  load_matrices_transposed(turned, rows + lane_index() * 4);
  for (u32 i = 0; i < 4; i++) {
    out[i] = plain[i];
    out[4 + i] = turned[i];
  }
}

// in: a0..a3, b0, b1. Results start at 0.
KERNEL(primitive_mma_bf16, PrimitiveParams, 32, 2) {
  LANE_WORDS
  float c[4] = {};
  mma_bf16(c, in[0], in[1], in[2], in[3], in[4], in[5]);
  for (u32 i = 0; i < 4; i++) out[i] = as_bits(c[i]);
  mma_f16(c, in[0], in[1], in[2], in[3], in[4], in[5]);
  for (u32 i = 0; i < 4; i++) out[4 + i] = as_bits(c[i]);
}
KERNEL(primitive_mma_int8, PrimitiveParams, 32, 2) {
  LANE_WORDS
  i32 s[4] = {}, u[4] = {};
  mma_s8(s, in[0], in[1], in[2], in[3], in[4], in[5]);
  mma_u8(u, in[0], in[1], in[2], in[3], in[4], in[5]);
  for (u32 i = 0; i < 4; i++) {
    out[i] = (u32)s[i];
    out[4 + i] = (u32)u[i];
  }
}
KERNEL(primitive_mma_half, PrimitiveParams, 32, 2) {
  LANE_WORDS
  i32 s[4] = {};
  mma_s8_half(s, in[0], in[1], in[4]);
  for (u32 i = 0; i < 4; i++) out[i] = (u32)s[i];
}

KERNEL(primitive_conversions, PrimitiveParams, 64, 2) {
  LANE_WORDS
  float x = as_float(in[0]);
  out[0] = pack_bf16(x, as_float(in[1]));
  out[1] = pack_f16(x, as_float(in[1]));
  out[2] = as_bits(f16_to_float((u16)in[0]));
  out[3] = float_to_e4m3(x);
  out[4] = as_bits(e4m3_to_float((u8)in[2]));
  e4m3_to_f16(in[2], out[5], out[6]);
  u32 high;
  e4m3_to_bf16(in[2], out[7], high);
}

KERNEL(primitive_functions, PrimitiveParams, 64, 2) {
  LANE_WORDS
  float x = as_float(in[0]), y = as_float(in[1]);
  out[0] = as_bits(exp2_approx(x));
  out[1] = as_bits(log2_approx(absolute(x)));
  out[2] = as_bits(divide(x, y));
  out[3] = as_bits(sqrt_exact(absolute(x)));
  out[4] = (u32)round_to_int(x);
  out[5] = count_bits(in[2]);
  out[6] = load_stream(in + 4).w[2];
  out[7] = load8(in + 4).w[1] + load16(in).w[3] + load4(in + 7);
}

struct AtomicParams {
  u32* counter;
  u32* most;
  u64* most_wide;
  u32* tickets;  // [blocks * threads]
};
KERNEL(primitive_atomics, AtomicParams, 64, 2) {
  u32 i = block_x() * block_threads() + thread_index();
  p.tickets[i] = atomic_add(p.counter, 1);
  atomic_max(p.most, i * 7 % 101);
  atomic_max(p.most_wide, (u64)(i * 7 % 101) << 32 | i);
}
