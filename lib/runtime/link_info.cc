// What a link says of itself to whoever asks.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/sanitizer.h"
#include "rrdk/refusals.h"
#include "runtime/link.h"
#include "runtime/poll_core.h"

namespace rrdk::runtime {

// The connecting end knows who it is when the connection is there: a name has several addresses.
void Link::meet_peer() {
  Peer peer = queue_pair_->peer();
  std::lock_guard lock(engine_mutex_);
  peer_ = std::move(peer);
  since_ns_ = base::Tsc::now_ns();
}

// Calls and what becomes of them go forward, whichever end this is. The core counts on meanwhile,
// and may have counted an answer but not yet its call.
ConnectionInfo Link::info() const {
  const xprt::Counters c = counters();
  const uint64_t now = base::Tsc::now_ns();
  ConnectionInfo info = {.id = id_, .peer = {}, .core = core_.index()};
  info.calls = accepting_ ? c.calls_received : c.calls_sent;
  // Of calls that were given up, too.
  const uint64_t replies = accepting_ ? c.replies_sent : c.replies_received + c.answered_late;
  info.replies = std::min(replies, info.calls);
  info.transport_errors = accepting_ ? c.errors_sent : c.errors_received;
  info.bytes_read = c.bytes_read;
  info.bytes_written = c.bytes_written;
  info.protocol_breaches = breaches(c.refusals);
  std::lock_guard lock(engine_mutex_);
  info.peer = peer_;
  info.age_ns = since_ns_ == 0 ? 0 : now - std::min(now, since_ns_);
  if (engine_ != nullptr) {
    base::TsanIgnore counting;
    const xprt::Agreed agreed = engine_->agreed();
    info.version = agreed.version;
    info.send_size = agreed.send_size;
    info.receive_size = agreed.receive_size;
    info.credits = agreed.credits;
    info.in_progress = agreed.in_progress;
  }
  const uint64_t active = std::max(active_ns_.load(std::memory_order_relaxed), since_ns_);
  info.idle_ns = info.in_progress != 0 || active == 0 ? 0 : now - std::min(now, active);
  return info;
}

}  // namespace rrdk::runtime
