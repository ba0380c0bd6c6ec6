// Calls of procedures that are not idempotent, which clients may repeat on new connections.
#include <utility>

#include "base/assert.h"
#include "runtime/poll_core.h"
#include "server/server_impl.h"
#include "server/server_link.h"

namespace rrdk::server {

using service::Answer;

// True: the call is the first of its kind, and is to be run. False: it has been answered, or waits.
bool ServerLink::begin_once(CallContext& context) noexcept {
  if (!server_.clients.keeps_replies()) [[unlikely]] {
    ++server_.clients.counters().replay_unprotected;
    return true;
  }
  const char* lacks = nullptr;
  if (lane_ == nullptr || !client_.has_place) [[unlikely]]
    lacks = prepare_once();
  ReplayLane* const lane = lacks == nullptr ? lane_ : nullptr;
  if (lane != nullptr) [[likely]]
    lane->raise(engine().most_granted() + exposed_replies(server_.options),
                engine().version() != 1);
  const Fingerprint print = fingerprint(server_.clients.keys(), context.header, context.args);
  switch (client_.replays.begin(context, lane, print, core().now())) {
    case ReplayCache::Verdict::kRun:
      return true;
    case ReplayCache::Verdict::kWait:
      waiting_.push_front(context);  // newest first, as in its entry: withdraw() finds them soon
      if (state() > runtime::LinkState::kUp)
        release_waiting();  // on_down() was before
      return false;
    case ReplayCache::Verdict::kSeen:
      break;
    case ReplayCache::Verdict::kNoRoom:
      return runs_unprotected(context, lacks != nullptr ? lacks : kNoReplayRoom);
    case ReplayCache::Verdict::kAllRun:
      refuse_unprotected(
          context,
          "more such calls run than it was granted credits (raise ReplayOptions::entries)");
      return false;
  }
  answer_again(context);
  return false;
}

// Those that waited are answered on the cores of their own connections.
void ServerLink::end_once(CallContext& context, bool whole) noexcept {
  RRDK_ASSERT(context.replay != nullptr);
  CallContext* waiter =
      client_.replays.finish(context, context.answer == Answer::kDrop, whole, core().now());
  while (waiter != nullptr) {
    CallContext& next = *std::exchange(waiter, waiter->next_waiter);
    next.run = [](runtime::WorkItem& item) {
      auto& woken = static_cast<CallContext&>(item);
      auto& link = static_cast<ServerLink&>(*woken.dispatcher);
      link.waiting_.remove(woken);
      link.answer_again(woken);
    };
    next.dispatcher->link().core().submit(next);
  }
}

// With what the first one was answered.
void ServerLink::answer_again(CallContext& context) noexcept {
  restart_reply(context);
  switch (client_.replays.take(context, lane_, server_.runtime.memory)) {
    case ReplayCache::Answer::kKept:
      if (!context.results->ok())
        return drop(context);  // no buffers: to say SYSTEM_ERR would be false
      context.answer = Answer::kResults;
      return send(context);
    case ReplayCache::Answer::kNotKept:
      return refuse(context, AcceptStat::kSystemErr);
    case ReplayCache::Answer::kDropped:
      return drop(context);
  }
}

// Nobody takes their replies any more. Those that are already woken come by themselves.
void ServerLink::release_waiting() noexcept {
  for (CallContext& context : waiting_) {
    if (!client_.replays.withdraw(context))
      continue;
    waiting_.remove(context);
    drop(context);
  }
}

void ServerLink::on_access_failed(uint32_t xid) {
  client_.replays.note_failure(xid, id(), core().now());
}

bool ServerLink::failed_before(uint32_t xid) {
  return client_.replays.failed_before(xid, id(), core().now());
}

}  // namespace rrdk::server
