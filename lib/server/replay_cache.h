// The duplicate request cache of one client. A procedure that is not idempotent runs once for each
// call, however often the client repeats it after lost connections: the first reply is kept, and
// sent again.
//
//   state     what it means                                       a repeated call
//   running   the handler has the first call                      waits, and is answered with it
//   done      the reply is kept                                   gets it
//   not kept  it ran, but its reply is not there: too large, made  gets SYSTEM_ERR, and is not run
//             room for later ones, or no buffer was to be had
//   dropped   the handler called drop(); waiters still look at it  is dropped, if it waited for it
//
// A call is recognised by its XID, and by a keyed hash of that and of all else that a repetition
// has in common with it: program, version, procedure, credential, and length and beginning of the
// arguments. Hence nobody with another credential is answered from here, nor any other client,
// which has a cache of its own.
//
// A requester may repeat a call only on another connection (V1-CREDIT-23). Whether the old one
// still looks alive to us says nothing, so a repetition waits in either case. One that comes on the
// very connection of the first call is answered as well: to leave a call unanswered would cost its
// connection, or a credit for ever.
//
// Each connection fills a lane (replay_lane.h). When it has ended, what may yet be repeated of it
// stays for the time window, in a lane that is just large enough for it. The memory for that was
// set aside when the connection came; without it, or without a free entry, a call is not run at
// all. So no call is ever forgotten whose repetition could not be told from a new call.
//
// Any core: a client may come back on another one. The lock is its client's own, and taken for
// calls of procedures that ask for the cache, and after failures.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "base/random.h"
#include "rpc/call_datapath.h"
#include "rrdk/server.h"
#include "server/replay_lane.h"
#include "service/call_context.h"

namespace rrdk::server {

using service::CallContext;

// What two calls of one client must have in common for the second to be a
// repetition of the first. `args` stands at the arguments.
uint64_t fingerprint(const base::SipKey& key, const rpc::CallHeader& header,
                     const Decoder& args) noexcept;

// Calls of one connection that a client may have to repeat, at most: those that it may have
// outstanding, and a few that were answered with what they lack (draft-04 section 6.2.4) and are
// about to be sent again.
constexpr uint32_t most_repeated(uint32_t outstanding) {
  constexpr uint32_t kSentAgain = 16;
  return outstanding + kSentAgain;
}

// What a connection sets aside of the room for those that have ended.
constexpr uint64_t reserved_bytes(uint32_t outstanding) {
  return ReplayLane::cost(most_repeated(outstanding) + uint64_t{outstanding});
}

class ReplayCache {
 public:
  // Connections have at most so many calls outstanding. `room` and `counters` outlive it.
  ReplayCache(const ReplayOptions& options, uint32_t outstanding, ReplayRoom& room,
              ReplayCounters& counters);
  ~ReplayCache();
  ReplayCache(const ReplayCache&) = delete;
  ReplayCache& operator=(const ReplayCache&) = delete;

  // A connection comes: what its calls fill, until it leaves. Null: there is no room for what it
  // may leave behind.
  ReplayLane* enter(uint64_t now_ns);
  void leave(ReplayLane* lane, uint64_t now_ns);

  enum class Verdict : uint8_t {
    kRun,     // the first one, and context.replay its entry, until finish()
    kWait,    // the first one runs; finish() gives the waiter back
    kSeen,    // take() has the answer
    kRefuse,  // there is no entry for it
  };
  // `lane` is that of the call's connection, in each of these; null: it has none, and runs nothing
  // that is not known.
  Verdict begin(CallContext& context, ReplayLane* lane, uint64_t fingerprint,
                uint64_t now_ns) noexcept;
  // The first one is answered by the message in its call; or not at all: its handler wants that
  // (`dropped`), or there was no buffer for the message (not `whole`). Returns those that wait for
  // it, linked through next_waiter: take() has their answer.
  CallContext* finish(CallContext& context, bool dropped, bool whole, uint64_t now_ns) noexcept;

  enum class Answer : uint8_t { kKept, kNotKept, kDropped };
  // What became of the first one. kKept: context.results has its reply.
  Answer take(CallContext& context, ReplayLane* lane, Memory& memory) noexcept;
  // Takes back those that wait and of which `is_mine` holds, linked likewise.
  template <typename IsMine>
  CallContext* withdraw(IsMine&& is_mine) noexcept;

  // V1-ERR-19. `connection` is a Link's id.
  void note_failure(uint32_t xid, uint64_t connection, uint64_t now_ns);
  bool failed_before(uint32_t xid, uint64_t connection, uint64_t now_ns) noexcept {
    return num_failures_.load(std::memory_order_relaxed) != 0 &&
           find_failure(xid, connection, now_ns);
  }

  // Nothing is remembered.
  bool empty() noexcept;

 private:
  using State = ReplayEntry::State;
  using Lanes = std::deque<std::unique_ptr<ReplayLane>>;

  // An RDMA Read or Write for a call cost its connection.
  struct Failure {
    uint32_t xid;
    uint64_t connection;
    uint64_t since_ns;
  };

  bool is_over(uint64_t since_ns, uint64_t now_ns) const noexcept {
    return since_ns + uint64_t{options_.window_ms} * 1'000'000 < now_ns;
  }
  bool find_failure(uint32_t xid, uint64_t connection, uint64_t now_ns) noexcept;
  void forget_failures(uint64_t now_ns) noexcept;
  // Whether the client has an older connection that lives.
  bool has_elders(const ReplayLane& lane) const noexcept {
    return !live_.empty() && live_.front()->number < lane.number;
  }
  void expire(uint64_t now_ns) noexcept;
  void drop(const Lanes::iterator& ended) noexcept;
  void settle(ReplayLane& lane);
  bool take_for_replies(uint64_t bytes) noexcept;
  void fit_index();

  const ReplayOptions options_;
  const uint32_t outstanding_;
  ReplayRoom& room_;
  ReplayCounters& counters_;
  std::atomic<uint32_t> num_failures_ = 0;

  std::mutex lock_;
  std::vector<Failure> failures_;  // as they came
  ReplayIndex index_;              // of all lanes
  uint64_t lanes_made_ = 0;
  Lanes live_;   // in the order in which their connections came
  Lanes ended_;  // in the order in which they ended
};

template <typename IsMine>
CallContext* ReplayCache::withdraw(IsMine&& is_mine) noexcept {
  CallContext* mine = nullptr;
  auto take = [&](ReplayEntry& entry) {
    for (CallContext** place = &entry.waiters; *place != nullptr;) {
      CallContext& waiter = **place;
      if (!is_mine(waiter)) {
        place = &waiter.next_waiter;
        continue;
      }
      *place = waiter.next_waiter;
      waiter.replay = nullptr;
      waiter.next_waiter = mine;
      mine = &waiter;
    }
  };
  std::lock_guard lock(lock_);
  for (const Lanes* lanes : {&live_, &ended_}) {
    for (const std::unique_ptr<ReplayLane>& lane : *lanes) {
      if (lane->busy())
        std::ranges::for_each(lane->entries(), take);
    }
  }
  return mine;
}

}  // namespace rrdk::server
