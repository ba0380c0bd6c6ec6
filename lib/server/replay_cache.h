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
//   failed    an RDMA Read or Write for it lost its connection    gets ERR_CHUNK (V1-ERR-19)
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
// Each connection fills a lane (replay_lane.h), whose memory is taken when the client connects; in
// all lanes of the client a repetition is looked for. Finished entries go after the time window, or
// to make room for later ones of their connection. Running ones stay.
//
// Any core: a client may come back on another one. The lock is its client's own, and taken for
// calls of procedures that ask for the cache, and after failures.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/sip_hash.h"
#include "rpc/call_datapath.h"
#include "rrdk/server.h"
#include "server/replay_lane.h"
#include "service/call_context.h"

namespace rrdk::server {

using service::CallContext;

class ServerLink;

// Of a whole server.
struct ReplayCounters {
  std::atomic<uint64_t> hits = 0, waits = 0, stored = 0, evicted = 0, not_kept = 0, lost = 0,
                        unprotected = 0;
};

// What two calls of one client must have in common for the second to be a
// repetition of the first. `args` stands at the arguments.
uint64_t fingerprint(const base::SipKey& key, const rpc::CallHeader& header,
                     const Decoder& args) noexcept;

class ReplayCache {
 public:
  // `options.entries` 0: for failures only.
  ReplayCache(const ReplayOptions& options, ReplayCounters& counters);
  ~ReplayCache();
  ReplayCache(const ReplayCache&) = delete;
  ReplayCache& operator=(const ReplayCache&) = delete;

  // A connection comes: what its calls fill, until it leaves. Null: replies are not kept.
  ReplayLane* enter(uint64_t now_ns);
  void leave(ReplayLane* lane, uint64_t now_ns) noexcept;

  enum class Verdict : uint8_t {
    kRun,   // the first one, and context.replay its entry, until finish(); or no entry was free
    kWait,  // the first one runs: when it has finished, `wake` is called on context's core
    kSeen,  // take() has the answer
  };
  Verdict begin(CallContext& context, ReplayLane& lane, uint64_t fingerprint, uint64_t now_ns,
                void (*wake)(CallContext&)) noexcept;
  // The first one is answered by the message in its call; or not at all: its handler wants that
  // (`dropped`), or there was no buffer for the message (not `whole`).
  void finish(CallContext& context, bool dropped, bool whole, uint64_t now_ns) noexcept;

  enum class Answer : uint8_t { kKept, kNotKept, kDropped };
  // What became of the first one. kKept: context.results has its reply. `lane` is that of the
  // repeated call's connection.
  Answer take(CallContext& context, ReplayLane& lane, Memory& memory, uint64_t now_ns) noexcept;
  // Takes back those that wait on this link, linked through next_waiter.
  CallContext* withdraw(const ServerLink& link) noexcept;

  // V1-ERR-19. `connection` is a Link's id.
  void note_failure(uint32_t xid, uint64_t connection, uint64_t now_ns) noexcept;
  bool failed_before(uint32_t xid, uint64_t connection, uint64_t now_ns) noexcept {
    return failures_.load(std::memory_order_relaxed) != 0 && find_failure(xid, connection, now_ns);
  }

  // Nothing is remembered.
  bool empty() noexcept;

 private:
  using State = ReplayEntry::State;

  ReplayEntry* find(uint32_t xid, uint64_t fingerprint) noexcept;
  bool find_failure(uint32_t xid, uint64_t connection, uint64_t now_ns) noexcept;
  void expire(uint64_t now_ns) noexcept;
  void forget_failures(uint64_t gone) noexcept;
  void move(ReplayEntry& entry, ReplayLane& lane, uint64_t now_ns) noexcept;

  const ReplayOptions options_;
  ReplayCounters& counters_;
  std::atomic<uint32_t> failures_ = 0;

  std::mutex lock_;
  std::vector<std::unique_ptr<ReplayLane>> lanes_;
  ReplayLane failed_;
};

}  // namespace rrdk::server
