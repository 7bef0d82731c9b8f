// The scheduler of the simulator: blocks one after another, the threads of a block as fibers that run until they wait for each other.
#include "machine.h"

#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <numeric>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
// Fibers are kept for the life of a thread, Rust's linker puts the library where it likes, and the stack for signals is ours.
extern "C" const char* __asan_default_options() { return "detect_leaks=0:verify_asan_link_order=0:use_sigaltstack=0"; }
#endif

namespace sim {

thread_local Position here;

namespace {

// What every target allows a block: 48 KiB of static and 99 KiB of shared memory in all (sm_86, sm_89, sm_120).
constexpr size_t MOST_STATIC = 48 << 10, MOST_SHARED = 99 << 10, MOST_SHARED_HOPPER = 227 << 10;

std::string place() {
  char text[160];
  snprintf(text, sizeof text, "%s, block (%u, %u, %u), thread %u", m.kernel_name, here.block[0], here.block[1], here.block[2], m.current);
  return text;
}

void leave() {
  Fiber* f = m.fibers[m.current];
  StackChange change(main_stack, main_stack_bytes, f->state == State::done);
  switch_context(f->context, m.scheduler);
  change.back_on_fiber();
}

}  // namespace

u32 draw(u32 bound) {
  m.random = m.random * 6364136223846793005ull + 1442695040888963407ull;
  return (u32)(m.random >> 33) % bound;
}

void wait(State state) {
  m.fibers[m.current]->state = state;
  leave();
}

namespace {

void release_barrier() {
  if (!m.alive || m.at_barrier < m.alive) return;
  m.at_barrier = 0;
  for (u32 i = 0; i < m.threads; i++)
    if (m.fibers[i]->state == State::at_barrier) m.fibers[i]->state = State::ready;
}

void fiber_main() {
  arrived_on_fiber();
  m.kernel->entry(m.params);
  // What was never waited for may land after the end.
  m.alive--;
  release_barrier();
  wait(State::done);
  abort();
}

// ---- a touch of a guard page becomes the launch's error

struct sigaction previous_action;

void describe_fault(const u8* address) {
  std::string touch = describe_touch(address);
  char text[80];
  snprintf(text, sizeof text, "touches address %p, which is no buffer", (const void*)address);
  m.error = place() + ": " + (touch.empty() ? text : touch);
}

void on_fault(int signal, siginfo_t* info, void* context) {
  if (m.running) {
    describe_fault(static_cast<const u8*>(info->si_addr));
    siglongjmp(m.escape, 1);
  }
  // Not ours: as if there were no handler.
  sigaction(SIGSEGV, &previous_action, nullptr);
  (void)signal;
  (void)context;
}

void catch_faults() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, &previous_action);
  });
  // A fiber that overruns its stack must still find one for the handler.
  static thread_local std::vector<u8> stack;
  if (stack.empty()) {
    stack.resize(64 << 10);
    stack_t alternate{};
    alternate.ss_sp = stack.data();
    alternate.ss_size = stack.size();
    sigaltstack(&alternate, nullptr);
  }
}

void start_block() {
  m.alive = m.threads;
  m.at_barrier = 0;
  m.static_bytes = 0;
  for (Site& site : m.sites) {
    memset(site.region.start, POISON, site.region.bytes);
    site.used = false;
  }
  if (m.dynamic.start) memset(m.dynamic.start, POISON, m.dynamic.bytes);
  for (Warp& warp : m.warps) warp.arrived = 0;
  for (Group& group : m.groups) group.arrived = 0;
  m.copies.clear();
  for (u32 i = 0; i < m.threads; i++) {
    Fiber* f = m.fibers[i];
    f->state = State::ready;
    f->open.clear();
    f->groups.clear();
    f->products.clear();
    f->committed = 0;
    forget_stack(f->stack);
    prepare_context(f->context, f->stack, fiber_main);
  }
}

void describe_deadlock() {
  u32 barrier = 0, meeting = 0, phase = 0, done = 0;
  for (u32 i = 0; i < m.threads; i++) {
    barrier += m.fibers[i]->state == State::at_barrier;
    meeting += m.fibers[i]->state == State::at_meeting;
    phase += m.fibers[i]->state == State::at_phase;
    done += m.fibers[i]->state == State::done;
  }
  char text[320];
  snprintf(text, sizeof text, "%s, block (%u, %u, %u): deadlock: %u threads at block_sync, %u at a warp operation, %u at barrier_wait, %u finished", m.kernel_name,
           here.block[0], here.block[1], here.block[2], barrier, meeting, phase, done);
  m.error = text;
}

