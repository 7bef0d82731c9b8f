// From rows of logits to tokens, on the device: penalties, mask, temperature, top-k, top-p, min-p, draw; log probabilities of the token and the likeliest.
//
//   logits [rows][vocab] f32 (changed by penalties meanwhile, the same afterwards); rows [grid x]; masks: bit t of word t / 32 set: token t may come
//   seen: distinct tokens of a row's history with the times each was generated; saved: as long as `seen`
//   grid: rows     block: 1024     moves a row from L2 once for greedy, 2 to 12 times for a draw
//   idea: nothing is sorted. Tokens are ordered by logit, ties to the lowest token, and what top-k and top-p keep is a beginning of that order: its last
//     logit is found by radix, eight bits at a time, over counts (top-k) or weights (top-p). Weights are whole numbers of 2^-40, so their sums are exact
//     whatever the order of atomics, and a draw is a function of the row, the parameters, the seed and the position alone.
#include "device.cuh"

constexpr u32 SAMPLE_THREADS = 1024, MOST_LOGPROBS = 20;

struct SeenToken {
  u32 token, times;
};
struct SampleRow {
  u64 seed, position;
  u32 row;
  u32 mask;  // where its words begin; NO_MASK
  u32 seen, seen_count;
  u32 top_k, top_logprobs;
  float temperature, top_p, min_p;  // 0: greedy; 1: off; 0: off
  float repetition, presence, frequency;
};
static_assert(sizeof(SampleRow) == 64, "kernels/src/ops/sample.rs has the same");
constexpr u32 NO_MASK = 0xffffffffu;

enum SampleStatus : u32 { SAMPLE_OK, SAMPLE_NAN, SAMPLE_INFINITE, SAMPLE_NOTHING_FINITE, SAMPLE_NOTHING_ALLOWED };
struct SampleResult {
  u32 token;
  float logprob;
  u32 status, count;
  u32 top_tokens[MOST_LOGPROBS];
  float top_logprobs[MOST_LOGPROBS];
};
static_assert(sizeof(SampleResult) == 176, "kernels/src/ops/sample.rs has the same");

struct SampleParams {
  float* logits;
  const SampleRow* rows;
  const u32* masks;
  const SeenToken* seen;
  float* saved;
  SampleResult* results;
  u32 vocab, unused;
};
static_assert(sizeof(SampleParams) == 56, "kernels/src/ops/sample.rs has the same");

// Unsigned numbers in the order of the floats.
DEV u32 order_of(float x) { return as_bits(x) & 0x80000000u ? ~as_bits(x) : as_bits(x) | 0x80000000u; }
DEV float of_order(u32 key) { return as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key); }

// A beginning of the order: tokens whose key is above, and of equal ones those up to a token.
struct Bound {
  u32 key, token;
  MEMBER bool keeps(u32 k, u32 t) const { return k > key || (k == key && t <= token); }
};
DEV Bound tighter(Bound a, Bound b) {
  if (a.key != b.key) return a.key > b.key ? a : b;
  return a.token < b.token ? a : b;
}

// The block's shared memory.
struct SampleShared {
  u64 best, total, wanted, above;
  u64 sums[256];
  u64 parts[SAMPLE_THREADS];
  u32 flags, prefix, ties, keep, token, gathered;
  u32 counts[SAMPLE_THREADS / WARP];
  float floats[SAMPLE_THREADS / WARP];
};

// The logits that take part.
struct Candidates {
  const float* logits;
  const u32* mask;
  u32 vocab;
  Bound bound;

  MEMBER bool has(u32 token) const {
    float x = logits[token];
    return x > NEG_INFINITY && (!mask || (mask[token / 32] >> token % 32 & 1)) && bound.keeps(order_of(x), token);
  }
};

// 2^40 e^((x - most) / temperature), a whole number.
struct Weigher {
  float most, factor;
  MEMBER float weight(float x) const { return exp2_approx((x - most) * factor); }
  MEMBER u64 fixed(float x) const { return (u64)(weight(x) * 1099511627776.0f); }
};

// (key, lowest token) of the largest candidate; 0 without any.
DEV u64 largest(const Candidates& c, SampleShared* s) {
  block_sync();
  if (thread_index() == 0) s->best = 0;
  block_sync();
  u64 best = 0;
  for (u32 t = thread_index(); t < c.vocab; t += SAMPLE_THREADS) {
    u64 key = (u64)order_of(c.logits[t]) << 32 | (0xffffffffu - t);
    if (key > best && c.has(t)) best = key;
  }
  if (best) atomic_max(&s->best, best);
  block_sync();
  return s->best;
}

