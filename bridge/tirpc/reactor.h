// A Runtime that the waiting thread polls: one for each CLIENT, and one for all SVCXPRTs.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "rrdk/runtime.h"

namespace rrdk::tirpc {

class Reactor {
 public:
  // Any thread.
  static Result<std::unique_ptr<Reactor>> create();
  explicit Reactor(std::unique_ptr<Runtime> runtime) noexcept : runtime_(std::move(runtime)) {}

  Runtime& runtime() noexcept { return *runtime_; }
  uint32_t poll() { return runtime_->poll(); }
  // Polls until `done()`, and sleeps where that takes long.
  template <typename Done>
  void wait_until(Done&& done) {
    while (!done()) {
      if (poll() != 0)
        found_something();
      else if (is_tired())
        sleep();
    }
  }

  // After a pass that found something.
  void found_something() noexcept { idle_since_ns_ = 0; }
  // After one that found nothing. True: that has been so for long, and wake_fd() is armed, to be
  // slept on.
  bool is_tired();

 private:
  void sleep();

  std::unique_ptr<Runtime> runtime_;
  uint64_t idle_since_ns_ = 0;  // 0: the last pass found something
};

}  // namespace rrdk::tirpc
