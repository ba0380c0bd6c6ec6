// A lane: short messages of one connection that its engine and its driver exchange in place,
// without Receives, work requests or completions. The engine examines the next message where the
// driver has it, takes it, writes the answer where the driver will send it from, and continues with
// the next message:
//
//   void Engine::on_burst(Lane& lane, uint32_t most) {
//     for (; most != 0; --most) {
//       const LaneMessage message = lane.peek();
//       if (!message || !can_answer_at_once(message))
//         return;  // the driver delivers it by a Receive and a completion
//       std::byte* const reply = lane.begin(kReplyBytes);
//       if (reply == nullptr)
//         return;
//       lane.take(message);
//       lane.send(answer(message, reply));
//     }
//   }
//
// A driver that has lanes gives one to each connection (QueuePair::lane()) and calls its user
// (QueuePair::set_lane_user()) from CompletionQueue::poll(). Messages that the user does not take
// are delivered by the general path, in the order of all messages. A lane belongs to the thread of
// its queue pair.
//
// The code that runs for each message is in line here and knows one form of memory: rings of slots,
// each with a word before its bytes, as in the driver for shared memory. Everything else is a
// virtual function. A driver without such rings always shows an empty ring, and its messages come
// from slow_peek().
#pragma once

#include <immintrin.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "base/assert.h"
#include "rrdk/memory.h"

namespace rrdk::fabric {

// One machine load, of 4, 8, 16 or 32 bytes at any address, from memory that a peer may be writing.
// The compiler may perform a plain read through a pointer twice, and the second read may find what
// no check has seen. It cannot do that to a volatile asm. The loaded value may be a mixture of what
// the peer wrote at different times, but it is one value from then on.
template <typename Value>
[[gnu::always_inline]] inline Value load_once(const std::byte* from) noexcept {
  static_assert(std::is_trivially_copyable_v<Value>);
  struct [[gnu::packed, gnu::may_alias]] Unaligned {
    std::byte bytes[sizeof(Value)];
  };
  const auto& memory = *reinterpret_cast<const Unaligned*>(from);
  if constexpr (sizeof(Value) == 4) {
    uint32_t value;
    asm volatile("movl %1, %0" : "=r"(value) : "m"(memory));
    return std::bit_cast<Value>(value);
  } else if constexpr (sizeof(Value) == 8) {
    uint64_t value;
    asm volatile("movq %1, %0" : "=r"(value) : "m"(memory));
    return std::bit_cast<Value>(value);
  } else if constexpr (sizeof(Value) == 16) {
    __m128i value;
    asm volatile("vmovdqu %1, %0" : "=x"(value) : "m"(memory));
    return std::bit_cast<Value>(value);
  } else {
    static_assert(sizeof(Value) == 32);
    __m256i value;
    asm volatile("vmovdqu %1, %0" : "=x"(value) : "m"(memory));
    return std::bit_cast<Value>(value);
  }
}

// The same by words of 8 bytes, each loaded once: for machines without vectors, and for tests.
template <typename Value>
inline Value load_once_by_words(const std::byte* from) noexcept {
  static_assert(sizeof(Value) % sizeof(uint64_t) == 0);
  std::array<uint64_t, sizeof(Value) / sizeof(uint64_t)> words;
  for (size_t i = 0; i != words.size(); ++i)
    words[i] = load_once<uint64_t>(from + i * sizeof(uint64_t));
  return std::bit_cast<Value>(words);
}

// Copies `length` bytes, a multiple of 4, each loaded once.
inline void copy_once(std::byte* to, const std::byte* from, uint32_t length) noexcept {
  const auto move = [&](auto value) {
    std::memcpy(to, &value, sizeof value);
    to += sizeof value;
    from += sizeof value;
  };
  for (uint32_t left = length / 128; left != 0; --left) {
    for (int line = 0; line != 4; ++line)
      move(load_once<__m256i>(from));
  }
  for (uint32_t left = length % 128 / 32; left != 0; --left)
    move(load_once<__m256i>(from));
  if ((length & 16) != 0)
    move(load_once<__m128i>(from));
  if ((length & 8) != 0)
    move(load_once<uint64_t>(from));
  if ((length & 4) != 0)
    move(load_once<uint32_t>(from));
}

// A message that was peeked at. Its length was checked. Its bytes can be read only with load() and
// copy(), since the peer may be able to write them until the message is taken, and after.
class LaneMessage {
 public:
  // This many bytes can be loaded from every message, however short it is.
  static constexpr uint32_t kAlwaysReadable = 96;

