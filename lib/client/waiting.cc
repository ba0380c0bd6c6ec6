// Calls that have no connection: those that were lost with theirs and are sent again on the next
// one, and those that were submitted meanwhile.
#include "base/clock.h"
#include "client/client_impl.h"

namespace rrdk {

using calls::count;

namespace {

constexpr uint64_t kNsPerMs = 1'000'000;

}  // namespace

// Whether a call that lost its connection waits for the next one. On the same connection a call
// that was not answered is never repeated: it would need a second credit while the first is held
// (RFC 5666 and RFC 8166 section 3.3), and a reliable connection loses nothing while it lives.
// Recovery is for the loss and re-establishment of all of it (RFC 5666 section 8).
bool ClientConnection::Impl::carries(const Call::Impl& call) const noexcept {
  if (!will_reconnect())
    return false;
  bool maybe_seen = call.outgoing.sent || call.outgoing.resend;
  return call.retransmit || !maybe_seen;
}

void ClientConnection::Impl::start_without_link(Call::Impl& call) noexcept {
  if (draining_.load(std::memory_order_relaxed))
    end_later(call, CallStatus::kShutdown);
  else
    waits_for_link() ? keep_waiting(call) : end_unconnected(call);
}

bool ClientConnection::Impl::take_back(Call::Impl& call) noexcept {
  if (!carries(call))
    return false;
  keep_waiting(call);
  return true;
}

void ClientConnection::Impl::let_go(Call::Impl& call) noexcept {
  (call.outgoing.resend ? again_ : unsent_).remove(call);
}

void ClientConnection::Impl::keep_waiting(Call::Impl& call) noexcept {
  // It may have been cancelled when it could only be waited for.
  if (call.cancel_wanted.load(std::memory_order_relaxed) ||
      call.abandoned.load(std::memory_order_relaxed))
    return end_later(call, CallStatus::kCancelled);
  call.outgoing.resend |= call.outgoing.sent;
  call.outgoing.sent = false;
  call.phase = Call::Impl::Phase::kWaiting;
  (call.outgoing.resend ? again_ : unsent_).push(call);
  if (!waiting_timer_.running())
    arm_waiting_timer(core().now());
}

// Nothing ticks for them while there is no link.
void ClientConnection::Impl::arm_waiting_timer(uint64_t now_ns) noexcept {
  start_timer<&Impl::look_at_waiting>(waiting_timer_, now_ns + kNsPerMs);
}

void ClientConnection::Impl::look_at_waiting() {
  const uint64_t now_ns = core().now();
  look_at(again_, now_ns);
  look_at(unsent_, now_ns);
  if (!again_.empty() || !unsent_.empty())
    arm_waiting_timer(now_ns);
}

void ClientConnection::Impl::look_at(CallList& list, uint64_t now_ns) noexcept {
  for (Call::Impl& call : list) {
    if (!call.timed) {
      call.timed = true;
      if (call.timeout_ms != 0)
        call.outgoing.deadline_ns = now_ns + call.timeout_ms * kNsPerMs;
    } else if (call.outgoing.deadline_ns != 0 && call.outgoing.deadline_ns <= now_ns) {
      list.remove(call);
      end_later(call, CallStatus::kTimeout);
    }
  }
}

// A connection is there. Calls that are sent again go first: their slots are free then, and new
// calls find them taken.
void ClientConnection::Impl::release_waiting() noexcept {
  core().timers().cancel(waiting_timer_);
  // All have deadlines from here on: on_link_tick() looks no further than the first that has one.
  look_at(again_, base::Tsc::now_ns());
  look_at(unsent_, base::Tsc::now_ns());
  for (CallList* list : {&again_, &unsent_}) {
    while (!list->empty()) {
      Call::Impl& call = list->pop();
      count(carried_over_);
      // The device may not have been known when it was submitted.
      reaches(call) ? to_engine(call) : end_later(call, CallStatus::kInvalidMemory);
    }
  }
}

void ClientConnection::Impl::end_waiting(CallStatus status) noexcept {
  core().timers().cancel(waiting_timer_);
  for (CallList* list : {&again_, &unsent_}) {
    while (!list->empty())
      end_later(list->pop(), status);
  }
}

}  // namespace rrdk
