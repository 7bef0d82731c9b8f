// Memory that ends at a page nobody may touch: device buffers and shared memory.
#pragma once
#include <cstddef>
#include <string>

#include "device.cuh"

namespace sim {

constexpr size_t PAGE = 4096;
constexpr u8 POISON = 0xff;

inline size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

struct Region {
  u8* base;
  size_t whole;
  u8* start;
  size_t bytes;
  std::string what;

  // Bytes behind the region that only alignment put there.
  size_t slack() const { return round_up(bytes, 16) - bytes; }
};

// Poisoned memory of exactly this size; its start is null if there is none.
Region map_region(size_t bytes, std::string what);
// False if no region starts there.
bool free_region(void* start);
// Says what an address beside a region would have touched; empty if it is beside none, or if another thread holds the list.
std::string describe_touch(const u8* address);
// Says which region had bytes behind its end written, and mends them; empty if none.
std::string check_canaries();

}  // namespace sim