// `order`: 0 forward, 1 reverse, 2 random.
bool run_block(int order) {
  start_block();
  std::vector<u32> turn(m.threads);
  for (u32 i = 0; i < m.threads; i++) turn[i] = order == 1 ? m.threads - 1 - i : i;
  while (m.alive) {
    if (order == 2)
      for (u32 i = m.threads - 1; i > 0; i--) std::swap(turn[i], turn[draw(i + 1)]);
    bool any = false;
    for (u32 i : turn) {
      Fiber& fiber = *m.fibers[i];
      if (fiber.state == State::at_phase && fiber.barrier->phase != fiber.parity) fiber.state = State::ready;
      if (fiber.state != State::ready) continue;
      any = true;
      m.current = i;
      here.thread = i;
      StackChange change(m.fibers[i]->stack, STACK);
      switch_context(m.scheduler, m.fibers[i]->context);
      change.back_on_main();
      if (!m.error.empty()) return false;
    }
    if (!any && !land_copy(order)) {
      describe_deadlock();
      return false;
    }
  }
  if (!m.copies.empty()) {
    m.error = std::string(m.kernel_name) + ": a block ends while copies to its shared memory are on their way";
    return false;
  }
  size_t most = strstr(m.kernel_name, "_sm90") ? MOST_SHARED_HOPPER : MOST_SHARED;
  if (m.static_bytes > MOST_STATIC || m.static_bytes + m.dynamic_bytes > most) {
    char text[320];
    snprintf(text, sizeof text, "%s: %zu bytes of static and %zu of dynamic shared memory; %zu and %zu in all are allowed", m.kernel_name, m.static_bytes,
             m.dynamic_bytes, MOST_STATIC, most);
    m.error = text;
    return false;
  }
  return true;
}

void run_blocks(int order) {
  const u32* grid = here.grid;
  u64 blocks = (u64)grid[0] * grid[1] * grid[2], stride = 1, first = 0;
  // Random order steps through the blocks with a stride that has no factor in common with their number.
  if (order == 2 && blocks > 2) {
    first = draw((u32)blocks);
    stride = 1 + draw((u32)blocks - 1);
    while (std::gcd(stride, blocks) != 1) stride++;
  }
  for (u64 i = 0; i < blocks; i++) {
    u64 b = order == 1 ? blocks - 1 - i : (first + i * stride) % blocks;
    here.block[0] = (u32)(b % grid[0]);
    here.block[1] = (u32)(b / grid[0] % grid[1]);
    here.block[2] = (u32)(b / ((u64)grid[0] * grid[1]));
    if (!run_block(order)) return;
  }
}

}  // namespace

Registered::Registered(const char* name, size_t params, u32 threads, Entry entry) { kernels()[name] = Kernel{params, threads, entry}; }

void fail(const char* format, ...) {
  char text[320];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  m.error = place() + ": " + text;
  leave();
  abort();
}

void check_aligned(const void* p, size_t alignment, const char* operation) {
  if (reinterpret_cast<uintptr_t>(p) % alignment) fail("%s of an address that is not a multiple of %zu", operation, alignment);
}

void sync_block() {
  m.at_barrier++;
  m.fibers[m.current]->state = State::at_barrier;
  release_barrier();
  if (m.fibers[m.current]->state == State::at_barrier) leave();
}

void meet(const char* operation, void (*finish)(u8*), const void* mine, size_t bytes, void* out, size_t out_bytes) {
  Warp& warp = m.warps[m.current / WARP];
  int lane = (int)(m.current % WARP);
  if (warp.arrived == 0) {
    warp.operation = operation;
    warp.finish = finish;
  } else if (warp.finish != finish) {
    fail("%s, while other lanes of the warp are at %s", operation, warp.operation);
  }
  u8* slots = warp.slots[warp.meeting % 2];
  if (bytes) memcpy(slots + lane * SLOT, mine, bytes);
  warp.arrived |= 1u << lane;
  if (warp.arrived == ALL_LANES) {
    finish(slots);
    warp.arrived = 0;
    warp.meeting++;
    for (u32 i = m.current / WARP * WARP; i < m.current / WARP * WARP + WARP; i++)
      if (m.fibers[i]->state == State::at_meeting) m.fibers[i]->state = State::ready;
  } else {
    wait(State::at_meeting);
  }
  if (out_bytes) memcpy(out, slots + lane * SLOT, out_bytes);
}

