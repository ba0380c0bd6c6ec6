// How many of a Memory's buffers peers hold: those into which the chunks of their calls are read,
// and those of results that wait to be sent.
//
// A peer, with all of its connections, may hold as many buffers of a size class as are left for all
// others, as long as that is half of the class or more. Otherwise each of the n present peers has a
// share, 1/(n+1) of the class. A peer is present if it has connections, whether it holds anything
// or not. A share computed from what is left at the moment would be half of that for the first
// peer, a quarter for the next, and nothing after some peers that give nothing back. The last
// eighth is for results, and for peers that hold very little: a quarter of the class divided by
// (n+1)^2. However many peers come one after the other, the sum of these is less than this eighth.
// A peer that holds nothing may have a first buffer in any case, and also what one call needs if
// the last eighth stays free, or if others have nearly nothing. So a newcomer finds buffers as long
// as there are fewer peers than half of the buffers in that eighth.
//
// Elastic classes share one budget: the bytes that a peer holds in all elastic classes are compared
// with what is available now.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/assert.h"
#include "rrdk/memory.h"

namespace rrdk::mem {

class Pool;
class Slabs;

// How much one peer has or would have, to decide whether it may; in buffers or in bytes.
struct Claim {
  uint64_t held;
  bool alone = false;    // all for one call of a peer that had nothing
  uint32_t at_hand = 0;  // of these, buffers that are not counted as lent yet
};

// The rule above, with `left` of the `whole` and `peers` peers. A larger `left` never makes a claim
// less fair, so a lower bound suffices if the claim is fair with it.
constexpr bool is_fair(const Claim& claim, uint64_t left, uint64_t whole, uint64_t peers) noexcept {
  constexpr uint64_t kLastPart = 8;
  const uint64_t held_by_all = claim.held * (peers + 1);
  const bool has_share = held_by_all <= whole;  // and the following does not overflow
  if (has_share && held_by_all * (peers + 1) <= whole / 4) [[likely]]
    return true;
  if (left < whole / kLastPart)
    return claim.alone && left + claim.held >= whole - whole / kLastPart;
  return claim.alone || (claim.held <= left && (left >= whole / 2 || has_share));
}

// The loans to all peers of one Memory. Any thread.
class Loans {
 public:
  static constexpr uint32_t kSizes = 32;  // capacities are powers of two
  static uint32_t size_of(uint32_t capacity) noexcept {
    RRDK_ASSERT(std::has_single_bit(capacity), capacity);
    return static_cast<uint32_t>(std::bit_width(capacity)) - 1;
  }

  // Before the first loan: the Memory has `count` more buffers of this capacity.
  void add(uint32_t capacity, uint32_t count) noexcept;
  // The same for an elastic class, which uses `budget`.
  void add_elastic(const Pool& pool, const Slabs& budget);
  // For a class with a fixed count.
  uint32_t lent(uint32_t capacity) const noexcept {
    return classes_[size_of(capacity)].lent.load(std::memory_order_relaxed);
  }

 private:
  friend class Borrower;
  struct Class {
    uint32_t count = 0;
    std::vector<const Pool*> elastic = {};  // one for each node; empty if the count is fixed
    std::atomic<uint32_t> lent = 0;         // of a fixed count
  };

  bool elastic(uint32_t size) const noexcept { return !classes_[size].elastic.empty(); }
  // loans_datapath.cc
  bool is_fair(const Claim& claim, uint64_t left, uint64_t whole) const noexcept;
  // These compare with the unused budget first, since that is cheap to determine; counting the free
  // buffers of all classes is not.
  bool is_fair_for(uint32_t size, const Claim& claim) const noexcept;
  bool is_fair_at_all(const Claim& claim) const noexcept;

