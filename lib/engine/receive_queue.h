// Receives, and the share that one connection has in them.
//
// A ReceiveQueue is posted to one queue pair, or to a shared receive queue, from which many
// connections of one poll core take. Receives come only from the size class that fits them: they
// stay posted for as long as peers are idle, and must not use up the buffers that calls need.
//
// A ReceiveShare counts how many of them one connection has promised to its peer: by credits for
// calls, and by its own calls that expect replies. All shares together never promise more than what
// is posted or holds a message that has not been processed yet.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/assert.h"
#include "base/list.h"
#include "engine/send_queue.h"
#include "fabric/device.h"
#include "fabric/work.h"
#include "rrdk/memory.h"

namespace rrdk::engine {

struct ReceiveSlot {
  WorkTag tag{WorkKind::kReceive, this};
  Buffer buffer;
  uint32_t size = 0;            // the size of the posted Receive; 0: not posted
  uint32_t length = 0;          // of the message, if parked
  ReceiveSlot* next = nullptr;  // if bare or parked
};
static_assert(sizeof(ReceiveSlot) <= 40);

class ReceiveQueue {
 public:
  enum class Users : uint8_t {
    kOne,   // all slots are posted, or bare because no buffer was available
    kMany,  // as many slots are posted as were promised, and some more
  };
  // At most `most` Receives of `size` bytes. None is posted yet.
  ReceiveQueue(Memory& memory, uint32_t most, uint32_t size, Users users);
  ReceiveQueue(const ReceiveQueue&) = delete;
  ReceiveQueue& operator=(const ReceiveQueue&) = delete;

  bool shared() const noexcept { return shared_; }
  WorkList<fabric::ReceiveWr>& list() noexcept { return list_; }
  // Shared Receives: sets the queue to which they are posted.
  void post_to(fabric::SharedReceiveQueue& queue) noexcept { posted_to_ = &queue; }
  // Posts the list as far as it fits, to the shared receive queue or else to the queue pair.
  // Returns false if something is left.
  bool post(fabric::QueuePair& queue_pair) noexcept {
    RRDK_ASSERT(shared_ == (posted_to_ != nullptr));
    if (!list_.empty())
      list_.pop_front(shared_ ? posted_to_->post(list_) : queue_pair.post_receive(list_));
    return list_.empty();
  }
  uint32_t slots() const noexcept { return slots_; }
  uint32_t posted() const noexcept { return posted_; }

  // The size in bytes of each Receive that is posted from now on. Posted Receives cannot be taken
  // back; messages use them up. A larger size is only a wish until keep_size(): until then,
  // Receives of the old size are posted if there are no buffers of the new size. Shared Receives
  // keep their size.
  uint32_t size() const noexcept { return size_; }
  void resize(uint32_t size) noexcept;
  // Whether all Receives that should be posted are posted with that size.
  bool grown() const noexcept { return smaller_ == 0 && posted_ >= wanted(); }
  // Called when the larger size has been reached and others rely on it.
  void keep_size() noexcept { least_ = size_; }
  uint32_t kept_size() const noexcept { return least_; }

  // Posts `count` more, or none. Returns false if there are too few buffers.
  bool post_more(uint32_t count);
  // The same, but slots for which there is no buffer stay bare.
  void post_or_leave_bare(uint32_t count);
  // Stops posting: the only connection is over.
  void close() noexcept { closed_ = !shared_; }

  // Called when a Receive was reported; the slot has its buffer and is no longer posted.
  void on_completion(ReceiveSlot& slot) noexcept {
    RRDK_ASSERT(posted_ != 0 && slot.size != 0, posted_, slot.size);
    --posted_;
    smaller_ -= slot.size < size_;
    slot.size = 0;
  }
  // Drops a message of no use: the slot is posted again, or its buffer is given back if the only
  // connection is over.
  void drop(ReceiveSlot& slot) noexcept;
  // Posts the slot again with the buffer that it has. Returns false if that buffer is unsuitable
  // and no other is free.
  bool repost(ReceiveSlot& slot) noexcept;
  // Posts the slot, whose buffer was taken, with a fresh buffer. Returns false if it stays bare.
  bool refill(ReceiveSlot& slot) noexcept;
  // Swaps the slot's buffer for `other`, and posts the slot with that if it is suitable, otherwise
  // with a fresh one. Returns false if the slot stays bare.
  bool exchange(ReceiveSlot& slot, Buffer& other) noexcept;
  // Takes a used buffer back: a bare slot is posted with it, or it returns to its pool.
  void give(Buffer buffer) noexcept;
  // Whether slots wait for buffers.
  bool has_bare() const noexcept { return !bare_.empty() && posted_ < wanted(); }
  // Tries to get buffers for bare slots.
  void refill_bare() noexcept;

