// Receives, and one connection's part in them.
//
// A ReceiveQueue is posted to one queue pair, or to a shared receive queue, from which many
// connections of one poll core take. Receives come from the size class that fits them and from no
// other: they stay posted for as long as peers like to be idle, and must not use up what calls
// need.
//
// A ReceiveShare says how many of them one connection has promised to its peer, by credits for
// calls and by calls of its own that want replies. What all shares together have promised is never
// more than what is posted or holds a message that has not been looked at yet.
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
  uint32_t size = 0;            // as it is posted; 0: it is not
  uint32_t length = 0;          // of the message, when parked
  ReceiveSlot* next = nullptr;  // when bare or parked
};
static_assert(sizeof(ReceiveSlot) <= 40);

class ReceiveQueue {
 public:
  enum class Users : uint8_t {
    kOne,   // all slots are posted, or bare because no buffer was to be had
    kMany,  // as many slots are posted as were promised, and some more
  };
  // At most `most` Receives of `size` bytes. None is posted yet.
  ReceiveQueue(Memory& memory, uint32_t most, uint32_t size, Users users);
  ReceiveQueue(const ReceiveQueue&) = delete;
  ReceiveQueue& operator=(const ReceiveQueue&) = delete;

  bool shared() const noexcept { return shared_; }
  WorkList<fabric::ReceiveWr>& list() noexcept { return list_; }
  // Shared ones: where they are posted.
  void post_to(fabric::SharedReceiveQueue& queue) noexcept { posted_to_ = &queue; }
  // Posts what is in the list, as far as it fits: there, or to the queue pair. False: something is
  // left.
  bool post(fabric::QueuePair& queue_pair) noexcept {
    RRDK_ASSERT(shared_ == (posted_to_ != nullptr));
    if (!list_.empty())
      list_.pop_front(shared_ ? posted_to_->post(list_) : queue_pair.post_receive(list_));
    return list_.empty();
  }
  uint32_t slots() const noexcept { return slots_; }
  uint32_t posted() const noexcept { return posted_; }

  // Bytes of each Receive that is posted from now on. Posted ones cannot be taken back: messages
  // use them up. A larger size is only wished for until keep_size(): up to then, where there are no
  // buffers of that size, Receives of the old size are posted. Shared Receives keep their size.
  uint32_t size() const noexcept { return size_; }
  void resize(uint32_t size) noexcept;
  // All that should be posted are, with that size.
  bool grown() const noexcept { return smaller_ == 0 && posted_ >= wanted(); }
  // The wish has come true, and is relied on.
  void keep_size() noexcept { least_ = size_; }
  uint32_t kept_size() const noexcept { return least_; }

  // Posts that many more, or none. False: there are too few buffers.
  bool post_more(uint32_t count);
  // The same, but what finds no buffer stays bare.
  void post_or_leave_bare(uint32_t count);
  // No more posting: its one connection is over.
  void close() noexcept { closed_ = !shared_; }

  // A Receive was reported; the slot has its buffer and is no longer posted.
  void on_completion(ReceiveSlot& slot) noexcept {
    RRDK_ASSERT(posted_ != 0 && slot.size != 0, posted_, slot.size);
    --posted_;
    smaller_ -= slot.size < size_;
    slot.size = 0;
  }
  // What came in it is of no use: the slot is posted again, or its buffer is given back where its
  // one connection is over.
  void drop(ReceiveSlot& slot) noexcept;
  // Posts the slot again with the buffer that it has. False: that one will not do, and no other is
  // free.
  bool repost(ReceiveSlot& slot) noexcept;
  // Posts the slot, whose buffer was taken, with a fresh one. False: it stays bare.
  bool refill(ReceiveSlot& slot) noexcept;
  // Swaps the slot's buffer for `other`, and posts the slot with that if it will do, else with a
  // fresh one. False: it stays bare.
  bool exchange(ReceiveSlot& slot, Buffer& other) noexcept;
  // A used buffer comes back: a bare slot is posted with it, or it returns to its pool.
  void give(Buffer buffer) noexcept;
  // Slots wait for buffers.
  bool has_bare() const noexcept { return !bare_.empty() && posted_ < wanted(); }
  // Tries to get buffers for bare slots.
  void refill_bare() noexcept;