void* shared(const char* file, int line, const char* name, size_t bytes) {
  Site* found = nullptr;
  for (Site& site : m.sites)
    if (site.line == line && site.region.bytes == bytes && site.name == name && site.file == file) found = &site;
  if (!found) {
    m.sites.push_back(Site{file, name, line, map_region(bytes, std::string("shared array ") + name), false});
    found = &m.sites.back();
  }
  if (!found->used) m.static_bytes += round_up(bytes, 16);
  found->used = true;
  return found->region.start;
}

void* dynamic_shared() {
  if (!m.dynamic.start) fail("dynamic shared memory in a launch without any");
  return m.dynamic.start;
}

void copy_async(void* to, const void* from, bool there) {
  check_aligned(to, 16, "copy_async to");
  check_aligned(from, 16, "copy_async from");
  m.fibers[m.current]->open.push_back(Copy{to, from, there});
}

void copy_commit() {
  Fiber* f = m.fibers[m.current];
  f->groups.push_back(std::move(f->open));
  f->open.clear();
}

void copy_wait(int pending) {
  auto& groups = m.fibers[m.current]->groups;
  while ((int)groups.size() > pending) {
    for (const Copy& c : groups.front()) {
      if (c.there)
        memcpy(c.to, c.from, 16);
      else
        memset(c.to, 0, 16);
    }
    groups.erase(groups.begin());
  }
}

}  // namespace sim

using namespace sim;

extern "C" {

// Poisoned device memory of exactly this size; null if there is none.
void* sim_alloc(size_t bytes) { return map_region(bytes, "a buffer").start; }

// False if this is no buffer.
bool sim_free(void* start) { return free_region(start); }

// Null after success, else a message that is good until this thread's next launch.
const char* sim_launch(const char* name, const u32* grid, u32 threads, size_t shared_bytes, const void* params, size_t params_bytes, int order, u64 seed) {
  m.error.clear();
  auto found = kernels().find(name);
  if (found == kernels().end()) {
    m.error = std::string("no kernel is called ") + name;
    return m.error.c_str();
  }
  m.kernel_name = found->first.c_str();
  m.kernel = &found->second;
  char text[320];
  if (threads == 0 || threads > MOST_THREADS || threads % WARP || threads > m.kernel->threads) {
    snprintf(text, sizeof text, "%s: %u threads a block; whole warps up to %u are allowed", name, threads, m.kernel->threads);
    m.error = text;
    return m.error.c_str();
  }
  if (params_bytes != m.kernel->params) {
    snprintf(text, sizeof text, "%s: %zu bytes of parameters; it takes %zu", name, params_bytes, m.kernel->params);
    m.error = text;
    return m.error.c_str();
  }
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || grid[1] > 65535 || grid[2] > 65535) {
    snprintf(text, sizeof text, "%s: a grid of %u x %u x %u blocks", name, grid[0], grid[1], grid[2]);
    m.error = text;
    return m.error.c_str();
  }
  catch_faults();
  m.params = params;
  m.threads = threads;
  m.random = seed;
  while (m.fibers.size() < threads) {
    Fiber* f = new Fiber();
    f->stack = static_cast<u8*>(mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    m.fibers.push_back(f);
  }
  m.warps.resize(threads / WARP);
  m.groups.resize((threads + GROUP - 1) / GROUP);
  m.dynamic_bytes = shared_bytes;
  m.dynamic = shared_bytes ? map_region(shared_bytes, "dynamic shared memory") : Region{};
  here = Position{0, threads, {0, 0, 0}, {grid[0], grid[1], grid[2]}};
  m.running = true;
  if (!sigsetjmp(m.escape, 1)) {
    run_blocks(order);
  } else {
    // A fault left a fiber behind.
    StackChange change(main_stack, main_stack_bytes);
    change.back_on_main();
  }
  m.running = false;
  if (m.error.empty()) {
    std::string wrote = check_canaries();
    if (!wrote.empty()) m.error = std::string(m.kernel_name) + ": " + wrote;
  }
  if (m.dynamic.start) free_region(m.dynamic.start);
  m.dynamic = Region{};
  // Sites belong to one kernel.
  for (Site& site : m.sites) free_region(site.region.start);
  m.sites.clear();
  return m.error.empty() ? nullptr : m.error.c_str();
}
}
