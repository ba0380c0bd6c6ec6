// Runs a function one instruction at a time, so that a test can act as the other end, or another
// thread, at each moment in between: interleavings that usually depend on luck are all tried. Each
// stop is also a fence, so this says nothing about reordering by a processor.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <ucontext.h>

#include <cstdint>
#include <functional>

namespace rrdk::test {

class SingleStep {
 public:
  // `between` is called before each instruction of run(), with the number of instructions before
  // it. It may only do what a signal handler may do. Returns the number of instructions.
  static uint64_t through(const std::function<void()>& run,
                          const std::function<void(uint64_t)>& between) {
    struct sigaction ours = {};
    struct sigaction before = {};
    ours.sa_sigaction = on_trap;
    ours.sa_flags = SA_SIGINFO;
    EXPECT_EQ(::sigaction(SIGTRAP, &ours, &before), 0);
    between_ = &between;
    steps_ = 0;
    stepping_ = true;
    __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() | kTrap);
    run();
    stepping_ = false;
    __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() & ~kTrap);
    EXPECT_EQ(::sigaction(SIGTRAP, &before, nullptr), 0);
    return steps_;
  }

 private:
  static constexpr unsigned long long kTrap = 0x100;

  static void on_trap(int, siginfo_t*, void* context) {
    if (stepping_) {
      (*between_)(steps_++);
      return;
    }
    static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~static_cast<greg_t>(kTrap);
  }

  static inline const std::function<void(uint64_t)>* between_ = nullptr;
  static inline uint64_t steps_ = 0;
  static inline volatile bool stepping_ = false;
};

}  // namespace rrdk::test