  std::array<Class, kSizes> classes_;
  std::array<uint8_t, kSizes> sizes_{};  // of the existing classes
  uint32_t num_sizes_ = 0;
  std::vector<const Slabs*> budgets_;  // by node, of the elastic classes
  uint64_t elastic_bytes_ = 0;         // of all budgets
  std::atomic<uint32_t> peers_ = 0;    // that have connections
  std::atomic<uint32_t> waiting_ = 0;  // connections with calls that wait for the pools
  std::atomic<uint64_t> missing_ = 0;  // how often there was no buffer for a result
  std::atomic<uint64_t> exposed_ = 0;  // bytes
};

// What a connection's calls wait for.
enum class Shortage : uint8_t {
  kNone,
  kPool,   // buffers: others have them
  kShare,  // other calls of its own peer, which has used its share
};

class Borrower;
struct ReleaseBorrower {
  void operator()(Borrower* borrower) const noexcept;
};
// Releases the owner's reference to a peer. Buffers that were lent to it may come back later.
using BorrowerRef = std::unique_ptr<Borrower, ReleaseBorrower>;

// One peer. Any thread.
class Borrower {
 public:
  static BorrowerRef create(Memory& memory);
  Borrower(const Borrower&) = delete;
  Borrower& operator=(const Borrower&) = delete;

  // Called when it has one connection more, or one less.
  void join() noexcept;
  void part() noexcept;

  // Lends a buffer; with `alone`, for one call of a peer that held nothing before. If the result is
  // empty, `shortage` says why.
  Buffer get(uint32_t size, bool alone, Shortage& shortage) noexcept;
  // A buffer that was taken for this peer counts as lent from now on. It may exceed the share, so
  // that exceeded() delays the next call.
  void lend(Buffer& buffer) noexcept;

  // Whether it holds nothing.
  bool idle() const noexcept { return (bytes_.load(std::memory_order_relaxed) & ~kOwned) == 0; }
  // Whether it holds more than its share, because others have come, or because of lend().
  bool exceeded() const noexcept { return !idle() && exceeds(); }

  // Counts memory that the peer may read, so that no peer has all: at most `most` bytes for all
  // peers, shared as the buffers are. Returns false if the peer must wait.
  bool expose(uint64_t bytes, uint64_t most) noexcept;
  void unexpose(uint64_t bytes) noexcept;

  // Counts that there was no buffer for a result of this peer's call.
  void note_missing() noexcept { loans_.missing_.fetch_add(1, std::memory_order_relaxed); }
  // For all peers.
  uint64_t missing() const noexcept { return loans_.missing_.load(std::memory_order_relaxed); }

  // Called when a connection of this peer begins, or ceases, to wait.
  void change_wait(Shortage from, Shortage to) noexcept;
  // Whether others wait for what a connection of this peer holds; the connection itself waits for
  // `own`.
  bool pressed(Shortage own) const noexcept {
    return loans_.waiting_.load(std::memory_order_relaxed) > (own == Shortage::kPool) ||
           waiting_.load(std::memory_order_relaxed) > (own == Shortage::kShare);
  }

 private:
  friend void put(BufferSlot* slot) noexcept;
  friend struct ReleaseBorrower;
  explicit Borrower(Memory& memory) noexcept;
  bool may_hold(uint32_t capacity, bool alone) const noexcept;
  uint64_t elastic_held() const noexcept;
  bool exceeds() const noexcept;
  uint32_t held(uint32_t size) const noexcept {
    return held_[size].load(std::memory_order_relaxed);
  }
  std::atomic<uint32_t>* waiting(Shortage shortage) noexcept;
  void take_back(BufferSlot& slot) noexcept;
  void release(uint64_t bytes) noexcept;
  void dispose() noexcept;

  static constexpr uint64_t kOwned = uint64_t{1} << 63;

  Memory& memory_;
  Loans& loans_;
  // Bytes of all buffers that it holds, and kOwned while it has an owner; at 0 it is destroyed. A
  // loan changes only this count if possible: a locked instruction waits for all stores before it,
  // including those to cache lines that a peer has.
  std::atomic<uint64_t> bytes_ = kOwned;
  std::atomic<uint32_t> connections_ = 0;
  std::atomic<uint32_t> waiting_ = 0;  // connections with calls that wait for the share
  std::atomic<uint64_t> exposed_ = 0;  // bytes
  // buffers, of classes with a fixed count
  std::array<std::atomic<uint32_t>, Loans::kSizes> held_{};
};

}  // namespace rrdk::mem
