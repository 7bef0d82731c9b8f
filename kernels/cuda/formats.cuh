// Weights as they lie in device memory, and how a warp multiplies them. `kernels/src/pack.rs` writes this layout.
//
// A matrix is cut into tiles of 16 rows, the height of a tensor-core fragment; a tile is one stream of records of `COLUMNS` columns. Inside a record the
// numbers stand in the order in which lanes hold them as the A operand, so that a warp reads whole 16-byte words, each byte once, straight into registers:
// no shared memory, no shuffles. Which column goes to which place of the fragment is free as long as B agrees; it is chosen so that a lane's activations
// are neighbours in memory. With g = lane / 4 (rows g and g + 8) and t = lane % 4:
//
//   BF16, F16   32 columns  [step 2][lane][16 B]   step s: columns 8t + 4s + {0,1 | 2,3}: words (g, 01) (g + 8, 01) (g, 23) (g + 8, 23)
//   FP8         32 columns  [lane][16 B]           words: (g, 8t..+3) (g + 8, 8t..+3) (g, 8t+4..+7) (g + 8, 8t+4..+7); after the last record of the tile
//                                                  f32 [16], a scale for each row
//   Q8_0        64 columns  [block 2][lane][16 B] as FP8, then f16 d: [g][block][row g, g + 8]
//   Q4_0        64 columns  [lane][16 B]           words 2b, 2b + 1 are block b: low nibbles row g, high nibbles row g + 8, columns 8t..+3 and 8t+4..+7;
//                                                  then f16 d: [g][block][row g, g + 8]
//   Q4_1        64 columns  the same, then f16 d and m: [g][block][d, m][row g, g + 8]
//   Q4_K       256 columns  [pair of blocks 4][lane][16 B] as Q4_0, then for each row d, dmin, and the 12 bytes of scales and minima as in the file
//   Q5_K       256 columns  as Q4_K, then [lane][16 B]: word p for blocks 2p and 2p + 1: bit 8 i + 4 (block % 2) + word is the fifth bit of byte i of word
//   Q6_K       256 columns  [pair of blocks 4][lane][16 B]: words 2b + h: low nibbles row g, high nibbles row g + 8, columns 16h + 4t..+3 of block b;
//                           then [2][lane][16 B]: word b: bits 8 i + 2 (2h + row / 8): the upper two bits of byte i; then i8 [16 rows][16]; then f16 [16]
//
// Rows past the last and columns past the last are zero.
#pragma once
#include "device.cuh"

constexpr int TILE_ROWS = 16;

// Rows of activations as encode.cuh writes them.
struct Activations {
  const u8* values;        // [tokens][stride]
  const float2_t* scales;  // int8: {d, d sum(q)} for each block of 32 columns, [tokens][blocks]; f16: {scale, 0}, [tokens][1]; bf16: unused
  u32 stride;              // bytes of a row
  u32 blocks;              // scales of a row
  u32 tokens;
};

// How activations are encoded for a format.
enum class Encoding { int8, bf16, f16 };

// Where a lane finds its activations of eight tokens: token `first + g` as B, the scales of tokens `first + 2t` and the next for its sums. Zeros past the end.
struct Lane {
  const Activations& x;
  u32 first;

  MEMBER u32 token() const { return first + (u32)lane_index() / 4; }
  MEMBER const u8* at(u32 byte) const { return x.values + (token() * x.stride + byte); }
  MEMBER u32 four(u32 byte) const { return token() < x.tokens ? load4(at(byte)) : 0; }
  MEMBER vec8 eight(u32 byte) const { return token() < x.tokens ? load8(at(byte)) : vec8{{0, 0}}; }
  MEMBER vec16 sixteen(u32 byte) const { return token() < x.tokens ? load16(at(byte)) : vec16{{0, 0, 0, 0}}; }
  MEMBER float2_t scale(u32 e, u32 block) const {
    u32 sum = first + (u32)lane_index() % 4 * 2 + e;
    return sum < x.tokens ? x.scales[sum * x.blocks + block] : float2_t{0, 0};
  }
};

// Sums of int8 products start here: read as f32 the result is 12582912 + sum, exact below 2^22, which saves a conversion from integer.
constexpr i32 SUM_START = 0x4b400000;
DEV float sum_value(i32 sum) { return as_float((u32)sum) - 12582912.0f; }

