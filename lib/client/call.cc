// A Call's life, and waiting for its end.
#include <thread>

#include "client/call_impl.h"
#include "client/client_impl.h"
#include "runtime/poll_core.h"

namespace rrdk {

Call::Call(ClientConnection& connection)
    : impl_(std::make_unique<Impl>(*this, connection.impl())) {}

Call::~Call() {
  // A cancel() that came too late for its call may be on its way still. Then the connection is
  // there too, since it waits for it.
  if (impl_->cancelling.queued.load(std::memory_order_acquire)) {
    impl_->connection.runtime.wait_until(
        [this] { return !impl_->cancelling.queued.load(std::memory_order_acquire); });
  }
}

CallStatus Call::submit_and_wait() {
  std::atomic<bool> ended = false;
  submit(
      [](Call&, void* argument) {
        auto* flag = static_cast<std::atomic<bool>*>(argument);
        // Not release: notify_one() looks for waiters, and must not do so before the store.
        flag->store(true, std::memory_order_seq_cst);
        flag->notify_one();
      },
      &ended);
  Runtime::Impl& runtime = impl_->connection.runtime;
  if (runtime.embedded_here()) {
    while (!ended.load(std::memory_order_acquire)) {
      if (runtime.poll_here() == 0 && runtime.options.idle != IdlePolicy::kBusy)
        std::this_thread::yield();
    }
  }
  ended.wait(false, std::memory_order_acquire);
  return status();
}

}  // namespace rrdk
