// Counting what the steady state must not do: allocate. Every allocation of this process, by
// whatever library, passes through here.
#pragma once

#include <atomic>
#include <cstdint>

namespace rrdk::testrpc {

// False in builds whose sanitizer owns malloc: there nothing is counted.
bool counts_allocations();

// Since the process started.
uint64_t allocations() noexcept;

// From now on counts here: a place that another process can see.
void count_allocations_in(std::atomic<uint64_t>& counter);

}  // namespace rrdk::testrpc