// The `keep`-th lowest candidate whose key is `key`.
DEV u32 tie_token(const Candidates& c, u32 key, u32 keep, SampleShared* s) {
  u32 before = 0;
  block_sync();
  if (thread_index() == 0) s->token = c.vocab;
  for (u32 base = 0; base < c.vocab; base += SAMPLE_THREADS) {
    u32 t = base + thread_index();
    bool tie = t < c.vocab && order_of(c.logits[t]) == key && c.has(t);
    u32 votes = ballot(tie);
    if (lane_index() == 0) s->counts[warp_index()] = count_bits(votes);
    block_sync();
    u32 rank = before + count_bits(votes & ((2u << lane_index()) - 1));
    u32 all = 0;
    for (u32 w = 0; w < SAMPLE_THREADS / WARP; w++) {
      if (w < (u32)warp_index()) rank += s->counts[w];
      all += s->counts[w];
    }
    if (tie && rank == keep) s->token = t;
    before += all;
    block_sync();
    if (before >= keep) break;
  }
  return s->token;
}

// The beginning that holds `wanted` in all, where each candidate counts `amount`: 1 (top-k) or its weight (top-p). All, if there is not as much.
template <class Amount> DEV Bound beginning(const Candidates& c, u64 wanted, Amount amount, SampleShared* s) {
  block_sync();
  if (thread_index() == 0) {
    s->prefix = 0;
    s->above = 0;
  }
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (u32 i = thread_index(); i < 256; i += SAMPLE_THREADS) s->sums[i] = 0;
    if (thread_index() == 0) s->ties = 0;
    block_sync();
    u32 prefix = s->prefix;
    for (u32 t = thread_index(); t < c.vocab; t += SAMPLE_THREADS) {
      u32 key = order_of(c.logits[t]);
      if ((u64)key >> (shift + 8) != prefix || !c.has(t)) continue;
      atomic_add(&s->sums[key >> shift & 255], amount(c.logits[t]));
    }
    block_sync();
    if (thread_index() == 0) {
      u32 digit = 255;
      while (digit > 0 && s->above + s->sums[digit] < wanted) s->above += s->sums[digit--];
      s->prefix = prefix << 8 | digit;
      s->total = s->sums[digit];
    }
    block_sync();
  }
  u32 key = s->prefix;
  // All with this key count the same. Without enough of them, or where they count nothing, all stay.
  u64 each = amount(of_order(key)), needed = wanted - s->above;
  if (each == 0 || s->total <= needed) return Bound{key, 0xffffffffu};
  return Bound{key, tie_token(c, key, (u32)((needed + each - 1) / each), s)};
}

