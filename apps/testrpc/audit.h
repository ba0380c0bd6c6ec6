// Counts allocations, which the steady state must not make, and preemptions, which it must not
// suffer.
#pragma once

#include <atomic>
#include <cstdint>

namespace rrdk::testrpc {

// Counts every allocation of this process from now on.
void count_allocations() noexcept;
// The same, in a counter that another process can read.
void count_allocations_in(std::atomic<uint64_t>& counter) noexcept;

// The number of allocations since then.
uint64_t allocations() noexcept;

// Returns how many times the kernel took the CPU away from the calling thread while it was
// runnable.
uint64_t preemptions() noexcept;

}  // namespace rrdk::testrpc