  // Shared ones. Promises what one connection needs to get on at all, and posts more if it has to:
  // a quarter of the class is left for calls. False: no buffer is free, and nothing has changed.
  bool promise(uint32_t count);
  bool could_promise(uint32_t count) const {
    return unpromised() + room_for_more(Need::kBasic) >= count;
  }
  void take_back(uint32_t count) noexcept {
    RRDK_ASSERT(count <= promised_, count, promised_);
    promised_ -= count;
  }
  // One that was promised, by shares that know that it is there (unpromised()).
  void move_promise(uint32_t before, uint32_t now) noexcept {
    RRDK_ASSERT(before <= promised_, before, promised_);
    promised_ += now - before;
  }
  uint32_t promised() const noexcept { return promised_; }
  uint32_t parked() const noexcept { return parked_; }
  // Those that are promised to no connection, without the reserve.
  uint32_t unpromised() const noexcept {
    const uint32_t there = lasting();
    return there - std::min(there, promised_ + reserve_);
  }
  // Tries to post that many more, promised to no connection, for bursts: half the class is left, so
  // that others can connect.
  void make_more_unpromised(uint32_t count) noexcept {
    if (may_try())
      grow(count, Need::kMore);
  }
  // The most that one connection is to have: half of what is not promised yet, with its own part.
  // This leaves some for later connections, even if earlier ones never shrink.
  uint32_t most_for_one(uint32_t own) const noexcept {
    const uint32_t left = capacity_ - std::min(capacity_, promised_);
    return left / 2 + own;
  }
  // How many answers were given before this one, to all who share.
  uint64_t count_answer() noexcept {
    if (answers_ % kAnswersPerLook == 0) [[unlikely]]
      look();
    return answers_++;
  }
  // The same for several at once. Returns how many were given with these.
  uint64_t count_answers(uint32_t count) noexcept {
    if (answers_ % kAnswersPerLook + count > kAnswersPerLook) [[unlikely]]
      look();
    answers_ += count;
    return answers_;
  }
  // All promised ones are there: a message beyond them may keep its Receive.
  bool keeps_promises() const noexcept { return posted_ + parked_ >= promised_; }
  // A message that was promised waits in its Receive, or no longer does.
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
  // When there was no memory for more, this many requests go by before the next attempt.
  static constexpr uint32_t kTries = 256;
  static constexpr uint64_t kAnswersPerLook = 4096;

  void post(ReceiveSlot& slot) noexcept;
  [[gnu::cold]] bool repost_otherwise(ReceiveSlot& slot) noexcept;
  Buffer fresh() noexcept;
  void add_slab(uint32_t slots);
  void grow(uint32_t count, Need need) noexcept;
  void look() noexcept;  // how much memory there is now
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
  // Shared ones grow by this many, of large buffers by few. Some steps stay posted even when no
  // connection was promised them: bursts come and go.
  const uint32_t step_;
  // These are promised to no connection: for messages beyond credits, until the fabric holds them
  // back.
  const uint32_t reserve_;
  const uint32_t spare_;  // with those that stay posted; of one user, more than there can be
  bool closed_ = false;
  uint32_t size_;
  uint32_t least_;       // that a Receive may have
  uint32_t slots_ = 0;   // that exist
  uint32_t wanted_ = 0;  // of one user: how many are to be posted
  uint32_t posted_ = 0;
  uint32_t smaller_ = 0;   // posted ones that are smaller than size_
  uint32_t promised_ = 0;  // by all shares
  uint32_t parked_ = 0;    // of all shares
  uint32_t capacity_ = 0;  // about how many it could have posted, the last time that it was looked
  uint64_t answers_ = 0;
  uint32_t tries_left_ = 0;
  base::Stack<ReceiveSlot, &ReceiveSlot::next> bare_;
  WorkList<fabric::ReceiveWr> list_;
  fabric::SharedReceiveQueue* posted_to_ = nullptr;
  std::vector<std::vector<ReceiveSlot>> slabs_;
};

// One connection's part. `least` of each kind are promised from open() to close(): with fewer the
// connection could stand still.
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

  // Posts or promises what the connection begins with, the spares too or without them. False: there
  // are not enough buffers, and nothing is posted for it.
  bool open(bool with_spares);
  // The connection is over, and has nothing posted any more.
  void close() noexcept;

  // Spares are Receives for messages that take no credits. False: not even so many Receives are
  // posted as there are spares.
  bool add_spares() noexcept;
  bool lacks_spares() const noexcept { return lacks_spares_; }
  // Of those that are posted, what credits may stand on.
  uint32_t backing() const noexcept {
    return queue_.posted() > added_ ? queue_.posted() - added_ : 0;
  }

  // Shared Receives: how many calls may yet come, and replies.
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

  // Messages that wait for an ServedCall object, oldest first. False: it would take a shared
  // Receive that was promised to another connection.
  bool park(ReceiveSlot& slot, uint32_t length) noexcept;
  // The fabric holds messages back, but one that has `begun` to arrive has a Receive already, and
  // may keep it. False: that Receive was promised to another connection.
  bool count_begun(bool begun) noexcept {
    if (!shared_)
      return true;
    queue_.move_promise(begun_, begun);
    begun_ = begun;
    return !begun || queue_.keeps_promises();
  }
  // As many wait as were promised: the fabric is to hold back what comes then, until none waits.
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
  uint32_t added_ = 0;  // of them
  const Least least_;
  uint32_t calls_ = 0;
  uint32_t replies_ = 0;
  bool full_ = false;
  bool begun_ = false;
  uint32_t num_parked_ = 0;
  uint32_t promised_parked_ = 0;  // of them
  base::Queue<ReceiveSlot, &ReceiveSlot::next> parked_;
};

}  // namespace rrdk::engine