// One block of 32 columns times 8 NT tokens: acc += d * d_x * sum(q q_x) + m * d_x sum(q_x). `d` and `m` are those of rows g and g + 8.
template <bool Unsigned, bool Minima, int NT>
DEV void multiply_block(float (&acc)[NT][4], const u32 (&a)[4], const float (&d)[2], const float (&m)[2], const Activations& activations, u32 block) {
UNROLL
  for (u32 n = 0; n < NT; n++) {
    Lane x{activations, n * 8};
    vec8 b = x.eight(block * 32 + (u32)lane_index() % 4 * 8);
    i32 sum[4] = {SUM_START, SUM_START, SUM_START, SUM_START};
    if (Unsigned)
      mma_u8(sum, a[0], a[1], a[2], a[3], b.w[0], b.w[1]);
    else
      mma_s8(sum, a[0], a[1], a[2], a[3], b.w[0], b.w[1]);
    float2_t scale[2] = {x.scale(0, block), x.scale(1, block)};
UNROLL
    for (int i = 0; i < 4; i++) {
      acc[n][i] = fma(d[i / 2] * scale[i % 2].x, sum_value(sum[i]), acc[n][i]);
      if (Minima) acc[n][i] = fma(m[i / 2], scale[i % 2].y, acc[n][i]);
    }
  }
}

DEV u32 low_nibbles(u32 w) { return w & 0x0f0f0f0fu; }
DEV u32 high_nibbles(u32 w) { return w >> 4 & 0x0f0f0f0fu; }
// Bytes 0..15 less 8, or 0..63 less 32, as signed bytes.
DEV u32 less_8(u32 w) { return (w + 0x78787878u) ^ 0x80808080u; }
DEV u32 less_32(u32 w) { return (w + 0x60606060u) ^ 0x80808080u; }
DEV float half_low(u32 pair) { return f16_to_float((u16)(pair & 0xffffu)); }
DEV float half_high(u32 pair) { return f16_to_float((u16)(pair >> 16)); }
DEV u32 byte_of(u32 w, u32 i) { return w >> 8 * i & 0xffu; }
DEV float half_at(const u8* p) { return f16_to_float(*reinterpret_cast<const u16*>(p)); }

// Each format: COLUMNS and BYTES of a record; TAIL bytes behind the last record of a tile; AHEAD, how many records a warp asks for before it works on the
// first; `Record`, a lane's part in registers; `multiply`, a record times 8 NT tokens; `stream`, the same from memory with fewer registers, where a record
// is long; `element`, one number, for the embedding.

// BF16 and F16: two fragments of 16 columns.
template <bool Half> struct Plain16 {
  static constexpr Encoding ENCODING = Half ? Encoding::f16 : Encoding::bf16;
  static constexpr u32 COLUMNS = 32, BYTES = 1024, TAIL = 0;
  static constexpr int AHEAD = 4;
  struct Record {
    vec16 step[2];
  };
  static MEMBER Record load(const u8* record, int lane) { return Record{{load_stream(record + lane * 16), load_stream(record + 512 + lane * 16)}}; }
  template <int NT> static MEMBER void multiply(float (&acc)[NT][4], const Record& r, const Activations& x, u32 record) {
UNROLL
    for (u32 n = 0; n < NT; n++) {
      vec16 b = Lane{x, n * 8}.sixteen(record * 64 + (u32)lane_index() % 4 * 16);
UNROLL
      for (int s = 0; s < 2; s++) {
        const u32* a = r.step[s].w;
        if (Half)
          mma_f16(acc[n], a[0], a[1], a[2], a[3], b.w[2 * s], b.w[2 * s + 1]);
        else
          mma_bf16(acc[n], a[0], a[1], a[2], a[3], b.w[2 * s], b.w[2 * s + 1]);
      }
    }
  }
  static MEMBER float element(const u8* tile, u32, u32 row, u32 column) {
    u32 c = column % 32, t = c / 8, lane = row % 8 * 4 + t;
    const u8* p = tile + column / 32 * BYTES + c / 4 % 2 * 512 + lane * 16 + (row / 8 + c / 2 % 2 * 2) * 4 + c % 2 * 2;
    return Half ? half_at(p) : bf16_to_float(*reinterpret_cast<const u16*>(p));
  }
};
typedef Plain16<false> Bf16;
typedef Plain16<true> F16;