  LaneMessage() = default;
  // Whether there is a message.
  explicit operator bool() const noexcept { return length_ != 0; }
  uint32_t length() const noexcept { return length_; }  // a multiple of 4
  // A key of ours that this message invalidates; it becomes invalid when the message is taken. 0:
  // none.
  uint32_t invalidated() const noexcept { return invalidated_; }

  // The bytes at `at`. No byte of a message may be loaded twice: if one copy is checked and another
  // one used, the one that is used was not checked. Builds with assertions detect it.
  template <typename Value>
  [[gnu::always_inline]] Value load(uint32_t at) const noexcept {
    note_loaded(at, sizeof(Value));
    return load_once<Value>(bytes_ + at);
  }
  // Copies `length` bytes from `at` on; both must be multiples of 4.
  void copy(std::byte* to, uint32_t at, uint32_t length) const noexcept {
    note_loaded(at, length);
    copy_once(to, bytes_ + at, length);
  }
  // The bytes themselves if no peer can write them: they do not change until the message is taken.
  // Null over shared memory.
  const std::byte* unshared() const noexcept { return shared_ ? nullptr : bytes_; }

 private:
  friend class Lane;
#ifdef NDEBUG
  void note_loaded(uint32_t, uint32_t) const noexcept {}
#else
  // Which words of four bytes were loaded from the message.
  using Loaded = std::array<uint64_t, 4096 / 4 / 64>;
  void note_loaded(uint32_t at, uint32_t bytes) const noexcept {
    const uint32_t end = length_ > kAlwaysReadable ? length_ : kAlwaysReadable;
    RRDK_ASSERT(at % 4 == 0 && bytes % 4 == 0 && at <= end && bytes <= end - at);
    for (uint32_t word = at / 4; word != (at + bytes) / 4; ++word) {
      uint64_t& loaded = (*loaded_)[word / 64];
      RRDK_ASSERT((loaded >> word % 64 & 1) == 0);  // false for a second load
      loaded |= uint64_t{1} << word % 64;
    }
  }
  Loaded* loaded_ = nullptr;
  uint64_t number_ = 0;
#endif

  const std::byte* bytes_ = nullptr;
  uint32_t length_ = 0;
  uint32_t invalidated_ = 0;
  bool shared_ = true;
  bool plain_ = true;  // nothing more is to be done when it is taken
};

class alignas(64) Lane {
 public:
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // The size of a slot in bytes. Its first 8 are the word; a message's bytes follow.
  static constexpr uint32_t kSlot = 256;
  static constexpr uint32_t kSlotWord = 8;
  // The longest message in a slot; the key that it invalidates is placed after it.
  static constexpr uint32_t kMostInSlot = kSlot - kSlotWord - sizeof(uint32_t);
  static_assert(kMostInSlot >= LaneMessage::kAlwaysReadable);

  // The longest message in the lane. Longer ones are received, and can be sent, only by the general
  // path. The limit may be larger than the posted Receives.
  uint32_t most() const noexcept { return most_; }

  // Returns the next message, or an empty one, also once the connection has ended. A second peek
  // may find another message. A message that does not suit a lane (too long, not a multiple of 4,
  // nonsense) is not returned here, and is handled by the general path. RDMA Writes before the
  // message have been placed. For on_burst() only, as take() is.
  [[gnu::always_inline]] LaneMessage peek() noexcept {
    const std::byte* const slot = slot_in();
    // Acquire: the peer has published the word after the bytes, and the bytes are read after the
    // word.
    const uint64_t word =
        reinterpret_cast<const std::atomic<uint64_t>*>(slot)->load(std::memory_order_acquire);
    const auto length = static_cast<uint16_t>(word >> 32);
    if (static_cast<uint32_t>(word) != static_cast<uint32_t>(taken_ + 1) || word >> 48 != kInSlot ||
        length - 4u > kMostInSlot - 4 || length % 4 != 0) [[unlikely]]
      return slow_peek(word);
    return found(slot + kSlotWord, length);
  }
  // Takes the message that peek() has returned; its bytes must not be read afterwards. flush()
  // tells the peer.
  void take(const LaneMessage& message) noexcept {
#ifndef NDEBUG
    RRDK_ASSERT(message.number_ == taken_ + 1, message.number_, taken_);
#endif
    ++taken_;
    if (!message.plain_) [[unlikely]]
      slow_take(message);
  }

