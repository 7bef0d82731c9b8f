// The scheduler of the simulator: blocks one after another, the threads of a block as fibers that run until they wait for each other.
#include "device.cuh"

#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <sys/mman.h>
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
// Fibers are kept for the life of a thread, and Rust's linker puts the library where it likes.
extern "C" const char* __asan_default_options() { return "detect_leaks=0:verify_asan_link_order=0"; }
#endif

namespace sim {

thread_local Position here;

namespace {

constexpr size_t PAGE = 4096;
constexpr size_t STACK = 256 << 10;
constexpr u32 MOST_THREADS = 1024;
// What every target allows a block: 48 KiB of static and 99 KiB of shared memory in all (sm_86, sm_89, sm_120).
constexpr size_t MOST_STATIC = 48 << 10, MOST_SHARED = 99 << 10;
constexpr u8 POISON = 0xff, CANARY = 0xa5;

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

// ---- memory that ends at a page nobody may touch

struct Region {
  u8* base;
  size_t whole;
  u8* start;
  size_t bytes;
  std::string what;

  // Bytes behind the region that only alignment put there.
  size_t slack() const { return round_up(bytes, 16) - bytes; }
};
std::mutex regions_lock;
std::vector<Region> regions;

Region map_region(size_t bytes, std::string what) {
  size_t usable = round_up(round_up(bytes, 16) + 1, PAGE);
  Region r;
  r.whole = usable + 2 * PAGE;
  r.base = static_cast<u8*>(mmap(nullptr, r.whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (r.base == MAP_FAILED || mprotect(r.base + PAGE, usable, PROT_READ | PROT_WRITE)) return Region{nullptr, 0, nullptr, 0, {}};
  r.start = r.base + PAGE + usable - round_up(bytes, 16);
  r.bytes = bytes;
  r.what = std::move(what);
  memset(r.base + PAGE, POISON, usable);
  memset(r.start + bytes, CANARY, r.slack());
  std::lock_guard<std::mutex> guard(regions_lock);
  regions.push_back(r);
  return r;
}

// ---- fibers

#if defined(__x86_64__)
struct Context {
  void* stack_pointer = nullptr;
};
extern "C" void sim_switch(void** save, void* to);
asm(R"(
.text
.globl sim_switch
.type sim_switch, @function
sim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size sim_switch, .-sim_switch
)");
void switch_context(Context& from, Context& to) { sim_switch(&from.stack_pointer, to.stack_pointer); }
void prepare_context(Context& c, u8* stack, void (*entry)()) {
  // As after a call: six saved registers, the entry as return address, and a return address of its own that is never used. It stands 8 bytes off a
  // multiple of 16, as the calling convention wants.
  void** top = reinterpret_cast<void**>(stack + STACK) - 1;
  *top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; i++) *--top = nullptr;
  c.stack_pointer = top;
}
#else
struct Context {
  ucontext_t context;
};
void switch_context(Context& from, Context& to) { swapcontext(&from.context, &to.context); }
void prepare_context(Context& c, u8* stack, void (*entry)()) {
  getcontext(&c.context);
  c.context.uc_stack.ss_sp = stack;
  c.context.uc_stack.ss_size = STACK;
  c.context.uc_link = nullptr;
  makecontext(&c.context, entry, 0);
}
#endif

// What the address sanitizer must know of a change of stacks; nothing without it.
#if defined(__SANITIZE_ADDRESS__)
thread_local const void* main_stack;
thread_local size_t main_stack_bytes;
struct StackChange {
  void* fake = nullptr;
  StackChange(const void* to, size_t bytes, bool for_good = false) { __sanitizer_start_switch_fiber(for_good ? nullptr : &fake, to, bytes); }
  void back_on_fiber() { __sanitizer_finish_switch_fiber(fake, &main_stack, &main_stack_bytes); }
  void back_on_main() { __sanitizer_finish_switch_fiber(fake, nullptr, nullptr); }
};
void arrived_on_fiber() { __sanitizer_finish_switch_fiber(nullptr, &main_stack, &main_stack_bytes); }
void forget_stack(u8* stack) { __asan_unpoison_memory_region(stack, STACK); }
#else
thread_local const void* main_stack;
thread_local size_t main_stack_bytes;
struct StackChange {
  StackChange(const void*, size_t, bool = false) {}
  void back_on_fiber() {}
  void back_on_main() {}
};
void arrived_on_fiber() {}
void forget_stack(u8*) {}
#endif

enum class State { ready, at_barrier, at_meeting, done };

struct Copy {
  void* to;
  const void* from;
  bool there;
};
struct Fiber {
  Context context;
  u8* stack;
  State state;
  std::vector<Copy> open;
  std::vector<std::vector<Copy>> groups;
};
// A warp's meeting point. Two sets of slots: a lane may come to the next meeting before another has read the last.
struct Warp {
  const char* operation;
  void (*finish)(u8*);
  u32 arrived;
  u32 meeting;
  alignas(16) u8 slots[2][WARP * SLOT];
};
struct Site {
  std::string file, name;
  int line;
  Region region;
  bool used;
};
struct Kernel {
  size_t params;
  u32 threads;
  Entry entry;
};
std::map<std::string, Kernel>& kernels() {
  static std::map<std::string, Kernel> all;
  return all;
}

struct Machine {
  std::vector<Fiber*> fibers;
  std::vector<Warp> warps;
  std::vector<Site> sites;
  Region dynamic{};
  Context scheduler;
  const char* kernel_name;
  const Kernel* kernel;
  const void* params;
  u32 threads, alive, at_barrier, current;
  size_t static_bytes, dynamic_bytes;
  u64 random;
  bool running = false;
  std::string error;
  sigjmp_buf escape;
};
thread_local Machine m;

u32 draw(u32 bound) {
  m.random = m.random * 6364136223846793005ull + 1442695040888963407ull;
  return (u32)(m.random >> 33) % bound;
}

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

void wait(State state) {
  m.fibers[m.current]->state = state;
  leave();
}

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

void on_fault(int signal, siginfo_t* info, void* context) {
  u8* address = static_cast<u8*>(info->si_addr);
  if (m.running && regions_lock.try_lock()) {
    for (const Region& r : regions) {
      if (address < r.base || address >= r.base + r.whole) continue;
      char text[320];
      if (address < r.start)
        snprintf(text, sizeof text, "%s: touches %zu bytes before %s of %zu bytes", place().c_str(), (size_t)(r.start - address), r.what.c_str(), r.bytes);
      else
        snprintf(text, sizeof text, "%s: touches byte %zu of %s of %zu bytes", place().c_str(), (size_t)(address - r.start), r.what.c_str(), r.bytes);
      m.error = text;
      regions_lock.unlock();
      siglongjmp(m.escape, 1);
    }
    regions_lock.unlock();
    char text[320];
    snprintf(text, sizeof text, "%s: touches address %p, which is no buffer", place().c_str(), (void*)address);
    m.error = text;
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
  for (u32 i = 0; i < m.threads; i++) {
    Fiber* f = m.fibers[i];
    f->state = State::ready;
    f->open.clear();
    f->groups.clear();
    forget_stack(f->stack);
    prepare_context(f->context, f->stack, fiber_main);
  }
}

void describe_deadlock() {
  u32 barrier = 0, meeting = 0, done = 0;
  for (u32 i = 0; i < m.threads; i++) {
    barrier += m.fibers[i]->state == State::at_barrier;
    meeting += m.fibers[i]->state == State::at_meeting;
    done += m.fibers[i]->state == State::done;
  }
  char text[320];
  snprintf(text, sizeof text, "%s, block (%u, %u, %u): deadlock: %u threads at block_sync, %u at a warp operation, %u finished", m.kernel_name, here.block[0],
           here.block[1], here.block[2], barrier, meeting, done);
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
      if (m.fibers[i]->state != State::ready) continue;
      any = true;
      m.current = i;
      here.thread = i;
      StackChange change(m.fibers[i]->stack, STACK);
      switch_context(m.scheduler, m.fibers[i]->context);
      change.back_on_main();
      if (!m.error.empty()) return false;
    }
    if (!any) {
      describe_deadlock();
      return false;
    }
  }
  if (m.static_bytes > MOST_STATIC || m.static_bytes + m.dynamic_bytes > MOST_SHARED) {
    char text[320];
    snprintf(text, sizeof text, "%s: %zu bytes of static and %zu of dynamic shared memory; %zu and %zu in all are allowed", m.kernel_name, m.static_bytes,
             m.dynamic_bytes, MOST_STATIC, MOST_SHARED);
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

void check_canaries() {
  std::lock_guard<std::mutex> guard(regions_lock);
  for (const Region& r : regions)
    for (size_t i = 0; i < r.slack(); i++)
      if (r.start[r.bytes + i] != CANARY) {
        char text[320];
        snprintf(text, sizeof text, "%s: wrote byte %zu of %s of %zu bytes", m.kernel_name, r.bytes + i, r.what.c_str(), r.bytes);
        m.error = text;
        r.start[r.bytes + i] = CANARY;
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
bool sim_free(void* start) {
  std::lock_guard<std::mutex> guard(regions_lock);
  for (size_t i = 0; i < regions.size(); i++) {
    if (regions[i].start != start) continue;
    munmap(regions[i].base, regions[i].whole);
    regions.erase(regions.begin() + (long)i);
    return true;
  }
  return false;
}

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
  if (m.error.empty()) check_canaries();
  if (m.dynamic.start) sim_free(m.dynamic.start);
  m.dynamic = Region{};
  // Sites belong to one kernel.
  for (Site& site : m.sites) sim_free(site.region.start);
  m.sites.clear();
  return m.error.empty() ? nullptr : m.error.c_str();
}
}