struct Fp8 {
  static constexpr Encoding ENCODING = Encoding::f16;
  static constexpr u32 COLUMNS = 32, BYTES = 512, TAIL = 64;
  static constexpr int AHEAD = 4;
  struct Record {
    vec16 q;
  };
  static MEMBER Record load(const u8* record, int lane) { return Record{load_stream(record + lane * 16)}; }
  template <int NT> static MEMBER void multiply(float (&acc)[NT][4], const Record& r, const Activations& x, u32 record) {
    u32 a[2][4];
UNROLL
    for (int s = 0; s < 2; s++) {
      e4m3_to_f16(r.q.w[2 * s], a[s][0], a[s][2]);
      e4m3_to_f16(r.q.w[2 * s + 1], a[s][1], a[s][3]);
    }
UNROLL
    for (u32 n = 0; n < NT; n++) {
      vec16 b = Lane{x, n * 8}.sixteen(record * 64 + (u32)lane_index() % 4 * 16);
UNROLL
      for (int s = 0; s < 2; s++) mma_f16(acc[n], a[s][0], a[s][1], a[s][2], a[s][3], b.w[2 * s], b.w[2 * s + 1]);
    }
  }
  static MEMBER float element(const u8* tile, u32 records, u32 row, u32 column) {
    u32 c = column % 32, lane = row % 8 * 4 + c / 8;
    u8 q = tile[column / 32 * BYTES + lane * 16 + (row / 8 + c / 4 % 2 * 2) * 4 + c % 4];
    return e4m3_to_float(q) * reinterpret_cast<const float*>(tile + records * BYTES)[row];
  }
};

struct Q8_0 {
  static constexpr Encoding ENCODING = Encoding::int8;
  static constexpr u32 COLUMNS = 64, BYTES = 1088, TAIL = 0;
  static constexpr int AHEAD = 2;
  struct Record {
    vec16 q[2];
    vec8 d;
  };
  static MEMBER Record load(const u8* record, int lane) {
    return Record{{load_stream(record + lane * 16), load_stream(record + 512 + lane * 16)}, load8(record + 1024 + lane / 4 * 8)};
  }
  template <int NT> static MEMBER void multiply(float (&acc)[NT][4], const Record& r, const Activations& x, u32 record) {
UNROLL
    for (u32 b = 0; b < 2; b++) {
      float d[2] = {half_low(r.d.w[b]), half_high(r.d.w[b])};
      multiply_block<false, false>(acc, r.q[b].w, d, d, x, record * 2 + b);
    }
  }
  static MEMBER float element(const u8* tile, u32, u32 row, u32 column) {
    const u8* record = tile + column / 64 * BYTES;
    u32 b = column / 32 % 2, c = column % 32, lane = row % 8 * 4 + c / 8;
    i8 q = (i8)record[b * 512 + lane * 16 + (row / 8 + c / 4 % 2 * 2) * 4 + c % 4];
    return (float)q * half_at(record + 1024 + row % 8 * 8 + b * 4 + row / 8 * 2);
  }
};

// A nibble of the layout that the 4-bit formats share: `pair` holds two blocks, 512 bytes.
DEV u32 nibble_at(const u8* pair, u32 row, u32 block, u32 c) {
  u32 lane = row % 8 * 4 + c / 8;
  return pair[lane * 16 + (block % 2 * 2 + c / 4 % 2) * 4 + c % 4] >> row / 8 * 4 & 15u;
}

struct Q4_0 {
  static constexpr Encoding ENCODING = Encoding::int8;
  static constexpr u32 COLUMNS = 64, BYTES = 576, TAIL = 0;
  static constexpr int AHEAD = 4;
  struct Record {
    vec16 q;
    vec8 d;
  };
  static MEMBER Record load(const u8* record, int lane) { return Record{load_stream(record + lane * 16), load8(record + 512 + lane / 4 * 8)}; }
  template <int NT> static MEMBER void multiply(float (&acc)[NT][4], const Record& r, const Activations& x, u32 record) {
UNROLL
    for (u32 b = 0; b < 2; b++) {
      u32 near = r.q.w[2 * b], far = r.q.w[2 * b + 1];
      u32 a[4] = {less_8(low_nibbles(near)), less_8(high_nibbles(near)), less_8(low_nibbles(far)), less_8(high_nibbles(far))};
      float d[2] = {half_low(r.d.w[b]), half_high(r.d.w[b])};
      multiply_block<false, false>(acc, a, d, d, x, record * 2 + b);
    }
  }
  static MEMBER float element(const u8* tile, u32, u32 row, u32 column) {
    const u8* record = tile + column / 64 * BYTES;
    u32 b = column / 32 % 2;
    return ((float)nibble_at(record, row, b, column % 32) - 8.0f) * half_at(record + 512 + row % 8 * 8 + b * 4 + row / 8 * 2);
  }
};

