// The duplicate request cache of one client. A procedure that is not idempotent runs once for each
// call, however often the client repeats the call after lost connections: the first reply is kept,
// and sent again.
//
//   state     what it means                                       a repeated call
//   running   the handler has the first call                      waits, and is answered with it
//   done      the reply is kept                                   gets it
//   not kept  it ran, but its reply is not there: too large, made  gets SYSTEM_ERR, and is not run
//             space for later ones, or there was no buffer
//   dropped   the handler called drop(); waiters still look at it  is dropped, if it waited for it
//
// A call is recognised by its XID, by the principal that its credential names (rpc::Principal), and
// by a keyed hash of everything else that a repetition has in common with it: program, version,
// procedure, and length and beginning of the arguments (Fingerprint). So no other principal is
// answered from here, and no other client, since each client has its own cache.
//
// A requester may repeat a call only on another connection (V1-CREDIT-23). Whether the old
// connection still seems to be up here means nothing, so a repetition waits in either case. A
// repetition on the connection of the first call is answered as well: leaving a call unanswered
// would cost its connection, or a credit for ever.
//
// The calls of each connection fill a lane (ReplayLane). When the connection has ended, those of
// its calls that may still be repeated are kept for the time window, each by itself. All memory is
// taken from the client's ReplayRoom, and that of an entry before its call runs; without it the
// call is not run. So no call runs whose repetition could not be told from a new call. When memory
// is short, replies of ended connections are dropped, the oldest first; the cache still knows that
// their calls ran.
//
// Any core: a client may come back on another one. The lock belongs to the client, and is taken for
// calls of procedures that ask for the cache, and after failures.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/list.h"
#include "base/random.h"
#include "mem/heap_charge.h"
#include "mem/loans.h"
#include "rpc/headers_datapath.h"
#include "rrdk/memory.h"
#include "rrdk/server.h"
#include "rrdk/xdr.h"
#include "service/dispatcher.h"

namespace rrdk::server {

class ReplayLane;

// Counters of a whole server.
struct ReplayCounters {
#define RRDK_REPLAY_COUNTER(id, enumerator, name, text) base::SharedCount name;
#include "rrdk/counter_table.h"
};

// What two calls of one client must have in common for the second to be a repetition of the first:
// hashes under keys that only we have. The hash of the principal is compared separately and has 128
// bits, so that two principals never share one; the bytes themselves would be up to 400 for each
// call.
struct Fingerprint {
  uint64_t call = 0;  // with the XID and the principal; selects the bucket
  std::array<uint64_t, 2> principal = {};

  bool operator==(const Fingerprint&) const = default;
};

struct FingerprintKeys {
  base::SipKey call;
  std::array<base::SipKey, 2> principal;
};

// `args` must be at the beginning of the arguments.
Fingerprint fingerprint(const FingerprintKeys& keys, const rpc::CallHeader& header,
                        const Decoder& args, const rpc::Principal& principal) noexcept;

struct ReplayEntry : service::OnceRecord {
  enum class State : uint8_t { kFree, kRunning, kDone, kNotKept, kDropped };

  Fingerprint fingerprint;
  uint32_t xid = 0;
  uint32_t length = 0;  // of the kept reply
  uint32_t at = 0;      // its position in the ring
  uint32_t pins = 0;    // waiters that have yet to look
  State state = State::kFree;
  bool early = false;          // among the first calls of its connection
  bool set_aside = false;      // in `aside_`
  uint64_t begin = 0;          // of its part of the ring
  uint64_t since_ns = 0;       // when it was finished
  ReplayLane* lane = nullptr;  // null: a LeftEntry
  engine::ServedCall* waiters = nullptr;
  ReplayEntry* next = nullptr;     // in its bucket, or in the free list
  base::Links<ReplayEntry> links;  // from older to newer
};

// An entry of a connection that has ended.
struct LeftEntry : ReplayEntry {
  std::unique_ptr<std::byte[]> reply;
};

// Finds the entries of all lanes of a client by their fingerprints. These are keyed, so a client
// cannot make calls that share a bucket on purpose.
class ReplayIndex {
 public:
  // The memory of an entry in the index.
  static constexpr uint64_t kBytesPerEntry = 2 * sizeof(ReplayEntry*);

  ReplayIndex() : buckets_(kFewestBuckets) {}

