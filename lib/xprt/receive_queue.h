// The Receives of one connection: a fixed number of slots, each posted with a buffer, or bare
// because no buffer was to be had, or parked with a message that can not be taken yet. Some of the
// slots are spares, for messages that take no credits; they are not posted before add_spares().
//
// Receives are taken from the size class that fits them and from no other: they stay posted for as
// long as a peer likes to be idle, and must not use up what calls need.
#pragma once

#include <cstdint>
#include <vector>

#include "base/list.h"
#include "fabric/work.h"
#include "rrdk/memory.h"
#include "xprt/work_list.h"

namespace rrdk::xprt {

struct ReceiveSlot {
  WorkTag tag{WorkKind::kReceive, this};
  Buffer buffer;
  uint32_t size = 0;            // as it is posted; 0: it is not
  uint32_t length = 0;          // of the message, when parked
  ReceiveSlot* next = nullptr;  // when bare or parked
};

class ReceiveQueue {
 public:
  ReceiveQueue(Memory& memory, uint32_t slots, uint32_t spares, uint32_t size);
  ReceiveQueue(const ReceiveQueue&) = delete;
  ReceiveQueue& operator=(const ReceiveQueue&) = delete;

  WorkList<fabric::ReceiveWr>& list() noexcept { return list_; }
  uint32_t slots() const noexcept { return static_cast<uint32_t>(slots_.size()); }
  uint32_t posted() const noexcept { return posted_; }
  // Of these, what credits may stand on.
  uint32_t backing() const noexcept { return posted_ > added_ ? posted_ - added_ : 0; }
  // Bytes of those that are posted from now on. What is posted can not be taken back: it goes as
  // messages come. A larger size is a wish, and as long as it is one, Receives of the old size take
  // its place where there are no buffers.
  uint32_t size() const noexcept { return size_; }
  void resize(uint32_t size) noexcept;
  // All slots are posted with that size.
  bool grown() const noexcept {
    return smaller_ == 0 && posted_ == slots_.size() - spares_ + added_;
  }
  // The wish has come true, and is relied on.
  void keep_size() noexcept { least_ = size_; }
  uint32_t kept_size() const noexcept { return least_; }

  // Posts all slots, or all but the spares. False: there are not enough buffers, and none is
  // posted.
  bool prepare(bool with_spares);
  // Posts the spares too, or leaves them bare. False: not even so many slots are posted as there
  // are spares.
  bool add_spares() noexcept;
  bool lacks_spares() const noexcept { return lacks_spares_; }
  // No more posting: the connection is over.
  void close() noexcept { closed_ = true; }

  // A Receive was reported; the slot has its buffer and is no longer posted.
  void on_completion(ReceiveSlot& slot) noexcept {
    --posted_;
    smaller_ -= slot.size < size_;
    slot.size = 0;
  }
  // Posts the slot again with the buffer that it has.
  void repost(ReceiveSlot& slot) noexcept;
  // Posts the slot, whose buffer was taken, with a fresh one. False: it stays bare.
  bool refill(ReceiveSlot& slot) noexcept;
  // Swaps the slot's buffer for `other`, and posts the slot with that if it will do, else with a
  // fresh one. False: it stays bare.
  bool exchange(ReceiveSlot& slot, Buffer& other) noexcept;
  // A used buffer comes back: a bare slot is posted with it, or it returns to its pool.
  void give(Buffer buffer) noexcept;
  bool has_bare() const noexcept { return !bare_.empty(); }
  // Tries to get buffers for bare slots.
  void refill_bare() noexcept;

  // Messages that wait for an IncomingCall object, oldest first.
  void park(ReceiveSlot& slot, uint32_t length) noexcept;
  ReceiveSlot* parked() const noexcept { return parked_.front(); }
  ReceiveSlot& unpark() noexcept { return parked_.pop(); }
  void park_first(ReceiveSlot& slot) noexcept { parked_.push_front(slot); }

  // Gives all buffers of parked slots back, when the connection is over.
  void drop_parked() noexcept;

 private:
  void post(ReceiveSlot& slot) noexcept;

  Buffer fresh() noexcept;

  Memory& memory_;
  uint32_t size_;
  uint32_t least_;  // that a Receive may have
  uint32_t posted_ = 0;
  uint32_t smaller_ = 0;  // of them, than size_
  uint32_t spares_;
  uint32_t added_ = 0;  // of them
  bool lacks_spares_;
  bool closed_ = false;
  base::Stack<ReceiveSlot, &ReceiveSlot::next> bare_;
  base::Queue<ReceiveSlot, &ReceiveSlot::next> parked_;
  WorkList<fabric::ReceiveWr> list_;
  std::vector<ReceiveSlot> slots_;
};

}  // namespace rrdk::xprt