struct Q4_1 {
  static constexpr Encoding ENCODING = Encoding::int8;
  static constexpr u32 COLUMNS = 64, BYTES = 640, TAIL = 0;
  static constexpr int AHEAD = 4;
  struct Record {
    vec16 q, dm;
  };
  static MEMBER Record load(const u8* record, int lane) { return Record{load_stream(record + lane * 16), load16(record + 512 + lane / 4 * 16)}; }
  template <int NT> static MEMBER void multiply(float (&acc)[NT][4], const Record& r, const Activations& x, u32 record) {
UNROLL
    for (u32 b = 0; b < 2; b++) {
      u32 near = r.q.w[2 * b], far = r.q.w[2 * b + 1];
      u32 a[4] = {low_nibbles(near), high_nibbles(near), low_nibbles(far), high_nibbles(far)};
      float d[2] = {half_low(r.dm.w[2 * b]), half_high(r.dm.w[2 * b])};
      float m[2] = {half_low(r.dm.w[2 * b + 1]), half_high(r.dm.w[2 * b + 1])};
      multiply_block<true, true>(acc, a, d, m, x, record * 2 + b);
    }
  }
  static MEMBER float element(const u8* tile, u32, u32 row, u32 column) {
    const u8* record = tile + column / 64 * BYTES;
    u32 b = column / 32 % 2;
    const u8* dm = record + 512 + row % 8 * 16 + b * 8 + row / 8 * 2;
    return fma((float)nibble_at(record, row, b, column % 32), half_at(dm), half_at(dm + 4));
  }
};

// d, dmin and eight pairs of 6-bit scales and minima of a row of a K block.
struct KScales {
  float d, dmin;
  u32 scale[2], minimum[2];

  static MEMBER KScales of(const vec16& row) {
    KScales k;
    k.d = half_low(row.w[0]);
    k.dmin = half_high(row.w[0]);
    k.scale[0] = row.w[1] & 0x3f3f3f3fu;
    k.minimum[0] = row.w[2] & 0x3f3f3f3fu;
    k.scale[1] = low_nibbles(row.w[3]) | (row.w[1] >> 2 & 0x30303030u);
    k.minimum[1] = high_nibbles(row.w[3]) | (row.w[2] >> 2 & 0x30303030u);
    return k;
  }
  MEMBER float scale_of(u32 block) const { return d * (float)byte_of(block < 4 ? scale[0] : scale[1], block % 4); }
  MEMBER float minimum_of(u32 block) const { return dmin * (float)byte_of(block < 4 ? minimum[0] : minimum[1], block % 4); }
};

