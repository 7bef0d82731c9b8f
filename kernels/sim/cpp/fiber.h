// Threads of a block as fibers of one OS thread: each has a stack, and the change from one to another is a change of stack pointers.
#pragma once
#include <cstddef>
#include <cstring>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#include "device.cuh"

namespace sim {

constexpr size_t STACK = 256 << 10;

#if defined(__x86_64__)
struct Context {
  void* stack_pointer = nullptr;
};
extern "C" void sim_switch(void** save, void* to);
inline void switch_context(Context& from, Context& to) { sim_switch(&from.stack_pointer, to.stack_pointer); }
inline void prepare_context(Context& c, u8* stack, void (*entry)()) {
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
inline void switch_context(Context& from, Context& to) { swapcontext(&from.context, &to.context); }
inline void prepare_context(Context& c, u8* stack, void (*entry)()) {
  getcontext(&c.context);
  c.context.uc_stack.ss_sp = stack;
  c.context.uc_stack.ss_size = STACK;
  c.context.uc_link = nullptr;
  makecontext(&c.context, entry, 0);
}
#endif

// What the address sanitizer must know of a change of stacks; nothing without it.
#if defined(__SANITIZE_ADDRESS__)
inline thread_local const void* main_stack;
inline thread_local size_t main_stack_bytes;
struct StackChange {
  void* fake = nullptr;
  StackChange(const void* to, size_t bytes, bool for_good = false) { __sanitizer_start_switch_fiber(for_good ? nullptr : &fake, to, bytes); }
  void back_on_fiber() { __sanitizer_finish_switch_fiber(fake, &main_stack, &main_stack_bytes); }
  void back_on_main() { __sanitizer_finish_switch_fiber(fake, nullptr, nullptr); }
};
inline void arrived_on_fiber() { __sanitizer_finish_switch_fiber(nullptr, &main_stack, &main_stack_bytes); }
inline void forget_stack(u8* stack) { __asan_unpoison_memory_region(stack, STACK); }
#else
inline thread_local const void* main_stack;
inline thread_local size_t main_stack_bytes;
struct StackChange {
  StackChange(const void*, size_t, bool = false) {}
  void back_on_fiber() {}
  void back_on_main() {}
};
inline void arrived_on_fiber() {}
inline void forget_stack(u8*) {}
#endif

}  // namespace sim
