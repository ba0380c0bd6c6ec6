// From the core's side of submit() to the callback.
#include <utility>

#include "calls/caller_impl.h"
#include "rpc/reply_datapath.h"

namespace rrdk {

using calls::count;
using runtime::WorkItem;

void Caller::Impl::submit(Call::Impl& call) noexcept {
  call.outgoing.submitted_ticks = 0;
  if (core().here()) {
    start(call);
    return;
  }
  if (core().call_pool().stages().on()) [[unlikely]]
    call.outgoing.submitted_ticks = base::Tsc::ticks();
  call.run = [](WorkItem& item) {
    auto& queued = static_cast<Call::Impl&>(item);
    queued.caller.start(queued);
    queued.caller.queued_.fetch_sub(1, std::memory_order_release);
  };
  queued_.fetch_add(1, std::memory_order_relaxed);
  core().submit(call);
}

void Caller::Impl::start(Call::Impl& call) noexcept {
  count(calls_);
  if (call.status != CallStatus::kOk) [[unlikely]]
    return end_later(call, call.status);
  if (call.cancel_wanted.load(std::memory_order_relaxed) ||
      call.abandoned.load(std::memory_order_relaxed)) [[unlikely]]
    return end_later(call, CallStatus::kCancelled);

  call.outgoing.deadline_ns = 0;
  call.outgoing.resend = call.outgoing.sent = false;
  call.outgoing.repeatable = call.retransmit || call.procedure.load(std::memory_order_relaxed) == 0;
  call.timed = false;
  if (up_ == nullptr) [[unlikely]]
    return start_without_link(call);
  to_engine(call);
}

void Caller::Impl::start_without_link(Call::Impl& call) noexcept {
  end_unconnected(call);
}

void Caller::Impl::to_engine(Call::Impl& call) noexcept {
  call.phase = Call::Impl::Phase::kEngine;
  in_engine_.push_front(call);
  bool outer = std::exchange(deferring_, true);
  carrier_->engine().submit(call.outgoing);
  deferring_ = outer;
  core_.mark_dirty(*carrier_);
}

// A timeout counts from the tick that first sees the call: up to a millisecond long, and longer
// where more than 256 connections have calls in flight, but never short; no call reads the clock.
// New calls are at the front of the list.
void Caller::Impl::set_deadlines(uint64_t now_ns) noexcept {
  for (Call::Impl& call : in_engine_) {
    if (call.timed)
      break;
    call.timed = true;
    if (call.timeout_ms != 0)
      call.outgoing.deadline_ns = now_ns + uint64_t{call.timeout_ms} * 1'000'000;
  }
}

void Caller::Impl::cancel(Call::Impl& call) noexcept {
  call.cancel_wanted.store(true, std::memory_order_relaxed);
  if (core().here()) {
    stop(call);
    return;
  }
  call.cancelling.serial.store(call.serial.load(std::memory_order_relaxed),
                               std::memory_order_relaxed);
  if (call.cancelling.queued.exchange(true, std::memory_order_acq_rel))
    return;
  call.cancelling.run = [](WorkItem& item) {
    auto& cancelling = static_cast<Call::Impl::Cancel&>(item);
    Call::Impl& meant = *cancelling.call;
    Impl& caller = meant.caller;
    if (meant.serial.load(std::memory_order_relaxed) ==
        cancelling.serial.load(std::memory_order_relaxed))
      caller.stop(meant);
    cancelling.queued.store(false, std::memory_order_release);
    caller.queued_.fetch_sub(1, std::memory_order_release);
  };
  queued_.fetch_add(1, std::memory_order_relaxed);
  core().submit(call.cancelling);
}

void Caller::Impl::stop(Call::Impl& call) noexcept {
  if (call.phase == Call::Impl::Phase::kWaiting) {
    let_go(call);
    return end_later(call, CallStatus::kCancelled);
  }
  if (call.phase != Call::Impl::Phase::kEngine)
    return;  // it has ended, or start() will see what is wanted
  bool outer = std::exchange(deferring_, true);
  carrier_->engine().cancel(call.outgoing);
  deferring_ = outer;
  core_.mark_dirty(*carrier_);
}

void Caller::Impl::stop_all() noexcept {
  for (Call::Impl& call : in_engine_)
    stop(call);
}

CallStatus Caller::Impl::ended_status(Call::Impl& call) noexcept {
  CallStatus status = call.outgoing.status;
  if (status == CallStatus::kOk) [[likely]] {
    call.results = Decoder(call.outgoing.reply, call.outgoing.placed);
    if (!rpc::decode_reply(call.results, call.reply)) {
      carrier_->engine().count_refusal(Refusal::kBadReplyHeader);
      return CallStatus::kMalformedReply;
    }
    return rpc::call_status(call.reply);
  }
  bool unsent = status == CallStatus::kNoMemory || status == CallStatus::kTooLarge;
  if (unsent && call.outgoing.resend)
    return CallStatus::kConnectionLost;  // an earlier connection has carried it
  bool by_us = status == CallStatus::kCancelled || status == CallStatus::kConnectionLost;
  return by_us && shutting_down ? CallStatus::kShutdown : status;
}

void Caller::Impl::ended(xprt::OutgoingCall& outgoing) noexcept {
  auto& call = *static_cast<Call::Impl*>(outgoing.user);
  in_engine_.remove(call);
  if (outgoing.status == CallStatus::kConnectionLost && take_back(call)) [[unlikely]]
    return;
  CallStatus status = ended_status(call);
  if (deferring_) [[unlikely]]
    return end_later(call, status);
  call.status = status;
  deliver(call);
}

void Caller::Impl::end_later(Call::Impl& call, CallStatus status) noexcept {
  bool closing = shutting_down && status == CallStatus::kConnectionLost;
  call.status = closing ? CallStatus::kShutdown : status;
  call.phase = Call::Impl::Phase::kEnded;
  call.run = [](WorkItem& item) {
    auto& ended = static_cast<Call::Impl&>(item);
    Impl& caller = ended.caller;
    caller.deliver(ended);
    caller.queued_.fetch_sub(1, std::memory_order_release);
  };
  queued_.fetch_add(1, std::memory_order_relaxed);
  core().defer(call);
}

void Caller::Impl::note_called(xprt::StageRecord& stages, const Call::Impl& call) const noexcept {
  stages.stamp(Stage::kCalled);
  const Binding& binding = *call.binding.load(std::memory_order_relaxed);
  stages.name(carrier_ != nullptr ? carrier_->id() : 0, binding.program, binding.version,
              call.procedure.load(std::memory_order_relaxed));
}

// The one place where a call ends. The callback may begin it again, or destroy its Call: the Impl
// is there until we have returned. Others may come as soon as `delivering` is false. Memory that is
// not lent to the peer any more (xprt/given_up.cc) is released first.
void Caller::Impl::deliver(Call::Impl& call) noexcept {
  if (auto* released = std::exchange(call.outgoing.released, nullptr)) [[unlikely]]
    released(call.outgoing.released_argument);
  count(call.status == CallStatus::kOk ? ended_ok_ : ended_error_);
  if (call.status == CallStatus::kTimeout)
    count(timeouts_);
  call.phase = Call::Impl::Phase::kIdle;
  Completion completion = call.completion.load(std::memory_order_relaxed);
  void* argument = call.argument;
  xprt::StageRecord* const stages = std::exchange(call.outgoing.stages, nullptr);
  if (stages != nullptr) [[unlikely]] {
    note_called(*stages, call);
    call.stamped = stages;
  }
  call.delivering.store(true, std::memory_order_relaxed);
  call.in_flight.store(false, std::memory_order_release);
  completion(call.owner, argument);
  if (stages != nullptr) [[unlikely]] {
    call.stamped = nullptr;
    stages->stamp(Stage::kEnded);
    stages->complete();
  }
  call.delivering.store(false, std::memory_order_release);
}

}  // namespace rrdk