// Q4_K and Q5_K.
template <bool Five> struct KBlock {
  static constexpr Encoding ENCODING = Encoding::int8;
  static constexpr u32 COLUMNS = 256, BYTES = Five ? 2816 : 2304, TAIL = 0;
  static constexpr int AHEAD = 1;
  struct Record {
    vec16 q[4], scales[2], fifth;
  };
  static MEMBER Record load(const u8* record, int lane) {
    Record r;
UNROLL
    for (int i = 0; i < 4; i++) r.q[i] = load_stream(record + i * 512 + lane * 16);
UNROLL
    for (int i = 0; i < 2; i++) r.scales[i] = load16(record + 2048 + (lane / 4 + i * 8) * 16);
    if (Five) r.fifth = load_stream(record + 2304 + lane * 16);
    return r;
  }
  // Blocks 2 pair and 2 pair + 1.
  template <int NT>
  static MEMBER void multiply_pair(float (&acc)[NT][4], const vec16& q, u32 fifth, const KScales (&rows)[2], u32 pair, const Activations& x, u32 record) {
UNROLL
    for (u32 b = 0; b < 2; b++) {
      u32 near = q.w[b * 2], far = q.w[b * 2 + 1];
      u32 a[4] = {low_nibbles(near), high_nibbles(near), low_nibbles(far), high_nibbles(far)};
UNROLL
      for (u32 i = 0; i < 4; i++)
        if (Five) a[i] |= (fifth >> (b * 4 + i) & 0x01010101u) << 4;
      float d[2] = {rows[0].scale_of(pair * 2 + b), rows[1].scale_of(pair * 2 + b)};
      float m[2] = {-rows[0].minimum_of(pair * 2 + b), -rows[1].minimum_of(pair * 2 + b)};
      multiply_block<true, true>(acc, a, d, m, x, record * 8 + pair * 2 + b);
    }
  }
  template <int NT> static MEMBER void multiply(float (&acc)[NT][4], const Record& r, const Activations& x, u32 record) {
    KScales rows[2] = {KScales::of(r.scales[0]), KScales::of(r.scales[1])};
UNROLL
    for (u32 pair = 0; pair < 4; pair++) multiply_pair(acc, r.q[pair], Five ? r.fifth.w[pair] : 0, rows, pair, x, record);
  }
  template <int NT> static MEMBER void stream(float (&acc)[NT][4], const u8* at, int lane, const Activations& x, u32 record) {
    KScales rows[2] = {KScales::of(load16(at + 2048 + lane / 4 * 16)), KScales::of(load16(at + 2048 + (lane / 4 + 8) * 16))};
    vec16 q = load_stream(at + lane * 16);
ROLL
    for (u32 pair = 0; pair < 4; pair++) {
      vec16 next = pair < 3 ? load_stream(at + (pair + 1) * 512 + lane * 16) : q;
      u32 fifth = Five ? load4(at + 2304 + lane * 16 + pair * 4) : 0;
      multiply_pair(acc, q, fifth, rows, pair, x, record);
      q = next;
    }
  }
  static MEMBER float element(const u8* tile, u32, u32 row, u32 column) {
    const u8* record = tile + column / 256 * BYTES;
    u32 b = column / 32 % 8, c = column % 32;
    u32 q = nibble_at(record + b / 2 * 512, row, b, c);
    if (Five) {
      u32 lane = row % 8 * 4 + c / 8, word = row / 8 + c / 4 % 2 * 2;
      q |= ((u32)record[2304 + lane * 16 + b / 2 * 4 + c % 4] >> (b % 2 * 4 + word) & 1u) << 4;
    }
    KScales k = KScales::of(load16(record + 2048 + row * 16));
    return fma((float)q, k.scale_of(b), -k.minimum_of(b));
  }
};
typedef KBlock<false> Q4_K;
typedef KBlock<true> Q5_K;

