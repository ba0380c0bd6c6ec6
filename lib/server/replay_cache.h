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
// stays for the time window, call by call. All memory is taken from the client's room, an entry's
// before its call runs; without it the call is not run at all. So no call runs whose repetition
// could not be told from a new call. Replies of connections that ended first make room; that their
// calls ran stays known.
//
// Any core: a client may come back on another one. The lock is its client's own, and taken for
// calls of procedures that ask for the cache, and after failures.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "base/random.h"
#include "rpc/headers_datapath.h"
#include "rrdk/server.h"
#include "server/replay_lane.h"
#include "service/call_context.h"

namespace rrdk::server {

using service::CallContext;

// What two calls of one client must have in common for the second to be a
// repetition of the first. `args` stands at the arguments.
uint64_t fingerprint(const base::SipKey& key, const rpc::CallHeader& header,
                     const Decoder& args) noexcept;

// What one connection takes at most, replies aside, with so many calls outstanding and `entries`
// remembered: these, and as many of its first calls set aside.
constexpr uint64_t bytes_of_lane(uint32_t outstanding, uint32_t entries) {
  uint64_t last = 2 * uint64_t{outstanding} + ReplayLane::kSentAgain;
  uint64_t most = std::max<uint64_t>(entries, last) + outstanding;
  uint64_t blocks = most / ReplayLane::kBlock + 1;
  return blocks * ReplayLane::cost_of(ReplayLane::kBlock);
}

static_assert(ReplayLane::cost_of(1) == 144, "ReplayOptions says so");

class ReplayCache {
 public:
  // What a connection takes when it comes: the entries that its first calls need while it has few
  // credits, and some replies.
  static constexpr uint64_t kPrepaid =
      ReplayLane::cost_of(3 * ReplayLane::kBlock) + ReplayLane::kFirstRing;

  // A connection may have so many replies that its client has yet to read (RFC 5666's mode). `room`
  // and `counters` outlive it.
  ReplayCache(const ReplayOptions& options, uint32_t exposed, ReplayRoom& room,
              ReplayCounters& counters);
  ~ReplayCache();
  ReplayCache(const ReplayCache&) = delete;
  ReplayCache& operator=(const ReplayCache&) = delete;

  // The client's connections, those that have not entered among them. Any thread.
  void count_connections(uint32_t connections) noexcept { connections_ = connections; }
  // The most that one of them was granted, until now. Written by their cores.
  std::atomic<uint32_t>& most_granted() noexcept { return most_granted_; }

  // A connection comes, or has come before (`late`): what its calls fill, until it leaves. Null:
  // the heap has nothing.
  ReplayLane* enter(uint64_t now_ns, bool late = false) noexcept;
  void leave(ReplayLane* lane, uint64_t now_ns) noexcept;

  enum class Verdict : uint8_t {
    kRun,     // the first one, and context.replay its entry, until finish()
    kWait,    // the first one runs; finish() gives the waiter back
    kSeen,    // take() has the answer
    kNoRoom,  // nothing could be remembered of it
    kAllRun,  // nor is there an entry that could make room: more calls run than were granted
  };
  // `lane` is that of the call's connection, raise()d to what its client may have outstanding;
  // null: it has none, and runs nothing that is not known.
  Verdict begin(CallContext& context, ReplayLane* lane, uint64_t fingerprint,
                uint64_t now_ns) noexcept;
  // The first one is answered by the message in its call; or not at all: its handler wants that
  // (`dropped`), or there was no buffer for the message (not `whole`). Returns those that wait for
  // it, linked through next_waiter: take() has their answer.
  CallContext* finish(CallContext& context, bool dropped, bool whole, uint64_t now_ns) noexcept;

  enum class Answer : uint8_t { kKept, kNotKept, kDropped };
  // What became of the first one. kKept: context.results has its reply.
  Answer take(CallContext& context, ReplayLane* lane, Memory& memory) noexcept;
  // Takes back one that waits. False: it is woken already.
  bool withdraw(CallContext& waiter) noexcept;

  // V1-ERR-19. `connection` is a Link's id.
  void note_failure(uint32_t xid, uint64_t connection, uint64_t now_ns);
  bool failed_before(uint32_t xid, uint64_t connection, uint64_t now_ns) noexcept {
    return num_failures_.load(std::memory_order_relaxed) != 0 &&
           find_failure(xid, connection, now_ns);
  }

  // Nothing is remembered.
  bool empty() noexcept;
  // Forgets what can not be repeated any more, `most` calls at most, which it counts down. True:
  // there is no more of it.
  bool tidy(uint64_t now_ns, uint32_t& most) noexcept;

 private:
  using State = ReplayEntry::State;
  using Lanes = std::list<std::unique_ptr<ReplayLane>>;

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
  // Whether the client has an older connection that lives, or one without a lane. A connection that
  // leaves is counted still, and its lane is not among those that live.
  bool has_elders(const ReplayLane& lane) const noexcept {
    const size_t known = live_.size() + (lane.in_use ? 0 : 1);
    return known < connections_.load(std::memory_order_relaxed) ||
           (!live_.empty() && live_.front()->number < lane.number);
  }
  Verdict find_room(ReplayLane& lane) noexcept;
  bool grow(ReplayLane& lane) noexcept;
  void fit_ring(ReplayLane& lane, uint64_t size) noexcept;
  bool charge(ReplayLane& lane, uint64_t bytes) noexcept;
  bool take(ReplayLane& lane, uint64_t bytes, bool urgent) noexcept;
  void discharge(ReplayLane& lane, uint64_t bytes) noexcept;
  void settle(ReplayLane& lane) noexcept;
  bool leave_behind(ReplayLane& lane, ReplayEntry& entry) noexcept;
  bool drop_oldest_reply() noexcept;
  void forget(LeftEntry& left) noexcept;
  bool expire_oldest() noexcept;
  uint32_t expire(uint64_t now_ns, uint32_t most) noexcept;  // how many
  ReplayEntry* find(uint32_t xid, uint64_t fingerprint) noexcept;
  uint32_t early() const noexcept {
    return most_granted_.load(std::memory_order_relaxed) + exposed_;
  }
  void pin(ReplayEntry& entry) noexcept;
  void unpin(ReplayEntry& entry) noexcept;
  void renew(LeftEntry& left) noexcept;
  std::span<const std::byte> reply_of(const ReplayEntry& entry) const noexcept;
  bool take_over(ReplayLane& lane, ReplayEntry& entry, bool early) noexcept;

  const ReplayOptions options_;
  const uint32_t exposed_;
  ReplayRoom& room_;
  ReplayCounters& counters_;
  std::atomic<uint32_t> num_failures_ = 0;
  std::atomic<uint32_t> connections_ = 0;
  std::atomic<uint32_t> most_granted_ = 0;
  std::atomic<bool> has_left_ = false;  // left_ has entries

  std::mutex lock_;
  std::vector<Failure> failures_;  // as they came
  ReplayIndex index_;              // of all lanes
  uint64_t entries_ = 0;           // that all lanes have
  uint64_t now_ns_ = 0;            // at the last call, or connection
  uint64_t lanes_made_ = 0;
  Lanes live_;   // in the order in which their connections came
  Lanes ended_;  // whose calls still run, or are looked at
  base::List<ReplayEntry, &ReplayEntry::links> left_;  // LeftEntry, in the order in which they came
  ReplayEntry* oldest_reply_ = nullptr;                // the first of left_ that may have one
  uint64_t reply_bytes_ = 0;                           // of left_
};

}  // namespace rrdk::server