// Philox 4x32-10 (Salmon et al. 2011), the counter being the position: evenly in [0, 1), 53 bits.
DEV double uniform_at(u64 seed, u64 position) {
  u32 c[4] = {(u32)position, (u32)(position >> 32), 0, 0}, k0 = (u32)seed, k1 = (u32)(seed >> 32);
  for (int i = 0; i < 10; i++) {
    u64 low = (u64)0xd2511f53u * c[0], high = (u64)0xcd9e8d57u * c[2];
    u32 next[4] = {(u32)(high >> 32) ^ c[1] ^ k0, (u32)high, (u32)(low >> 32) ^ c[3] ^ k1, (u32)low};
    for (int j = 0; j < 4; j++) c[j] = next[j];
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  u64 bits = (u64)c[0] << 32 | c[1];
  return (double)(bits >> 11) * 1.1102230246251565e-16;
}

// The candidate at `place` of the total weight, tokens ascending; those lighter than `least` are out.
DEV u32 token_at(const Candidates& c, const Weigher& w, float least, double place, SampleShared* s) {
  u32 each = (c.vocab + SAMPLE_THREADS - 1) / SAMPLE_THREADS, first = thread_index() * each;
  auto amount = [&](u32 t) -> u64 { return t < c.vocab && c.has(t) && w.weight(c.logits[t]) >= least ? w.fixed(c.logits[t]) : 0; };
  u64 sum = 0;
  for (u32 t = first; t < first + each; t++) sum += amount(t);
  block_sync();
  s->parts[thread_index()] = sum;
  block_sync();
  if (thread_index() == 0) {
    u64 total = 0;
    for (u32 i = 0; i < SAMPLE_THREADS; i++) total += s->parts[i];
    u64 target = (u64)(place * (double)total), before = 0;
    if (target >= total) target = total - 1;
    u32 part = 0;
    while (before + s->parts[part] <= target) before += s->parts[part++];
    u32 t = part * each;
    while (before + amount(t) <= target) before += amount(t++);
    s->token = t;
  }
  block_sync();
  return s->token;
}

KERNEL(sample, SampleParams, 1024, 1) {
  SHARED(SampleShared, s, 1);
  SHARED(SampleRow, shared_row, 1);
  wait_for_previous();
  let_next_start();
  if (thread_index() == 0) {
    shared_row[0] = p.rows[block_x()];
    s->flags = 0;
  }
  block_sync();
  const SampleRow& row = shared_row[0];
  float* logits = p.logits + (u64)row.row * p.vocab;
  SampleResult* result = p.results + block_x();
  Candidates raw{logits, nullptr, p.vocab, Bound{0, 0xffffffffu}};

  // What the row says as a whole, before anything is changed.
  u32 flags = 0;
  for (u32 t = thread_index(); t < p.vocab; t += SAMPLE_THREADS) flags |= logits[t] != logits[t] ? 2 : logits[t] == -NEG_INFINITY ? 1 : 0;
  if (flags) atomic_max(&s->flags, flags);
  u64 best = largest(raw, s);
  u32 status = s->flags >= 2 ? SAMPLE_NAN : s->flags ? SAMPLE_INFINITE : best == 0 ? SAMPLE_NOTHING_FINITE : SAMPLE_OK;
  if (status != SAMPLE_OK) {
    if (thread_index() == 0) *result = SampleResult{0, 0, status, 0, {}, {}};
    return;
  }
  constexpr float LOG2_E = 1.44269504f, LN_2 = 0.69314718f;
  float most = of_order((u32)(best >> 32)), sum = 0;
  for (u32 t = thread_index(); t < p.vocab; t += SAMPLE_THREADS) sum += exp2_approx((logits[t] - most) * LOG2_E);
  sum = warp_sum(sum);
  if (lane_index() == 0) s->floats[warp_index()] = sum;
  block_sync();
  sum = 0;
  for (u32 w = 0; w < SAMPLE_THREADS / WARP; w++) sum += s->floats[w];
  float log_sum = log2_approx(sum) * LN_2;

  // The likeliest: gathered in any order, then put in theirs.
  u32 count = (u32)smaller((int)row.top_logprobs, (int)MOST_LOGPROBS);
  if (count > 0) {
    Candidates top = raw;
    top.bound = beginning(raw, count, [](float) -> u64 { return 1; }, s);
    if (thread_index() == 0) s->gathered = 0;
    block_sync();
    for (u32 t = thread_index(); t < p.vocab; t += SAMPLE_THREADS)
      if (top.has(t)) s->parts[atomic_add(&s->gathered, 1)] = (u64)order_of(logits[t]) << 32 | (0xffffffffu - t);
    block_sync();
    count = s->gathered;
    if (thread_index() < count) {
      u64 own = s->parts[thread_index()];
      u32 place = 0;
      for (u32 i = 0; i < count; i++) place += s->parts[i] > own;
      result->top_tokens[place] = 0xffffffffu - (u32)own;
      result->top_logprobs[place] = of_order((u32)(own >> 32)) - most - log_sum;
    }
    block_sync();
  }

  // Penalties (Keskar et al. 2019, CTRL, section 4.1; and those of OpenAI's API), each token once.
  for (u32 i = thread_index(); i < row.seen_count; i += SAMPLE_THREADS) {
    SeenToken seen = p.seen[row.seen + i];
    float x = logits[seen.token];
    p.saved[row.seen + i] = x;
    x = x > 0 ? divide(x, row.repetition) : x * row.repetition;
    if (seen.times > 0) x -= row.presence + row.frequency * (float)seen.times;
    logits[seen.token] = x;
  }
  Candidates c{logits, row.mask == NO_MASK ? nullptr : p.masks + row.mask, p.vocab, Bound{0, 0xffffffffu}};
  best = largest(c, s);
  u32 token = 0xffffffffu - (u32)best;
  if (best == 0) {
    status = SAMPLE_NOTHING_ALLOWED;
  } else if (row.temperature > 0) {
    Weigher w{of_order((u32)(best >> 32)), divide(LOG2_E, row.temperature)};
    if (row.top_k > 0) c.bound = beginning(c, row.top_k, [](float) -> u64 { return 1; }, s);
    if (row.top_p < 1.0f) {
      block_sync();
      if (thread_index() == 0) s->wanted = 0;
      block_sync();
      u64 sum_fixed = 0;
      for (u32 t = thread_index(); t < p.vocab; t += SAMPLE_THREADS)
        if (c.has(t)) sum_fixed += w.fixed(logits[t]);
      if (sum_fixed) atomic_add(&s->wanted, sum_fixed);
      block_sync();
      u64 wanted = (u64)((double)row.top_p * (double)s->wanted);
      if (wanted == 0) wanted = 1;
      c.bound = tighter(c.bound, beginning(c, wanted, [&](float x) { return w.fixed(x); }, s));
    }
    token = token_at(c, w, row.min_p, uniform_at(row.seed, row.position), s);
  }
  block_sync();
  for (u32 i = thread_index(); i < row.seen_count; i += SAMPLE_THREADS) logits[p.seen[row.seen + i].token] = p.saved[row.seen + i];
  block_sync();
  if (thread_index() == 0) {
    result->token = status == SAMPLE_OK ? token : 0;
    result->logprob = status == SAMPLE_OK ? logits[token] - most - log_sum : 0;
    result->status = status;
    result->count = count;
  }
}
