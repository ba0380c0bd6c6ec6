// What is remembered of one connection's calls: entries in the order in which they finished, and a
// ring with their replies, in the same order.
//
// Which of them a client may still repeat follows from credits. Replies are sent in the order in
// which their calls finish, and a connection loses none before another: a client that lacks one
// reply lacks all later ones too, and each of these calls holds a credit. So while a connection
// lives, an older entry can make room for a new one; and when it has ended, the last ones that
// finished are all that is kept, in a lane that is just large enough for them.
//
// One thing more can come: a call that a client sent on an old connection, repeated on a new one,
// and that we read from the old one last, because its core or its network was slow. Clients repeat
// before they make other calls. So the first calls of a connection stay known, without their
// replies, for the time window if the client has an older connection that still lives.
//
// No lock of its own: the cache's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/list.h"
#include "rrdk/memory.h"
#include "rrdk/server.h"
#include "rrdk/xdr.h"
#include "service/call_context.h"

namespace rrdk::server {

class ReplayLane;

// Of a whole server.
struct ReplayCounters {
  std::atomic<uint64_t> hits = 0, waits = 0, stored = 0, evicted = 0, not_kept = 0, lost = 0,
                        unprotected = 0, refused = 0;
};

struct ReplayEntry : service::OnceRecord {
  enum class State : uint8_t { kFree, kRunning, kDone, kNotKept, kDropped };

  uint64_t fingerprint = 0;
  uint32_t xid = 0;
  uint32_t length = 0;  // of the kept reply
  uint32_t at = 0;      // its place in the ring
  uint32_t pins = 0;    // waiters that have yet to look
  State state = State::kFree;
  bool early = false;      // among the first calls of its connection
  bool set_aside = false;  // in `aside_`
  uint64_t begin = 0;      // of what it takes of the ring
  uint64_t since_ns = 0;   // when it was finished
  ReplayLane* lane = nullptr;
  service::CallContext* waiters = nullptr;
  ReplayEntry* next = nullptr;     // in its bucket, or free
  base::Links<ReplayEntry> links;  // from older to newer
};
static_assert(sizeof(ReplayEntry) == 88, "ReplayOptions says how much memory it takes");

// Finds the entries of all lanes of a client by their fingerprints, which are keyed: nobody can
// make calls that share a bucket.
class ReplayIndex {
 public:
  // Memory that an entry costs here.
  static constexpr uint64_t kBytesPerEntry = 2 * sizeof(ReplayEntry*);

  ReplayIndex() : buckets_(kFewestBuckets) {}

  // Null: there is none, or it was dropped.
  ReplayEntry* find(uint32_t xid, uint64_t fingerprint) const noexcept;
  void enter(ReplayEntry& entry) noexcept;
  void erase(const ReplayEntry& entry) noexcept;
  // For so many entries in all. Allocates.
  void fit(size_t entries);

 private:
  static constexpr size_t kFewestBuckets = 16;

  size_t bucket_of(uint64_t fingerprint) const noexcept {
    return static_cast<size_t>(fingerprint) & (buckets_.size() - 1);
  }

  std::vector<ReplayEntry*> buckets_;  // a power of two
};

class ReplayLane {
 public:
  using State = ReplayEntry::State;

  // What a lane takes at most when it has been made as small as it can be, replies aside, with so
  // many entries.
  static constexpr uint64_t cost(uint64_t entries) {
    return sizeof(ReplayLane) + kAllocations +
           entries * (sizeof(ReplayEntry) + ReplayIndex::kBytesPerEntry);
  }

  struct Size {
    uint32_t entries;
    uint32_t early;  // of the first calls, which may be set aside beside them
    uint64_t bytes;  // of replies
  };
  ReplayLane(const Size& size, const ReplayOptions& options, ReplayIndex& index,
             ReplayCounters& counters);
  ~ReplayLane();
  ReplayLane(const ReplayLane&) = delete;
  ReplayLane& operator=(const ReplayLane&) = delete;

  // A call begins. `elders`: its client has an older connection that lives. Null: all entries are
  // running, or looked at.
  ReplayEntry* begin(uint32_t xid, uint64_t fingerprint, bool elders) noexcept;
  // Copies the reply into the ring, in one run. The oldest replies make room; that their calls ran
  // stays known. False: it does not fit.
  bool keep(ReplayEntry& entry, std::span<const Piece> reply) noexcept;
  // Takes a finished entry that nobody looks at out of its lane into this one. Without room it
  // stays where it is.
  void take_over(ReplayEntry& finished, bool elders) noexcept;
  std::span<const std::byte> reply_of(const ReplayEntry& entry) const noexcept {
    return {&ring_[entry.at], entry.length};
  }
  // To the end of those that are finished.
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
  // What was set aside goes when the window is over.
  void expire(uint64_t now_ns) noexcept;