  // Returns null if there is no such entry, or if the call was dropped.
  ReplayEntry* find(uint32_t xid, const Fingerprint& fingerprint) const noexcept;
  void enter(ReplayEntry& entry) noexcept;
  void erase(const ReplayEntry& entry) noexcept;
  // Adapts to `entries` entries. If the heap has no memory the index stays as it is, and is slower.
  void fit(size_t entries) noexcept;

 private:
  static constexpr size_t kFewestBuckets = 16;

  size_t bucket_of(const Fingerprint& fingerprint) const noexcept {
    return static_cast<size_t>(fingerprint.call) & (buckets_.size() - 1);
  }

  std::vector<ReplayEntry*> buckets_;  // a power of two in number
};

// What is remembered about one connection's calls: entries in the order in which they finished, and
// a ring with their replies, in the same order. Both begin empty and grow with the connection's
// use; the cache pays for each step, and says when there is nothing left.
//
// Credits determine which calls a client may still repeat. Replies are sent in the order in which
// their calls finish, and a connection loses none before another: a client that lacks one reply
// lacks all later ones too, and each of these calls holds a credit. So once there are as many
// entries as credits, a new entry can replace an older one. When the connection has ended, only the
// last entries that finished are kept, each by itself (LeftEntry).
//
// One more case: a client sends a call on an old connection and repeats it on a new one, and we
// read the one from the old connection last, because its core or its network was slow. Clients
// repeat calls before they make other calls. So the first calls of a connection stay known, without
// their replies, for the time window, if the client has an older connection that is still up.
//
// It has no lock of its own: the cache's lock is used.
class ReplayLane {
 public:
  using State = ReplayEntry::State;

  static constexpr uint32_t kBlock = 8;  // entries that are added at once
  // In addition to outstanding calls, a client may send a few calls again that were answered, for
  // instance with what they lack (draft-04 section 6.2.4).
  static constexpr uint32_t kSentAgain = 16;
  static constexpr uint64_t kFirstRing = 256;
  // The memory of `entries` entries, here or as LeftEntry, and what their replies take besides
  // their bytes.
  static constexpr uint64_t cost_of(uint64_t entries) {
    return entries * (sizeof(LeftEntry) + 2 * kAllocation + ReplayIndex::kBytesPerEntry);
  }

  // `index`, `options` and `counters` must outlive it.
  ReplayLane(const ReplayOptions& options, ReplayIndex& index, ReplayCounters& counters)
      : options_(options), index_(index), counters_(counters) {}
  ~ReplayLane();
  ReplayLane(const ReplayLane&) = delete;
  ReplayLane& operator=(const ReplayLane&) = delete;

  // Its client may have `outstanding` calls without a reply; the number never decreases. In version
  // 2 it may send a call again that was answered with what the call lacks, after later calls: the
  // entry of that call keeps its place.
  void raise(uint32_t outstanding, bool version_two) noexcept {
    last_ = std::max(last_, (version_two ? 2 : 1) * outstanding + kSentAgain);
  }

  bool has_free() const noexcept { return !free_.empty(); }
  // Whether its client may repeat every call that the lane has, so that none can be replaced.
  bool wants_entries() const noexcept { return in_order() < std::max(last_, options_.entries); }
  // Frees the oldest entry, or sets it aside if its client has an older connection that is still up
  // (`elders`). Returns false if all are running or pinned.
  bool make_room(bool elders) noexcept;
  // Adds kBlock entries. Returns false if the heap has no memory.
  bool add_entries() noexcept;
  // Counts a call, whether it is a repetition or not. Returns whether it is among the first `early`
  // ones, which are set aside before they are forgotten.
  bool count(uint32_t early) noexcept { return begun_++ < early; }
  // Begins an entry. Requires has_free().
  ReplayEntry& begin(uint32_t xid, const Fingerprint& fingerprint, bool early) noexcept;

  // Returns by how much the ring must grow before a reply of `size` bytes, so that it does not push
  // out others; 0: not at all, or it may not grow.
  uint64_t ring_lacks(uint64_t size) noexcept;
  bool grow_ring(uint64_t more) noexcept;  // false: the heap has no memory
  // Copies the reply into the ring, in one run. It replaces the oldest replies, whose calls are
  // still known to have run. Returns false if it does not fit.
  bool keep(ReplayEntry& entry, std::span<const Piece> reply) noexcept;
  // Adds a call that ran for another connection, and its reply if that is kept. Requires
  // has_free(). Returns false if there is no space here for its reply.
  bool take_over(const ReplayEntry& finished, std::span<const std::byte> reply,
                 bool early) noexcept;
  std::span<const std::byte> reply_of(const ReplayEntry& entry) const noexcept {
    return {&ring_[entry.at], entry.length};
  }
  // Puts the entry at the end of those that are finished.
  void append(ReplayEntry& entry, uint64_t now_ns) noexcept;
  void release(ReplayEntry& entry) noexcept;
  void pin(ReplayEntry& entry) noexcept {
    ++entry.pins;
    ++pins_;
  }
  void unpin(ReplayEntry& entry) noexcept {
    --entry.pins;
    --pins_;
  }
  // Removes what was set aside when the window is over.
  void expire(uint64_t now_ns) noexcept;

