// The process's memory for calls, and what of it the program has: items that were decoded in place,
// and what it asked for to send from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "rrdk/error.h"
#include "rrdk/memory.h"

namespace rrdk::tirpc {

// Starts EAL if nobody has, and makes the Memory: at the first call, and for good. Any thread.
Result<Memory*> process_memory();

// Gives the program memory that lies in `buffer`, until it gives that back.
std::byte* lend(Buffer buffer);
// Bytes in a call's arguments, which the call has; they are only marked.
void lend_arguments(const std::byte* data, uint32_t length);
// Of rrdk_tirpc_alloc(); null when exhausted.
std::byte* lend_new(size_t bytes);
// False: it is none of ours, so malloc()'s.
bool give_back(void* memory);

struct Registered {
  MemorySpan span;
  bool of_arguments;  // of the call that is being answered
};
// None: these bytes are not registered.
std::optional<Registered> registered(const void* data, uint32_t length);

// How many of them are out, for tests.
size_t lent();

}  // namespace rrdk::tirpc