  // Returns where the next message must be written, at most `most` bytes: memory that the peer does
  // not read before send(). Aligned to 4. Returns null if there is no space now, or if the
  // connection has ended. Until send() no other message can be sent: begin() returns null, and
  // post_send() and send_now() take nothing.
  [[gnu::always_inline]] std::byte* begin(uint32_t most) noexcept {
    if (most > kMostInSlot || sent_ >= send_end_ || claimed_ != Claimed::kNothing) [[unlikely]]
      return slow_begin(most);
    claimed_ = Claimed::kSlot;
    return slot_out() + kSlotWord;
  }
  // Sends the message, in the order of all Sends. `length` must be a multiple of 4 and at most what
  // begin() was asked for. `invalidate` is as for kSendInvalidate; 0: none. Nothing is reported: a
  // message is lost only with its connection. The peer may have the message at once, and has it
  // after flush(), which also wakes a sleeping peer.
  [[gnu::always_inline]] void send(uint32_t length, uint32_t invalidate = 0) noexcept {
    RRDK_ASSERT(length != 0 && length % 4 == 0);
    if (claimed_ != Claimed::kSlot) [[unlikely]]
      return slow_send(length, invalidate);
    claimed_ = Claimed::kNothing;
    uint64_t flags = kInSlot;
    if (invalidate != 0) {
      std::memcpy(slot_out() + kSlotWord + length, &invalidate, sizeof invalidate);
      flags |= kInvalidates;
    }
    publish(uint64_t{length} << 32 | flags << 48, length);
  }

  // An RDMA Write of what the spans name, one after the other, placed before the peer can see the
  // next message that is sent. The bytes must not change or move until nothing is untaken(); the
  // list itself is copied. No span may be empty. Returns false if the Write must be posted,
  // together with the message after it; nothing has been done then.
  virtual bool write(std::span<const MemorySpan> /*spans*/, uint32_t /*key*/,
                     uint64_t /*address*/) noexcept {
    return false;
  }
  // Whether write() can ever succeed.
  virtual bool can_write() const noexcept { return false; }
  // Whether the peer has yet to take something that was given to write(), or its transport takes
  // nothing more of what was sent here; and a count that changes whenever it takes something.
  // Nothing is untaken once the connection has ended.
  struct Untaken {
    bool any = false;
    uint64_t progress = 0;
  };
  virtual Untaken untaken() noexcept { return {}; }

  // Tells the peer what was taken, and wakes it for what was sent if it sleeps. The driver calls it
  // after on_burst(), or in the next poll at the latest. After sending outside on_burst() the user
  // must call it, once for all messages.
  void flush() noexcept {
    if (sent_something_ || taken_ != taken_told_)
      slow_flush();
  }

 protected:
  enum class Claimed : uint8_t { kNothing, kSlot, kElsewhere };
  // Flags of a slot's word: the message is in the slot; the key after it is invalidated.
  static constexpr uint64_t kInSlot = 1;
  static constexpr uint64_t kInvalidates = 2;

  Lane() = default;
  ~Lane() = default;

