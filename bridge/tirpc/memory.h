// The process's memory for calls, and the part that the program has: items that were decoded in
// place, and memory that it asked for to send from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "rrdk/error.h"
#include "rrdk/memory.h"

namespace rrdk::tirpc {

// Starts EAL if it is not running, and makes the Memory, which lives until the process ends: at the
// first call. Any thread.
Result<Memory*> process_memory();

// Gives the program memory that lies in `buffer`, until the program gives it back.
std::byte* lend(Buffer buffer);
// Bytes in a call's arguments, which belong to the call; they are only marked.
void lend_arguments(const std::byte* data, uint32_t length);
// Memory for rrdk_tirpc_alloc(); null if exhausted.
std::byte* lend_new(size_t bytes);
// Returns false if it is not this library's memory, but malloc()'s.
bool give_back(void* memory);

// While it lives, memory in `back` is not given back by this thread: it was before, as that of
// arguments whose call has been answered.
class AlreadyBack {
 public:
  explicit AlreadyBack(std::span<const void* const> back) noexcept;
  ~AlreadyBack();
  AlreadyBack(const AlreadyBack&) = delete;
  AlreadyBack& operator=(const AlreadyBack&) = delete;
};

struct Registered {
  MemorySpan span;
  bool of_arguments;  // of a call that is not answered yet
};
// Returns nothing if these bytes are not registered.
std::optional<Registered> registered(const void* data, uint32_t length);

// The number of loans, for tests.
size_t lent();

}  // namespace rrdk::tirpc
