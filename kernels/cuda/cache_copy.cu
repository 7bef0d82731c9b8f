// The first tokens of pages to other pages, for prefixes that end inside a page: all layers, or pages to and from a staging buffer laid out like the pool.
//
//   copies [grid x]: from and to are pages, tokens 1..16; the bytes of other tokens of the page become zero, as in a page never used
//   grid: (copies, layers * kv_heads)     block: 256     moves the page's bytes twice
#include "cache.cuh"

struct CacheCopy {
  u32 from, to, tokens, unused;
};
struct CacheCopyParams {
  const u8* from;
  u8* to;
  const CacheCopy* copies;
  CacheLayout cache;  // layer 0
};
static_assert(sizeof(CacheCopyParams) == 48, "kernels/src/ops/cache.rs has the same");

// Token of a number of a part's keys or values.
DEV u32 token_of_key(u32 number) { return number % 256 / 8 / 4 + number / 2 % 2 * 8; }
DEV u32 token_of_value(u32 number) { return number / 8 % 4 * 4 + number / 4 % 2 * 2 + number % 2; }

template <class Number> DEV void copy_part(const u8* from, u8* to, u32 half, u32 tokens) {
  const Number* source = reinterpret_cast<const Number*>(from);
  Number* target = reinterpret_cast<Number*>(to);
  for (u32 i = thread_index(); i < 2 * half; i += 256) {
    u32 token = i < half ? token_of_key(i) : token_of_value(i - half);
    target[i] = token < tokens ? source[i] : (Number)0;
  }
}
KERNEL(cache_copy, CacheCopyParams, 256, 2) {
  wait_for_previous();
  let_next_start();
  CacheCopy copy = p.copies[block_x()];
  u64 offset = (u64)block_y() * p.cache.part_bytes();
  const u8* from = p.from + copy.from * p.cache.page_bytes + offset;
  u8* to = p.to + copy.to * p.cache.page_bytes + offset;
  u32 half = p.cache.head_dim * PAGE_TOKENS;
  if (!p.cache.fp8) {
    copy_part<u16>(from, to, half, copy.tokens);
    return;
  }
  copy_part<u8>(from, to, half, copy.tokens);
  const float* scales = reinterpret_cast<const float*>(from + 2 * half);
  if (thread_index() < 2 * PAGE_TOKENS)
    reinterpret_cast<float*>(to + 2 * half)[thread_index()] = thread_index() % PAGE_TOKENS < copy.tokens ? scales[thread_index()] : 0;
}
