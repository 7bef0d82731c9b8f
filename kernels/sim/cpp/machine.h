// The state of a launch: one machine for each OS thread, with the fibers of the block that is running.
#pragma once
#include <csetjmp>
#include <map>
#include <string>
#include <vector>

#include "device_sm90.cuh"
#include "fiber.h"
#include "memory.h"

namespace sim {

constexpr u32 MOST_THREADS = 1024, GROUP = 128;

enum class State { ready, at_barrier, at_meeting, at_phase, done };

struct Copy {
  void* to;
  const void* from;
  bool there;
};
// A barrier of device_sm90.cuh, in its eight bytes.
struct PhaseBarrier {
  u16 count, pending;
  u32 phase : 1, bytes : 31;
};
static_assert(sizeof(PhaseBarrier) == 8);
struct BlockCopy {
  void* to;
  const void* from;
  u32 bytes;
  PhaseBarrier* barrier;
};
struct Fiber {
  Context context;
  u8* stack;
  State state;
  // What it waits for in at_phase.
  const PhaseBarrier* barrier;
  u32 parity;
  std::vector<GroupProduct> products;
  size_t committed;
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
// The same for the four warps of a group.
struct Group {
  u32 arrived;
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
inline std::map<std::string, Kernel>& kernels() {
  static std::map<std::string, Kernel> all;
  return all;
}

struct Machine {
  std::vector<Fiber*> fibers;
  std::vector<Warp> warps;
  std::vector<Group> groups;
  std::vector<BlockCopy> copies;
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
inline thread_local Machine m;

// At random below a bound.
u32 draw(u32 bound);
// Lets others run until the state of this thread is ready again.
void wait(State state);

// runtime_sm90.cc: a copy by the memory engine lands, the oldest or in random order (2) any. False if there is none.
bool land_copy(int order);

}  // namespace sim