  // Shows an empty ring: for a driver without rings, and when a connection ends.
  void close() noexcept {
    static constinit std::array<std::atomic<uint64_t>, kSlot / sizeof(uint64_t)> empty{};
    in_ = reinterpret_cast<const std::byte*>(empty.data());
    in_mask_ = 0;
    send_end_ = 0;
    claimed_ = Claimed::kNothing;
  }
  // The next message, as peek() returns it. If it is not plain, slow_take() must be called for it.
  [[gnu::always_inline]] LaneMessage found(const std::byte* bytes, uint32_t length,
                                           uint32_t invalidated = 0, bool plain = true,
                                           bool shared = true) noexcept {
    LaneMessage message;
    message.bytes_ = bytes;
    message.length_ = length;
    message.invalidated_ = invalidated;
    message.plain_ = plain;
    message.shared_ = shared;
    offered_ = taken_ + 1;
#ifndef NDEBUG
    message.loaded_ = &loaded_;
    message.number_ = offered_;
    loaded_ = {};
#endif
    return message;
  }

  // Handles anything but a plain message in a slot.
  virtual LaneMessage slow_peek(uint64_t word) noexcept = 0;
  virtual void slow_take(const LaneMessage& message) noexcept = 0;
  virtual std::byte* slow_begin(uint32_t most) noexcept = 0;
  virtual void slow_send(uint32_t length, uint32_t invalidate) noexcept = 0;
  virtual void slow_flush() noexcept = 0;

  const std::byte* slot_in() const noexcept { return in_ + (taken_ & in_mask_) * kSlot; }
  std::byte* slot_out() const noexcept { return out_ + (sent_ & out_mask_) * kSlot; }

  // Shows the next slot to the peer. `word` lacks only the number; `length` is that of the bytes in
  // the slot. Release: a peer that sees the word sees what was written before it.
  [[gnu::always_inline]] void publish(uint64_t word, uint32_t length) noexcept {
    std::byte* const slot = slot_out();
    ++sent_;
    reinterpret_cast<std::atomic<uint64_t>*>(slot)->store(word | static_cast<uint32_t>(sent_),
                                                          std::memory_order_release);
    sent_something_ = true;
    prefetch_out(length);
  }
  // The peer has read the cache lines ahead earlier, and has copies. A store to such a line waits
  // until the peer's copy is gone, and all later stores wait behind it, so the lines are fetched
  // for writing in advance: not those of the next slot, which the peer reads all the time, but
  // those of the one after.
  [[gnu::always_inline]] void prefetch_out(uint32_t length) const noexcept {
    constexpr uint32_t kLine = 64;
    const std::byte* const ahead = out_ + ((sent_ + 1) & out_mask_) * kSlot;
    __builtin_prefetch(ahead, 1);
    if (length <= kLine - kSlotWord)
      return;
    __builtin_prefetch(ahead + kLine, 1);
    if (length > 2 * kLine - kSlotWord) {
      for (uint32_t line = 2; line != kSlot / kLine; ++line)
        __builtin_prefetch(ahead + line * kLine, 1);
    }
  }

  // The peer's ring, which the peer may write at any time; the number of messages taken from it,
  // and how many of these the peer was told about.
  const std::byte* in_ = nullptr;
  uint64_t in_mask_ = 0;  // slots - 1
  uint64_t taken_ = 0;
  uint64_t taken_told_ = 0;
  uint64_t offered_ = 0;  // the last one that peek() has found, counted from 1
  // Our ring, which only we can write; the number of messages put into it, and how many there may
  // be before the peer's progress must be checked.
  std::byte* out_ = nullptr;
  uint64_t out_mask_ = 0;
  uint64_t sent_ = 0;
  uint64_t send_end_ = 0;
  uint32_t most_ = 0;
  Claimed claimed_ = Claimed::kNothing;
  bool sent_something_ = false;  // since the peer was last told

#ifndef NDEBUG
 private:
  LaneMessage::Loaded loaded_{};
#endif
};

// The engine's side.
class LaneUser {
 public:
  // Called when there may be messages. Takes and answers them one after the other, at most `most`,
  // and returns at the first one that it does not take. Each reply must be sent before the next
  // message is examined, so that the peer works meanwhile. Called by CompletionQueue::poll(), never
  // recursively, and not while Receives are held (QueuePair::hold_receives()). It may end
  // connections, but must not destroy queue pairs.
  virtual void on_burst(Lane& lane, uint32_t most) noexcept = 0;

 protected:
  ~LaneUser() = default;
};

}  // namespace rrdk::fabric
