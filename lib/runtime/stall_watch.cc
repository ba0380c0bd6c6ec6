#include "runtime/stall_watch.h"

#include "base/clock.h"
#include "base/log.h"
#include "runtime/poll_core.h"

namespace rrdk::runtime {

// A core that sleeps still makes a pass each second.
void StallWatch::look() noexcept {
  uint64_t now = base::Tsc::now_ns();
  if (said_ || now < due_ns_)
    return;
  uint64_t polls = core_.stats().polls;
  if (due_ns_ != 0 && polls == polls_) {
    said_ = true;
    base::log_warning("%s %s waits for poll core %u, which nobody has polled for 5 seconds", what_,
                      whom_.c_str(), core_.index());
  }
  polls_ = polls;
  due_ns_ = now + kStallNs;
}

}  // namespace rrdk::runtime
