#include "runtime/faults.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "fabric/device.h"
#include "rrdk/faults.h"
#include "runtime/link.h"

namespace rrdk::runtime {

using fabric::Completion;
using fabric::Op;
using fabric::WcStatus;

namespace {

WcStatus status_of(WorkError error) {
  switch (error) {
    case WorkError::kLocalLength:
      return WcStatus::kLocalLength;
    case WorkError::kLocalProtection:
      return WcStatus::kLocalProtection;
    case WorkError::kRemoteInvalid:
      return WcStatus::kRemoteInvalid;
    case WorkError::kRemoteAccess:
      return WcStatus::kRemoteAccess;
    case WorkError::kRemoteOperation:
      return WcStatus::kRemoteOperation;
    case WorkError::kRnrExceeded:
      return WcStatus::kRnrExceeded;
    case WorkError::kPeerLost:
      break;
  }
  return WcStatus::kPeerLost;
}

}  // namespace

void Faults::set(const FaultPlan& plan) {
  // Seeds far apart: the kinds must not fail in step.
  uint64_t seed = plan.seed << 8;
  auto kind = [&](Kind& to, const FaultRate& rate, WcStatus status) {
    seed += uint64_t{1} << 52;
    to.dice.set(seed, rate.rate, rate.every);
    to.status.store(status, std::memory_order_relaxed);
  };
  kind(send, plan.send, status_of(plan.send_error));
  kind(read, plan.read, status_of(plan.read_error));
  kind(write, plan.write, status_of(plan.write_error));
  kind(receive, plan.receive, status_of(plan.receive_error));
  kind(rnr, plan.rnr, WcStatus::kRnrExceeded);
  kind(bind, plan.bind, WcStatus::kLocalProtection);
  delay.set(seed + (uint64_t{1} << 52), plan.delay.rate, plan.delay.every);
  delay_ns.store(uint64_t{plan.delay_us} * 1000, std::memory_order_relaxed);
  on.store(true);
}

void Faults::clear() {
  on.store(false);
  for (Kind* kind : {&send, &read, &write, &receive, &rnr, &bind})
    kind->dice.off();
  delay.off();
}

FaultCounts Faults::counts() const {
  return {.send = send.dice.hits(),
          .read = read.dice.hits(),
          .write = write.dice.hits(),
          .receive = receive.dice.hits(),
          .rnr = rnr.dice.hits(),
          .bind = bind.dice.hits(),
          .delay = delay.hits(),
          .no_buffers = 0,
          .registration = 0};
}

CoreFaults::Broken* CoreFaults::find(const void* link) {
  auto found = std::ranges::find(broken_, link, &Broken::link);
  return found == broken_.end() ? nullptr : &*found;
}

void CoreFaults::forget(const Link& link) {
  std::erase_if(broken_, [&](const Broken& broken) { return broken.link == &link; });
}

bool CoreFaults::holds_up(const void* owner) const {
  return std::ranges::any_of(held_, [&](const Held& h) { return h.completion.owner == owner; });
}

// The plan is off: as soon as nothing of it is left, the core does without us. A plan that is set
// meanwhile engages us again, before or after.
void CoreFaults::disengage(Faults& faults) {
  if (!held_.empty() || !broken_.empty())
    return;
  faults_.store(nullptr);
  if (faults.on.load())
    faults_.store(&faults);
}

std::span<const Completion> CoreFaults::filter(std::span<const Completion> batch) {
  Faults& faults = *faults_.load(std::memory_order_relaxed);
  bool on = faults.on.load();
  uint64_t now = base::Tsc::now_ns();
  out_.clear();
  // In order: those of one connection are due in the order in which they came.
  std::erase_if(held_, [&](const Held& held) {
    bool due = !on || held.due_ns <= now;
    if (due)
      out_.push_back(held.completion);
    return due;
  });
  for (Completion completion : batch) {
    fail(faults, completion);
    bool late = faults.delay.roll();
    if (late || holds_up(completion.owner))
      held_.push_back({completion, now + faults.delay_ns.load(std::memory_order_relaxed)});
    else
      out_.push_back(completion);
  }
  if (!on)
    disengage(faults);
  return out_;
}

// A Receive fails as it completes; a request that failed as it was posted gets its status here.
void CoreFaults::fail(Faults& faults, Completion& completion) {
  Broken* broken = find(completion.owner);
  if (completion.status != WcStatus::kSuccess) {
    if (broken != nullptr && broken->status != WcStatus::kSuccess && completion.op == broken->op &&
        completion.wr_id == broken->wr_id)
      completion.status = std::exchange(broken->status, WcStatus::kSuccess);
    return;
  }
  if (completion.op != Op::kReceive)
    return;
  if (broken == nullptr && faults.receive.dice.roll()) {
    auto& link = *static_cast<Link*>(completion.owner);
    link.break_queue_pair();
    broken_.push_back({&link, 0, Op::kReceive, WcStatus::kSuccess, true});
    completion.status = faults.receive.status.load(std::memory_order_relaxed);
  } else if (broken != nullptr && broken->receives) {
    completion.status = WcStatus::kFlushed;
  }
  if (completion.status != WcStatus::kSuccess) {
    completion.byte_length = 0;
    completion.has_invalidated = false;
  }
}

// Of which kind the request fails; null: it does not.
Faults::Kind* CoreFaults::failing(Faults& faults, Op op) {
  auto roll = [](Faults::Kind& kind) { return kind.dice.roll() ? &kind : nullptr; };
  switch (op) {
    case Op::kSend:
    case Op::kSendInvalidate: {
      Faults::Kind* kind = roll(faults.send);
      return kind != nullptr ? kind : roll(faults.rnr);
    }
    case Op::kRead:
      return roll(faults.read);
    case Op::kWrite:
      return roll(faults.write);
    case Op::kBindKey:
      return roll(faults.bind);
    case Op::kInvalidateKey:
    case Op::kReceive:
      break;
  }
  return nullptr;
}

// Those before the one that fails are carried out. It and those after it are posted to a queue pair
// in error, which flushes them: memory is given back when the fabric says so, as ever.
uint32_t CoreFaults::post(Link& link, fabric::QueuePair& queue_pair,
                          std::span<const fabric::SendWr> wrs) {
  Faults& faults = *faults_.load(std::memory_order_relaxed);
  bool tried = find(&link) == nullptr && faults.on.load();
  for (size_t i = 0; tried && i < wrs.size(); ++i) {
    Faults::Kind* kind = failing(faults, wrs[i].op);
    if (kind == nullptr)
      continue;
    uint32_t taken = queue_pair.post_send(wrs.first(i));
    queue_pair.disconnect();
    broken_.push_back(
        {&link, wrs[i].wr_id, wrs[i].op, kind->status.load(std::memory_order_relaxed), false});
    if (taken < i)  // what comes behind is flushed
      return taken + queue_pair.post_send(wrs.subspan(taken));
    // That one reports its failure, even if it would have been silent.
    fabric::SendWr failed = wrs[i];
    failed.signaled = true;
    failed.quiet = failed.copied = false;
    if (queue_pair.post_send({&failed, 1}) == 0)
      return taken;
    return taken + 1 + queue_pair.post_send(wrs.subspan(i + 1));
  }
  return queue_pair.post_send(wrs);
}

}  // namespace rrdk::runtime