  // Shared Receives. Promises what one connection needs as a minimum, and posts more if it has to;
  // a quarter of the class is left for calls. Returns false if no buffer is free; nothing has
  // changed then.
  bool promise(uint32_t count);
  bool could_promise(uint32_t count) const {
    return unpromised() + room_for_more(Need::kBasic) >= count;
  }
  void take_back(uint32_t count) noexcept {
    RRDK_ASSERT(count <= promised_, count, promised_);
    promised_ -= count;
  }
  // Changes how much is promised by a share that knows that the Receives exist (unpromised()).
  void move_promise(uint32_t before, uint32_t now) noexcept {
    RRDK_ASSERT(before <= promised_, before, promised_);
    promised_ += now - before;
  }
  uint32_t promised() const noexcept { return promised_; }
  uint32_t parked() const noexcept { return parked_; }
  // The Receives that are promised to no connection, without the reserve.
  uint32_t unpromised() const noexcept {
    const uint32_t there = lasting();
    return there - std::min(there, promised_ + reserve_);
  }
  // Tries to post `count` more, promised to no connection, for bursts. Half the class is left so
  // that others can connect.
  void make_more_unpromised(uint32_t count) noexcept {
    if (may_try())
      grow(count, Need::kMore);
  }
  // The most that one connection may have: half of what is not promised yet, plus its own part.
  // This leaves some for later connections, even if earlier ones never shrink.
  uint32_t most_for_one(uint32_t own) const noexcept {
    const uint32_t left = capacity_ - std::min(capacity_, promised_);
    return left / 2 + own;
  }
  // Counts an answer. Returns how many were given before it to all who share.
  uint64_t count_answer() noexcept {
    if (answers_ % kAnswersPerLook == 0) [[unlikely]]
      look();
    return answers_++;
  }
  // The same for several answers at once. Returns the number including these.
  uint64_t count_answers(uint32_t count) noexcept {
    if (answers_ % kAnswersPerLook + count > kAnswersPerLook) [[unlikely]]
      look();
    answers_ += count;
    return answers_;
  }
  // True if all promised Receives are there: a message beyond them may keep its Receive.
  bool keeps_promises() const noexcept { return posted_ + parked_ >= promised_; }
  // Called when a message that was promised a Receive waits in it, and when it no longer does.
  void on_parked() noexcept { ++parked_; }
  void on_unparked() noexcept {
    RRDK_ASSERT(parked_ != 0);
    --parked_;
  }

 private:
  enum class Need : uint8_t { kBasic, kMore };
  static constexpr uint32_t kMostStep = 64;
  static constexpr uint32_t kMostReserve = 32;  // what a batch of completions can bring
  static constexpr uint32_t kStepsSpare = 4;
  // After there was no memory for more, this many requests pass before the next attempt.
  static constexpr uint32_t kTries = 256;
  static constexpr uint64_t kAnswersPerLook = 4096;

  void post(ReceiveSlot& slot) noexcept;
  [[gnu::cold]] bool repost_otherwise(ReceiveSlot& slot) noexcept;
  Buffer fresh() noexcept;
  void add_slab(uint32_t slots);
  void grow(uint32_t count, Need need) noexcept;
  void look() noexcept;  // checks how much memory there is now
  uint32_t room_for_more(Need need) const;
  bool may_try() noexcept {
    tries_left_ -= tries_left_ != 0;
    return tries_left_ == 0;
  }
  uint32_t wanted() const noexcept {
    return shared_ ? std::min(most_, promised_ + reserve_ - parked_) : wanted_;
  }
  // Receives that can back promises. That of a parked message counts, since it is posted again when
  // the message is taken. But no more than most_ are ever posted, while a connection may still be
  // promised as many as before.
  uint32_t lasting() const noexcept { return std::min(posted_ + parked_, most_); }
  bool too_many() const noexcept { return posted_ > promised_ + spare_ || posted_ >= most_; }