  // For a connection that has ended: forgets the calls that can no longer be repeated. What is set
  // aside stays while there are `elders`. It must not be busy().
  void forget_but_last(bool elders) noexcept;
  // Returns the first of the remaining entries, in the order in which they finished, or null.
  ReplayEntry* oldest() const noexcept {
    return aside_.empty() ? finished_.front() : aside_.front();
  }

  uint64_t ring_bytes() const noexcept { return ring_size_; }
  size_t capacity() const noexcept { return blocks_.size() * kBlock; }
  bool empty() const noexcept { return used_ == 0; }
  // Whether calls run, or waiters have yet to look: its entries must stay where they are.
  bool busy() const noexcept { return running_ != 0 || pins_ != 0; }

  // The cache's.
  uint64_t number = 0;   // lanes of a client are numbered in order
  bool in_use = true;    // a connection fills it
  uint64_t left_ns = 0;  // when its connection ended
  uint64_t charged = 0;  // to the ReplayRoom
  uint64_t prepaid = 0;  // the part for entries that is not used yet
  uint64_t prepaid_ring = 0;
  std::list<std::unique_ptr<ReplayLane>>::iterator place = {};

 private:
  // Used by the allocator for each block of memory.
  static constexpr uint64_t kAllocation = 16;

  using List = base::List<ReplayEntry, &ReplayEntry::links>;

  // Entries that can replace each other.
  uint32_t in_order() const noexcept { return used_ - asides_; }
  ReplayEntry& add(uint32_t xid, const Fingerprint& fingerprint) noexcept;
  void unlink(ReplayEntry& entry) noexcept;
  void set_aside(ReplayEntry& entry) noexcept;
  void drop_reply(ReplayEntry& entry) noexcept;
  ReplayEntry* oldest_reply() noexcept;
  // Bytes of the ring that a reply of `size` bytes uses, including those that it skips before it
  // and at the end of the ring. If they exceed the ring's size, the reply does not fit besides
  // those that are there.
  uint64_t taken_with(uint64_t size) noexcept;
  // Makes space for `size` bytes, for `entry`; null if that is impossible.
  std::byte* reserve(ReplayEntry& entry, uint64_t size) noexcept;

  const ReplayOptions& options_;
  ReplayIndex& index_;
  ReplayCounters& counters_;
  uint32_t last_ = kSentAgain;  // calls that its client may repeat
  std::vector<std::unique_ptr<ReplayEntry[]>> blocks_;
  uint32_t used_ = 0;
  uint32_t running_ = 0;
  uint32_t pins_ = 0;
  uint64_t begun_ = 0;   // calls so far
  uint32_t asides_ = 0;  // in aside_
  base::Stack<ReplayEntry, &ReplayEntry::next> free_;
  List finished_;
  List aside_;
  ReplayEntry* oldest_reply_ = nullptr;  // the first of finished_ that may have one
  std::unique_ptr<std::byte[]> ring_;
  uint64_t ring_size_ = 0;
  uint64_t head_ = 0;  // positions in the ring count up, and are taken modulo its size
};

// Memory for what is remembered, on the heap, and charged to the budget of a Memory.
//
// Any thread.
class ReplayRoom {
 public:
  // The whole, of which `reserve` is taken from the budget at once. If `budget` is null, there is
  // none.
  ReplayRoom(uint64_t bytes, Memory* budget, uint64_t reserve = 0) : bytes_(bytes) {
    if (budget != nullptr)
      charge_.emplace(*budget, reserve);
  }
  // A client's part of `whole`, which must outlive it. It gets no more than its share, as a peer
  // does with buffers (mem/loans.h), so there is some for newcomers, whatever others keep.
  explicit ReplayRoom(ReplayRoom* whole) : whole_(whole) {}
  ReplayRoom(const ReplayRoom&) = delete;
  ReplayRoom& operator=(const ReplayRoom&) = delete;

