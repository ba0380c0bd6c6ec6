// A responder whose client has its calls run once, through the duplicate request cache of the
// server: what ServerLink does, without a server.
#include <algorithm>

#include "session.h"

namespace rrdk::sim {

namespace {

server::Fingerprint print_of(const Shape& shape, uint32_t xid) {
  return {.call = Random(uint64_t{shape.serial} << 32 | xid).next(), .principal = {}};
}

}  // namespace

// Returns true if the handler is to run.
bool End::begin_once(engine::ServedCall& call, Shape& shape) {
  server::ReplayCache& replays = *session_.around().replays;
  uint64_t now = context_.schedule.now();
  if (lane_ == nullptr)
    lane_ = replays.enter(now);
  if (lane_ != nullptr)
    lane_->raise(engine_->responder().grant.most_ever(), engine_->version() != 1);
  OnceCall& once = once_.emplace_back();
  once.end = this;
  once.shape = &shape;
  once.served = &call;
  once.number = numbers_++;
  once.header.xid = call.xid;
  switch (replays.begin(once, lane_, print_of(shape, call.xid), now)) {
    case server::ReplayCache::Verdict::kRun:
      if (++shape.runs > 1)
        context_.fail(name_, "xid %08x: call %u runs twice", call.xid, shape.serial);
      return true;
    case server::ReplayCache::Verdict::kWait:
      break;
    case server::ReplayCache::Verdict::kSeen:
      answer_again(once);
      break;
    case server::ReplayCache::Verdict::kNoRoom:
    case server::ReplayCache::Verdict::kAllRun:
      once_.pop_back();
      refuse_unprotected(call, shape);
      break;
  }
  return false;
}

void End::refuse_unprotected(engine::ServedCall& call, Shape& shape) {
  if (context_.traced)
    context_.trace(name_, "no room to remember call %u, xid %08x", shape.serial, call.xid);
  if (shape.runs != 0)
    context_.fail(name_, "xid %08x: call %u ran, and is forgotten", call.xid, shape.serial);
  shape.not_run = true;
  engine_->refuse(call, 0, 0);
}

void End::end_once(engine::ServedCall& call, bool dropped) {
  auto found = std::ranges::find(once_, &call, &OnceCall::served);
  if (found == once_.end())
    return;
  if (dropped)
    --found->shape->runs;
  engine::ServedCall* waiter =
      session_.around().replays->finish(*found, dropped, true, context_.schedule.now());
  once_.erase(found);
  for (; waiter != nullptr; waiter = waiter->next_waiter) {
    auto& woken = static_cast<OnceCall&>(*waiter);
    context_.schedule.after(context_.delay(), *woken.end, kWake, woken.number);
  }
}

void End::wake(uint64_t number) {
  answer_again(*std::ranges::find(once_, number, &OnceCall::number));
}

void End::answer_again(OnceCall& once) {
  engine::ServedCall& call = *once.served;
  Memory& memory = session_.around().traffic.memory();
  if (context_.traced)
    context_.trace(name_, "call %u is here again, xid %08x", once.shape->serial, call.xid);
  once.results.emplace(call.reply, memory, std::max(call.inline_size(), 64u), 8u << 20);
  server::ReplayCache::Answer answer = session_.around().replays->take(once, lane_, memory);
  bool whole = once.results->ok();
  once.results.reset();
  Shape& shape = *once.shape;
  once_.remove_if([&](const OnceCall& each) { return &each == &once; });
  if (answer == server::ReplayCache::Answer::kNotKept) {
    shape.not_kept = true;
    engine_->refuse(call, 0, 0);
  } else if (answer == server::ReplayCache::Answer::kDropped || !whole) {
    dropped_ = true;
    engine_->drop(call);
  } else {
    engine_->reply(call);
  }
}

// Their replies are no longer taken. Those that are already woken come by themselves.
void End::release_waiting() {
  if (session_.around().replays == nullptr)
    return;
  auto waits = [this](OnceCall& each) {
    return each.replay != nullptr && session_.around().replays->withdraw(each);
  };
  auto next = [&] { return std::ranges::find_if(once_, waits); };
  for (auto found = next(); found != once_.end(); found = next()) {
    engine::ServedCall& call = *found->served;
    once_.erase(found);
    engine_->drop(call);
  }
}

void End::leave_cache() {
  if (lane_ != nullptr)
    session_.around().replays->leave(lane_, context_.schedule.now());
  lane_ = nullptr;
}

}  // namespace rrdk::sim
