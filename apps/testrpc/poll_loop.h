// Polling an embedded Runtime from a thread of our own, with an idle policy.
#pragma once

#include <cstdint>

#include "rrdk/runtime.h"

namespace rrdk::testrpc {

class PollLoop {
 public:
  PollLoop(Runtime& runtime, IdlePolicy policy) : runtime_(runtime), policy_(policy) {}

  // One pass; when it finds nothing to do, what the policy says. Sleeps at most until `wake_ns` on
  // Runtime::now_ns()'s clock, and never longer than 10 ms.
  void step(uint64_t wake_ns = UINT64_MAX);

 private:
  void sleep(uint64_t now, uint64_t wake_ns);

  Runtime& runtime_;
  IdlePolicy policy_;
  uint64_t idle_since_ = 0;  // 0: the last pass found work
};

}  // namespace rrdk::testrpc