  // Returns false if nothing was taken.
  bool take(uint64_t bytes) noexcept {
    const uint64_t taken = add(bytes);
    const bool fits = whole_ == nullptr ? taken <= bytes_ && (!charge_ || charge_->take(bytes))
                                        : whole_->allows(taken, bytes) && whole_->take(bytes);
    if (!fits)
      remove(bytes);
    return fits;
  }
  void give(uint64_t bytes) noexcept {
    remove(bytes);
    if (whole_ != nullptr)
      whole_->give(bytes);
    else if (charge_)
      charge_->give(bytes);
  }
  // Whether, with `bytes` more, at most two thirds of what this part can have would be taken.
  bool plenty(uint64_t bytes) const noexcept {
    const uint64_t left = whole_ != nullptr ? whole_->left() : this->left();
    return taken() + bytes <= left / 2;
  }
  // Whether half of the whole is left.
  bool ample() const noexcept {
    const ReplayRoom& whole = whole_ != nullptr ? *whole_ : *this;
    return whole.left() >= whole.bytes_ / 2;
  }
  uint64_t taken() const noexcept { return taken_.load(std::memory_order_relaxed); }

  // Each part may have this much while anything is left: what the first calls of a connection take.
  static constexpr uint64_t kForEach = 4096;

 private:
  uint64_t add(uint64_t bytes) noexcept {
    const uint64_t before = taken_.fetch_add(bytes, std::memory_order_relaxed);
    if (before == 0 && bytes != 0 && whole_ != nullptr)
      whole_->parts_.fetch_add(1, std::memory_order_relaxed);
    return before + bytes;
  }
  void remove(uint64_t bytes) noexcept {
    if (taken_.fetch_sub(bytes, std::memory_order_relaxed) == bytes && bytes != 0 &&
        whole_ != nullptr)
      whole_->parts_.fetch_sub(1, std::memory_order_relaxed);
  }
  // Whether a part may have `held`, with `bytes` more that are not taken yet.
  bool allows(uint64_t held, uint64_t bytes) const noexcept {
    return bytes <= left() &&
           (held <= kForEach || mem::is_fair({.held = held}, left() - bytes, bytes_,
                                             parts_.load(std::memory_order_relaxed)));
  }
  uint64_t left() const noexcept { return bytes_ - std::min(bytes_, taken()); }

  ReplayRoom* const whole_ = nullptr;
  const uint64_t bytes_ = 0;
  std::optional<mem::HeapCharge> charge_;
  std::atomic<uint64_t> taken_ = 0;
  std::atomic<uint32_t> parts_ = 0;  // that have something
};

// For messages: why nothing can be remembered.
inline constexpr const char* kNoReplayRoom =
    "there is no room to remember it: enlarge ReplayOptions::total_bytes, or MemoryOptions::bytes";

// A reply as the duplicate request cache keeps it: the RPC message without any transport framing,
// so that it can be answered through any chunks that a repeated call offers.
//
//   run:  length, kind (eight bytes)  then the bytes
//
// Runs of the stream itself are kept without the counts of the items after them, which the Encoder
// writes again.

// The number of bytes that keep() writes.
uint64_t kept_size(std::span<const Piece> reply) noexcept;
void keep(std::span<const Piece> reply, std::byte* to) noexcept;
// Writes the reply again. out.ok() tells whether there were buffers for its eligible items.
void restore(std::span<const std::byte> kept, Encoder& out, Memory& memory) noexcept;

using engine::ServedCall;

// What one connection takes at most, without replies, with `outstanding` calls and `entries`
// remembered: these, and as many of its first calls set aside.
constexpr uint64_t bytes_of_lane(uint32_t outstanding, uint32_t entries) {
  uint64_t last = 2 * uint64_t{outstanding} + ReplayLane::kSentAgain;
  uint64_t most = std::max<uint64_t>(entries, last) + outstanding;
  uint64_t blocks = most / ReplayLane::kBlock + 1;
  return blocks * ReplayLane::cost_of(ReplayLane::kBlock);
}

static_assert(ReplayLane::cost_of(1) == 160, "ReplayOptions says so");

class ReplayCache {
 public:
  // What a connection takes when it comes: the entries that its first calls need while it has few
  // credits, and some replies.
  static constexpr uint64_t kPrepaid =
      ReplayLane::cost_of(3 * ReplayLane::kBlock) + ReplayLane::kFirstRing;