  // Of a connection that has ended: forgets what can not be repeated any more, so that `last`
  // entries remain, and those that are set aside. It is not busy().
  void forget_but(uint32_t last, bool elders) noexcept;
  // The same entries, and replies if `with_replies`, in a lane that is large enough for them and no
  // larger. They are gone from this one.
  std::unique_ptr<ReplayLane> compacted(bool with_replies);
  uint64_t drop_replies() noexcept;  // the bytes that they had
  uint64_t reply_bytes() const noexcept;

  uint32_t size() const noexcept { return used_; }
  uint32_t capacity() const noexcept { return static_cast<uint32_t>(entries_.size()); }
  bool empty() const noexcept { return used_ == 0; }
  // Calls run, or waiters have yet to look: its entries stay where they are.
  bool busy() const noexcept { return running_ != 0 || pins_ != 0; }
  std::span<ReplayEntry> entries() noexcept { return entries_; }

  // The cache's.
  uint64_t number = 0;   // lanes of a client count up
  bool in_use = true;    // a connection fills it
  bool compact = false;  // as small as it can be
  uint64_t left_ns = 0;  // when its connection ended
  uint64_t charged = 0;  // of the room for what connections leave behind

 private:
  // Of allocators, for the lane and its two arrays.
  static constexpr uint64_t kAllocations = 64;

  using List = base::List<ReplayEntry, &ReplayEntry::links>;

  ReplayEntry* add(uint32_t xid, uint64_t fingerprint, bool elders) noexcept;
  bool make_room(bool elders) noexcept;
  void unlink(ReplayEntry& entry) noexcept;
  void set_aside(ReplayEntry& entry) noexcept;
  void drop_reply(ReplayEntry& entry) noexcept;
  ReplayEntry* oldest_reply() noexcept;
  // Room for so many bytes, for `entry`; null: there is none to be had.
  std::byte* reserve(ReplayEntry& entry, uint64_t size) noexcept;
  bool copy(ReplayEntry& entry, const ReplayEntry& finished) noexcept;

  const ReplayOptions& options_;
  const uint64_t ring_size_;
  const uint32_t early_;
  ReplayIndex& index_;
  ReplayCounters& counters_;
  std::vector<ReplayEntry> entries_;
  uint32_t used_ = 0;
  uint32_t running_ = 0;
  uint32_t pins_ = 0;
  uint32_t begun_ = 0;  // as far as they are early
  base::Stack<ReplayEntry, &ReplayEntry::next> free_;
  List finished_;
  List aside_;
  ReplayEntry* oldest_reply_ = nullptr;  // the first of finished_ that may have one
  std::unique_ptr<std::byte[]> ring_;
  uint64_t head_ = 0;  // places in the ring count up, and are taken modulo its size
};

// Memory for what must be remembered of connections that have ended. Each connection sets aside, as
// long as it lives, what it may come to leave behind; so that there is always room for that, and a
// lack of it is found before a call runs and not after.
//
// Any thread.
class ReplayRoom {
 public:
  // A part of `whole`, which outlives it; null: it is the whole.
  explicit ReplayRoom(uint64_t bytes, ReplayRoom* whole = nullptr) : bytes_(bytes), whole_(whole) {}
  ReplayRoom(const ReplayRoom&) = delete;
  ReplayRoom& operator=(const ReplayRoom&) = delete;

  // False: nothing was taken.
  bool take(uint64_t bytes) noexcept {
    uint64_t taken = taken_.load(std::memory_order_relaxed);
    do {
      if (bytes > bytes_ - taken)
        return false;
    } while (!taken_.compare_exchange_weak(taken, taken + bytes, std::memory_order_relaxed));
    if (whole_ == nullptr || whole_->take(bytes))
      return true;
    taken_.fetch_sub(bytes, std::memory_order_relaxed);
    return false;
  }
  void give(uint64_t bytes) noexcept {
    taken_.fetch_sub(bytes, std::memory_order_relaxed);
    if (whole_ != nullptr)
      whole_->give(bytes);
  }
  uint64_t taken() const noexcept { return taken_.load(std::memory_order_relaxed); }

 private:
  const uint64_t bytes_;
  ReplayRoom* const whole_;
  std::atomic<uint64_t> taken_ = 0;
};

// A reply as the duplicate request cache keeps it: the RPC message without any transport framing,
// so that it can be answered through whatever chunks a repeated call offers.
//
//   run:  length, kind (eight bytes)  then the bytes
//
// Runs of the stream itself are kept without the counts of the items behind them, which the
// Encoder writes anew.

// Bytes that keep() writes.
uint64_t kept_size(std::span<const Piece> reply) noexcept;
void keep(std::span<const Piece> reply, std::byte* to) noexcept;
// Writes the reply again. out.ok() tells whether there were buffers for its eligible items.
void restore(std::span<const std::byte> kept, Encoder& out, Memory& memory) noexcept;

}  // namespace rrdk::server
