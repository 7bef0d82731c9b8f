#include "memory.h"

#include <cstdio>
#include <cstring>
#include <mutex>
#include <sys/mman.h>
#include <vector>

namespace sim {

namespace {
constexpr u8 CANARY = 0xa5;
std::mutex regions_lock;
std::vector<Region> regions;
}  // namespace

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

bool free_region(void* start) {
  std::lock_guard<std::mutex> guard(regions_lock);
  for (size_t i = 0; i < regions.size(); i++) {
    if (regions[i].start != start) continue;
    munmap(regions[i].base, regions[i].whole);
    regions.erase(regions.begin() + (long)i);
    return true;
  }
  return false;
}

std::string describe_touch(const u8* address) {
  std::unique_lock<std::mutex> guard(regions_lock, std::try_to_lock);
  if (!guard.owns_lock()) return {};
  for (const Region& r : regions) {
    if (address < r.base || address >= r.base + r.whole) continue;
    char text[200];
    if (address < r.start)
      snprintf(text, sizeof text, "touches %zu bytes before %s of %zu bytes", (size_t)(r.start - address), r.what.c_str(), r.bytes);
    else
      snprintf(text, sizeof text, "touches byte %zu of %s of %zu bytes", (size_t)(address - r.start), r.what.c_str(), r.bytes);
    return text;
  }
  return {};
}

std::string check_canaries() {
  std::string found;
  std::lock_guard<std::mutex> guard(regions_lock);
  for (const Region& r : regions)
    for (size_t i = 0; i < r.slack(); i++)
      if (r.start[r.bytes + i] != CANARY) {
        char text[200];
        snprintf(text, sizeof text, "wrote byte %zu of %s of %zu bytes", r.bytes + i, r.what.c_str(), r.bytes);
        found = text;
        r.start[r.bytes + i] = CANARY;
      }
  return found;
}

}  // namespace sim
