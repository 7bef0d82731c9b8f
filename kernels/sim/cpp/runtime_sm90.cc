// What Hopper does beside the threads: copies by the memory engine, barriers with phases, products of warp groups.
#include "machine.h"

namespace sim {

namespace {

PhaseBarrier& phase_barrier(u64* barrier) {
  check_aligned(barrier, 8, "a barrier");
  return *reinterpret_cast<PhaseBarrier*>(barrier);
}

void complete_phase(PhaseBarrier& b) {
  if (b.pending || b.bytes) return;
  b.phase ^= 1;
  b.pending = b.count;
}

}  // namespace

bool land_copy(int order) {
  if (m.copies.empty()) return false;
  size_t i = order == 2 ? draw((u32)m.copies.size()) : 0;
  BlockCopy copy = m.copies[i];
  m.copies.erase(m.copies.begin() + (long)i);
  memcpy(copy.to, copy.from, copy.bytes);
  copy.barrier->bytes -= copy.bytes;
  complete_phase(*copy.barrier);
  return true;
}

namespace {
// All products that the group has committed, in the order in which they were asked for. Sums go in ascending order, as in the simulated mma_bf16.
void do_products(u32 first) {
  static thread_local float a[64][16], b[16][128];
  const Fiber& leader = *m.fibers[first];
  for (size_t p = 0; p < leader.committed; p++) {
    const GroupProduct& lead = leader.products[p];
    for (int k = 0; k < 16; k++)
      for (int column = 0; column < 128; column++) {
        u16 bits;
        memcpy(&bits, lead.b + column / 8 * 256 + k / 8 * 128 + column % 8 * 16 + k % 8 * 2, 2);
        b[k][column] = lead.number(bits);
      }
    for (u32 i = 0; i < GROUP; i++) {
      const Fiber& fiber = *m.fibers[first + i];
      if (fiber.committed != leader.committed || fiber.products[p].b != lead.b || fiber.products[p].number != lead.number)
        fail("the threads of a warp group ask for different products");
      u32 row = i / 32 * 16 + i % 32 / 4, t = i % 4;
      for (u32 e = 0; e < 2; e++)
        for (u32 r = 0; r < 4; r++) a[row + r % 2 * 8][2 * t + r / 2 * 8 + e] = lead.number((u16)(fiber.products[p].a[r] >> 16 * e));
    }
    for (u32 i = 0; i < GROUP; i++) {
      const GroupProduct& own = m.fibers[first + i]->products[p];
      for (u32 n = 0; n < 16; n++)
        for (u32 e = 0; e < 4; e++) {
          u32 row = i / 32 * 16 + i % 32 / 4 + e / 2 * 8, column = n * 8 + i % 4 * 2 + e % 2;
          float sum = own.add ? own.c[n * 4 + e] : 0;
          for (int k = 0; k < 16; k++) sum += a[row][k] * b[k][column];
          own.c[n * 4 + e] = sum;
        }
    }
  }
}
}  // namespace

void barrier_init(u64* barrier, u32 count) { phase_barrier(barrier) = PhaseBarrier{(u16)count, (u16)count, 0, 0}; }

void barrier_arrive(u64* barrier, u32 bytes) {
  PhaseBarrier& b = phase_barrier(barrier);
  if (b.pending == 0) fail("more arrivals at a barrier than it counts");
  b.bytes += bytes;
  b.pending--;
  complete_phase(b);
}

void barrier_wait(u64* barrier, u32 parity) {
  PhaseBarrier& b = phase_barrier(barrier);
  if (b.phase != parity) return;
  Fiber* f = m.fibers[m.current];
  f->barrier = &b;
  f->parity = parity;
  wait(State::at_phase);
}

void copy_block(void* to, const void* from, u32 bytes, u64* barrier) {
  check_aligned(to, 16, "copy_block to");
  check_aligned(from, 16, "copy_block from");
  if (bytes % 16 || bytes == 0) fail("copy_block of %u bytes, which are no multiple of 16", bytes);
  m.copies.push_back(BlockCopy{to, from, bytes, &phase_barrier(barrier)});
}

void group_product(const GroupProduct& product) {
  if (m.current / GROUP * GROUP + GROUP > m.threads) fail("a product of a warp group that is not whole");
  m.fibers[m.current]->products.push_back(product);
}

void group_commit() { m.fibers[m.current]->committed = m.fibers[m.current]->products.size(); }

void group_wait() {
  u32 group = m.current / GROUP, first = group * GROUP;
  if (++m.groups[group].arrived < GROUP) {
    wait(State::at_meeting);
    return;
  }
  m.groups[group].arrived = 0;
  do_products(first);
  for (u32 i = first; i < first + GROUP; i++) {
    Fiber& f = *m.fibers[i];
    f.products.erase(f.products.begin(), f.products.begin() + (long)f.committed);
    f.committed = 0;
    if (f.state == State::at_meeting) f.state = State::ready;
  }
}

}  // namespace sim
