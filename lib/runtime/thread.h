// Threads of the runtime, and who polls a core.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "rrdk/error.h"

namespace rrdk::runtime {

// Starts a thread with a name (15 characters), on `cpu` (-1: on any), known to EAL, and waits until
// it runs. Errors: kInvalidArgument (no such CPU, or not ours), kSystem.
Result<std::thread> start_thread(const std::string& name, int cpu, std::function<void()> body);

// Starts a thread on any CPU that EAL does not know, and does not wait until it runs. Errors:
// kSystem.
Result<std::thread> start_plain_thread(const std::string& name, std::function<void()> body);

// Stands for a thread, so that another can tell whether it has ended, and what it is at.
struct ThreadToken {
  std::atomic<bool> running = true;
  std::atomic<const void*> pass = nullptr;  // the poll core that it polls, the innermost if nested
};

// The calling thread's. One for its whole life.
const std::shared_ptr<ThreadToken>& this_thread_token();

// Its address alone, quickly; null before this_thread_token() was called on the thread.
inline thread_local constinit ThreadToken* this_thread = nullptr;

}  // namespace rrdk::runtime