  static_assert(kPrepaid <= ReplayRoom::kForEach);

  // A connection may have `exposed` replies that its client has yet to read (RFC 5666's mode).
  // `room` and `counters` must outlive it.
  ReplayCache(const ReplayOptions& options, uint32_t exposed, ReplayRoom& room,
              ReplayCounters& counters);
  ~ReplayCache();
  ReplayCache(const ReplayCache&) = delete;
  ReplayCache& operator=(const ReplayCache&) = delete;

  // The client's connections, including those that have not entered. Any thread.
  void count_connections(uint32_t connections) noexcept { connections_ = connections; }
  // The largest number of credits that any of its connections has been granted so far. Written by
  // their cores.
  std::atomic<uint32_t>& most_granted() noexcept { return most_granted_; }

  // Called when a connection comes, or came earlier (`late`). Returns the lane that its calls fill
  // until it leaves; null if the heap has no memory.
  ReplayLane* enter(uint64_t now_ns, bool late = false) noexcept;
  void leave(ReplayLane* lane, uint64_t now_ns) noexcept;

  enum class Verdict : uint8_t {
    kRun,     // the first call; call.replay is its entry until finish()
    kWait,    // the first call runs; finish() returns the waiter
    kSeen,    // take() has the answer
    kNoRoom,  // there is no memory to remember it
    kAllRun,  // no entry can be replaced: more calls run than were granted
  };
  // `lane` is that of the call's connection, raise()d to what its client may have outstanding. With
  // a null lane no unknown call is run.
  Verdict begin(ServedCall& call, ReplayLane* lane, const Fingerprint& fingerprint,
                uint64_t now_ns) noexcept;
  // Called when the first call ends. It is answered by the message in its call, or not at all:
  // because its handler wants that (`dropped`), or because there was no buffer for the message (not
  // `whole`). Returns the calls that wait for it, linked through next_waiter; take() has their
  // answer.
  ServedCall* finish(ServedCall& call, bool dropped, bool whole, uint64_t now_ns) noexcept;

  enum class Answer : uint8_t { kKept, kNotKept, kDropped };
  // Returns how the first call ended. With kKept, call.results has its reply.
  Answer take(ServedCall& call, ReplayLane* lane, Memory& memory) noexcept;
  // Takes back a call that waits. Returns false if it has already been woken.
  bool withdraw(ServedCall& waiter) noexcept;

  // V1-ERR-19. `connection` is a Link's id.
  void note_failure(uint32_t xid, uint64_t connection, uint64_t now_ns);
  bool failed_before(uint32_t xid, uint64_t connection, uint64_t now_ns) noexcept {
    return num_failures_.load(std::memory_order_relaxed) != 0 &&
           find_failure(xid, connection, now_ns);
  }

  // Whether nothing is remembered.
  bool empty() noexcept;
  // Forgets what cannot be repeated any more, at most `most` calls, which it counts down. Returns
  // true if there is no more.
  bool tidy(uint64_t now_ns, uint32_t& most) noexcept;
  // The same with all calls, whether they can be repeated or not. Its client must have no
  // connections.
  bool clear(uint32_t& most) noexcept;

 private:
  using State = ReplayEntry::State;
  using Lanes = std::list<std::unique_ptr<ReplayLane>>;

  // An RDMA Read or Write for a call ended its connection.
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
  // Whether the client has an older connection that is up, or one without a lane. A connection that
  // leaves still counts, but its lane is not among the live ones.
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
  uint32_t expire(uint64_t now_ns, uint32_t most) noexcept;  // returns how many
  ReplayEntry* find(uint32_t xid, const Fingerprint& fingerprint) noexcept;
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
  std::vector<Failure> failures_;  // in the order in which they came
  ReplayIndex index_;              // of all lanes
  uint64_t entries_ = 0;           // that all lanes have
  uint64_t now_ns_ = 0;            // at the last call, or connection
  uint64_t lanes_made_ = 0;
  Lanes live_;   // in the order in which their connections came
  Lanes ended_;  // whose calls still run, or are pinned
  base::List<ReplayEntry, &ReplayEntry::links> left_;  // LeftEntry, in the order in which they came
  ReplayEntry* oldest_reply_ = nullptr;                // the first of left_ that may have one
  uint64_t reply_bytes_ = 0;                           // of left_
};

}  // namespace rrdk::server
