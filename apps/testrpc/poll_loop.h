// Polls an embedded Runtime from the calling thread, with an idle policy.
#pragma once

#include <cstdint>
#include <memory>

#include "rrdk/runtime.h"
#include "rrdk/timer.h"

namespace rrdk::testrpc {

class PollLoop {
 public:
  PollLoop(Runtime& runtime, IdlePolicy policy);

  // Makes one pass. If it finds no work, idles as the policy says. A sleep ends when something
  // arrives, at `wake_ns` on Runtime::now_ns()'s clock, or after 10 ms.
  void step(uint64_t wake_ns = UINT64_MAX);

 private:
  void sleep(uint64_t until_ns);

  Runtime& runtime_;
  IdlePolicy policy_;
  std::unique_ptr<Timer> alarm_;  // only ends a sleep
  uint64_t idle_since_ = 0;       // 0: the last pass found work
};

}  // namespace rrdk::testrpc