  Memory& memory_;
  const uint32_t most_;
  const bool shared_;
  // Shared Receives grow by this many, large ones by few. Some steps stay posted even if they are
  // promised to no connection, because bursts come and go.
  const uint32_t step_;
  // Receives that are promised to no connection: for messages beyond credits, until the fabric
  // holds those back.
  const uint32_t reserve_;
  // reserve_ plus the steps that stay posted; with one user, more than there can be
  const uint32_t spare_;
  bool closed_ = false;
  uint32_t size_;
  uint32_t least_;       // the least size of a Receive
  uint32_t slots_ = 0;   // that exist
  uint32_t wanted_ = 0;  // with one user: how many are to be posted
  uint32_t posted_ = 0;
  uint32_t smaller_ = 0;   // posted ones that are smaller than size_
  uint32_t promised_ = 0;  // by all shares
  uint32_t parked_ = 0;    // of all shares
  uint32_t capacity_ = 0;  // about how many it could have posted, at the last check
  uint64_t answers_ = 0;
  uint32_t tries_left_ = 0;
  base::Stack<ReceiveSlot, &ReceiveSlot::next> bare_;
  WorkList<fabric::ReceiveWr> list_;
  fabric::SharedReceiveQueue* posted_to_ = nullptr;
  std::vector<std::vector<ReceiveSlot>> slabs_;
};

// The share of one connection. From open() to close() it promises `least` of each kind, since with
// fewer the connection could stall.
class ReceiveShare {
 public:
  struct Least {
    uint32_t calls = 0;
    uint32_t replies = 0;
  };
  ReceiveShare(ReceiveQueue& queue, uint32_t slots, uint32_t spares, Least least) noexcept
      : queue_(queue), shared_(queue.shared()), slots_(slots), spares_(spares), least_(least) {}
  ReceiveShare(const ReceiveShare&) = delete;
  ReceiveShare& operator=(const ReceiveShare&) = delete;
  ~ReceiveShare() { close(); }

  // Posts or promises what the connection begins with, optionally with the spares. Returns false if
  // there are not enough buffers; nothing is posted for it then.
  bool open(bool with_spares);
  // Called when the connection is over and has nothing posted.
  void close() noexcept;

  // Adds spares: Receives for messages that take no credits. Returns false if fewer Receives are
  // posted than there are spares.
  bool add_spares() noexcept;
  bool lacks_spares() const noexcept { return lacks_spares_; }
  // The number of posted Receives that can back credits.
  uint32_t backing() const noexcept {
    return queue_.posted() > added_ ? queue_.posted() - added_ : 0;
  }

  // Shared Receives: sets how many calls, and how many replies, may yet come.
  void promise_calls(uint32_t due) noexcept {
    if (shared_)
      move(calls_, std::max(due, least_.calls));
  }
  void promise_replies(uint32_t in_flight) noexcept {
    if (shared_)
      move(replies_, std::max(in_flight, least_.replies));
  }
  uint32_t calls() const noexcept { return calls_; }
  uint32_t replies() const noexcept { return replies_; }

  // Parks a message until there is a ServedCall object for it; oldest first. Returns false if it
  // would take a shared Receive that was promised to another connection.
  bool park(ReceiveSlot& slot, uint32_t length) noexcept;
  // Called when the fabric holds messages back. A message that has `begun` to arrive already has a
  // Receive and may keep it. Returns false if that Receive was promised to another connection.
  bool count_begun(bool begun) noexcept {
    if (!shared_)
      return true;
    queue_.move_promise(begun_, begun);
    begun_ = begun;
    return !begun || queue_.keeps_promises();
  }
  // True if as many messages wait as were promised: the fabric must hold back what comes then,
  // until none waits.
  const bool& full() const noexcept { return full_; }
  ReceiveSlot* parked() const noexcept { return parked_.front(); }
  ReceiveSlot& unpark() noexcept;
  void park_first(ReceiveSlot& slot) noexcept;

 private:
  void note_parked() noexcept;
  void move(uint32_t& promised, uint32_t now) noexcept {
    queue_.move_promise(promised, now);
    promised = now;
  }

  ReceiveQueue& queue_;
  const bool shared_;
  bool open_ = false;
  bool lacks_spares_ = false;
  const uint32_t slots_;
  const uint32_t spares_;
  uint32_t added_ = 0;  // of these, added later
  const Least least_;
  uint32_t calls_ = 0;
  uint32_t replies_ = 0;
  bool full_ = false;
  bool begun_ = false;
  uint32_t num_parked_ = 0;
  uint32_t promised_parked_ = 0;  // of these, promised ones
  base::Queue<ReceiveSlot, &ReceiveSlot::next> parked_;
};

}  // namespace rrdk::engine
