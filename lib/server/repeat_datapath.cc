// Calls of procedures that are not idempotent, which clients may repeat on new connections.
#include <utility>

#include "base/assert.h"
#include "runtime/poll_core.h"
#include "server/server_impl.h"
#include "server/server_link.h"
#include "service/secured.h"

namespace rrdk::server {

using service::Answer;

// Returns true if the call is the first one, and must run. Otherwise it has been answered, or
// waits.
bool ServerLink::begin_once(ServedCall& call) noexcept {
  if (!server_.clients.keeps_replies()) [[unlikely]] {
    ++server_.clients.counters().replay_unprotected;
    return true;
  }
  const char* lacks = nullptr;
  if (lane_ == nullptr || !client_.has_place) [[unlikely]]
    lacks = prepare_once();
  ReplayLane* const lane = lacks == nullptr ? lane_ : nullptr;
  if (lane != nullptr) [[likely]]
    lane->raise(engine().responder().grant.most_ever() + exposed_replies(server_.options),
                engine().version() != 1);
  const Fingerprint print =
      fingerprint(server_.clients.keys(), call.header, call.args,
                  call.secured != nullptr ? call.secured->context->principal()
                                          : rpc::Principal(call.header.credential));
  switch (client_.replays.begin(call, lane, print, core().now())) {
    case ReplayCache::Verdict::kRun:
      return true;
    case ReplayCache::Verdict::kWait:
      // Newest first, as in its entry, so that withdraw() finds them soon.
      waiting_.push_front(call);
      if (state() > runtime::LinkState::kUp)
        release_waiting();  // on_down() was called before
      return false;
    case ReplayCache::Verdict::kSeen:
      break;
    case ReplayCache::Verdict::kNoRoom:
      return runs_unprotected(call, lacks != nullptr ? lacks : kNoReplayRoom);
    case ReplayCache::Verdict::kAllRun:
      refuse_unprotected(
          call, "more such calls run than it was granted credits (raise ReplayOptions::entries)");
      return false;
  }
  answer_again(call);
  return false;
}

// Calls that waited are answered on the cores of their own connections.
void ServerLink::end_once(ServedCall& call, bool whole) noexcept {
  RRDK_ASSERT(call.replay != nullptr);
  ServedCall* waiter =
      client_.replays.finish(call, call.answer == Answer::kDrop, whole, core().now());
  while (waiter != nullptr) {
    ServedCall& next = *std::exchange(waiter, waiter->next_waiter);
    next.run = [](runtime::WorkItem& item) {
      auto& woken = static_cast<ServedCall&>(item);
      auto& link = static_cast<ServerLink&>(*woken.dispatcher);
      link.waiting_.remove(woken);
      link.answer_again(woken);
    };
    next.dispatcher->link().core().submit(next);
  }
}

// Answers as the first call was answered.
void ServerLink::answer_again(ServedCall& call) noexcept {
  restart_reply(call);
  switch (client_.replays.take(call, lane_, server_.runtime.memory)) {
    case ReplayCache::Answer::kKept:
      if (!call.results->ok())
        return drop(call);  // no buffers: SYSTEM_ERR would be wrong
      call.answer = Answer::kResults;
      return send(call);
    case ReplayCache::Answer::kNotKept:
      return refuse(call, AcceptStat::kSystemErr);
    case ReplayCache::Answer::kDropped:
      return drop(call);
  }
}

// Their replies can no longer be sent. Calls that have already been woken return by themselves.
void ServerLink::release_waiting() noexcept {
  for (ServedCall& call : waiting_) {
    if (!client_.replays.withdraw(call))
      continue;
    waiting_.remove(call);
    drop(call);
  }
}

void ServerLink::on_access_failed(uint32_t xid) {
  client_.replays.note_failure(xid, id(), core().now());
}

bool ServerLink::failed_before(uint32_t xid) {
  return client_.replays.failed_before(xid, id(), core().now());
}

}  // namespace rrdk::server