struct Q6_K {
  static constexpr Encoding ENCODING = Encoding::int8;
  static constexpr u32 COLUMNS = 256, BYTES = 3360, TAIL = 0;
  static constexpr int AHEAD = 1;
  struct Record {
    vec16 q[4], high[2], scales[2];
    float d[2];
  };
  static MEMBER Record load(const u8* record, int lane) {
    Record r;
UNROLL
    for (int i = 0; i < 4; i++) r.q[i] = load_stream(record + i * 512 + lane * 16);
UNROLL
    for (int i = 0; i < 2; i++) {
      r.high[i] = load_stream(record + 2048 + i * 512 + lane * 16);
      r.scales[i] = load16(record + 3072 + (lane / 4 + i * 8) * 16);
      r.d[i] = half_at(record + 3328 + (lane / 4 + i * 8) * 2);
    }
    return r;
  }
  // Blocks 2 pair and 2 pair + 1: `high` a word each, `scales` four of each row.
  template <int NT>
  static MEMBER void multiply_pair(float (&acc)[NT][4], const vec16& q, const vec8& high, const u32 (&scales)[2], const float (&row_d)[2], u32 pair,
                                   const Activations& x, u32 record) {
UNROLL
    for (u32 b = 0; b < 2; b++) {
      u32 a[2][2], block = record * 8 + pair * 2 + b;
      float d[2][2];
UNROLL
      for (u32 h = 0; h < 2; h++) {
        u32 low = q.w[b * 2 + h], upper = high.w[b];
        a[h][0] = less_32(low_nibbles(low) | (upper >> 4 * h & 0x03030303u) << 4);
        a[h][1] = less_32(high_nibbles(low) | (upper >> (4 * h + 2) & 0x03030303u) << 4);
UNROLL
        for (u32 i = 0; i < 2; i++) d[h][i] = row_d[i] * (float)(i8)byte_of(scales[i], b * 2 + h);
      }
UNROLL
      for (u32 n = 0; n < NT; n++) {
        Lane lane{x, n * 8};
        float2_t scale[2] = {lane.scale(0, block), lane.scale(1, block)};
UNROLL
        for (u32 h = 0; h < 2; h++) {
          i32 sum[4] = {SUM_START, SUM_START, SUM_START, SUM_START};
          mma_s8_half(sum, a[h][0], a[h][1], lane.four(block * 32 + h * 16 + (u32)lane_index() % 4 * 4));
UNROLL
          for (int i = 0; i < 4; i++) acc[n][i] = fma(d[h][i / 2] * scale[i % 2].x, sum_value(sum[i]), acc[n][i]);
        }
      }
    }
  }
  template <int NT> static MEMBER void multiply(float (&acc)[NT][4], const Record& r, const Activations& x, u32 record) {
UNROLL
    for (u32 pair = 0; pair < 4; pair++) {
      u32 scales[2] = {r.scales[0].w[pair], r.scales[1].w[pair]};
      const u32* high = r.high[pair / 2].w + pair % 2 * 2;
      multiply_pair(acc, r.q[pair], vec8{{high[0], high[1]}}, scales, r.d, pair, x, record);
    }
  }
  template <int NT> static MEMBER void stream(float (&acc)[NT][4], const u8* at, int lane, const Activations& x, u32 record) {
    u32 row = (u32)lane / 4;
    float d[2] = {half_at(at + 3328 + row * 2), half_at(at + 3328 + (row + 8) * 2)};
    vec16 q = load_stream(at + lane * 16);
ROLL
    for (u32 pair = 0; pair < 4; pair++) {
      vec16 next = pair < 3 ? load_stream(at + (pair + 1) * 512 + lane * 16) : q;
      vec8 high = load8(at + 2048 + pair / 2 * 512 + lane * 16 + pair % 2 * 8);
      u32 scales[2] = {load4(at + 3072 + row * 16 + pair * 4), load4(at + 3072 + (row + 8) * 16 + pair * 4)};
      multiply_pair(acc, q, high, scales, d, pair, x, record);
      q = next;
    }
  }
  static MEMBER float element(const u8* tile, u32, u32 row, u32 column) {
    const u8* record = tile + column / 256 * BYTES;
    u32 b = column / 32 % 8, h = column / 16 % 2, c = column % 16, lane = row % 8 * 4 + c / 4;
    u32 low = (u32)record[b / 2 * 512 + lane * 16 + (b % 2 * 2 + h) * 4 + c % 4] >> row / 8 * 4 & 15u;
    u32 high = (u32)record[2048 + b / 4 * 512 + lane * 16 + b % 4 * 4 + c % 4] >> (4 * h + row / 8 * 2) & 3u;
    float scale = half_at(record + 3328 + row * 2) * (float)(i8)record[3072 + row * 16 + b * 2 + h];
    return scale * ((float)(low | high << 4) - 32.0f);
  }
};

// A record from memory times 8 NT tokens. Long records go piece by piece: with many tokens in registers there is no room for all of one.
template <class F, int NT> DEV void multiply_from(float (&acc)[NT][4], const u8* at, int lane, const Activations& x, u32 record) {
  if constexpr (F::COLUMNS == 256)
    F::stream(acc, at, lane, x, record);
  else
    F::multiply(acc, F::load(at, lane), x, record);
}

// A sum of products in the model's units: `row` of `tile`, `token` of `x`.
template <class F> DEV float finish_sum(float sum, const Activations& x, const u8* tile, u32 records, u32 token, u32 row) {
  if (F::ENCODING == Encoding::f16) sum *= x.scales[(u64)token * x.blocks].x;
  // The fragments hold 1/256 of each fp8 number.
  if (F::TAIL) sum *= 256.0f * reinterpret_cast<const float*>(tile + (u64)records * F::BYTES)[row];
  return sum;
}
