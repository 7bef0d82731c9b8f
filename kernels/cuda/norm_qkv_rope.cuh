// What the versions of norm_qkv_rope take, and where a result goes: see norm_qkv_rope.cu.
#pragma once
#include "cache.cuh"
#include "product.cuh"

struct QkvParams {
  ProductParams product;
  const float2_t* turns;
  const u32* positions;
  const u32* slots;
  u16* q;
  u8* pool;
  float* kv;  // [tokens][2][kv_heads][head_dim], only for fp8
  CacheLayout cache;
  u32 heads, first_head;  // of the run, counted over Q, K and V
  u32 rope_dim;
  float query_scale;
};
static_assert(sizeof(QkvParams) == 168, "kernels/src/ops/product.rs has the same");

DEV void store_turned(const QkvParams& p, u32 tile, u32 row, u32 token, float low, float high) {
  u32 tiles = p.cache.head_dim / TILE_ROWS, half = p.cache.head_dim / 2;
  u32 head = p.first_head + tile / tiles, dim = tile % tiles * 8 + row, kv_heads = p.cache.kv_heads;
  // The rotated dimensions come first in a head: with rope_dim < head_dim the pairs past half of rope_dim do not turn.
  if (head < p.heads + kv_heads && dim < p.rope_dim / 2) {
    float2_t turn = p.turns[(u64)p.positions[token] * (p.rope_dim / 2) + dim];
    float x = low, y = high;
    low = x * turn.x - y * turn.y;
    high = y * turn.x + x * turn.y;
  }
  if (head < p.heads) {
    u16* q = p.q + ((u64)token * p.heads + head) * p.cache.head_dim;
    q[dim] = (u16)pack_bf16(low * p.query_scale, 0);
    q[dim + half] = (u16)pack_bf16(high * p.query_scale, 0);
    return;
  }
  bool value = head >= p.heads + kv_heads;
  u32 kv_head = head - p.heads - (value ? kv_heads : 0);
  if (p.cache.fp8) {
    float* out = p.kv + (((u64)token * 2 + value) * kv_heads + kv_head) * p.cache.head_dim;
    out[dim] = low;
    out[dim + half] = high;
    return;
  }
  u32 slot = p.slots[token], place = slot % PAGE_TOKENS;
  u16* part = reinterpret_cast<u16*>(p.pool + p.cache.part(slot / PAGE_TOKENS, kv_head) + (value ? p.cache.half_part() : 0));
  part[value ? value_place(place, dim) : key_place(place, dim)] = (u16)pack_bf16(low, 0);
  part[value ? value_place(place, dim + half) : key_place(place, dim + half)] = (u16)pack_bf16(high, 0);
}
