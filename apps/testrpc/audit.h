// Counting what the steady state must not do, allocate, and what must not be done to it.
#pragma once

#include <atomic>
#include <cstdint>

namespace rrdk::testrpc {

// From now on every allocation of this process counts.
void count_allocations() noexcept;
// And does so here: a place that another process can see.
void count_allocations_in(std::atomic<uint64_t>& counter) noexcept;

// Since then.
uint64_t allocations() noexcept;

// Times that the kernel took the CPU away from the calling thread while it had something to run.
uint64_t preemptions() noexcept;

}  // namespace rrdk::testrpc
