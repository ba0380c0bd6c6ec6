// A lane: short messages of one connection that its engine and its driver exchange in place,
// without Receives, work requests or completions. The engine looks at the next message where the
// driver has it, takes it, writes the answer where the driver will send it from, and goes on with
// the next one:
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
// (QueuePair::set_lane_user()) from CompletionQueue::poll(). What the user does not take is
// delivered the general way, in the order of all messages. All of it belongs to the thread of the
// queue pair.
//
// What happens for each message is in line here and knows one form of memory: rings of slots, each
// with a word in front of its bytes, as the driver for shared memory has them. Everything else is a
// virtual function. A driver without such rings shows an empty one for ever, and its messages come
// from slow_peek().
#pragma once

#include <immintrin.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/assert.h"
#include "rrdk/memory.h"

namespace rrdk::fabric {

// One load of the machine's, of 4, 8, 16 or 32 bytes at any address, from memory that a peer may be
// writing. A plain read through a pointer may be done twice by the compiler, and the second may
// find what no check has seen. It cannot do that to a volatile asm. What the load brings may be a
// mixture of what the peer wrote at different times, but it is one value from then on.
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

// A message that was looked at. Its length was checked; its bytes can be had by load() and copy()
// only, since the peer may be able to write them until the message is taken, and after.
class LaneMessage {
 public:
  // This many bytes can be loaded from every message, however short it is.
  static constexpr uint32_t kAlwaysReadable = 96;

  LaneMessage() = default;
  // Whether there is one.
  explicit operator bool() const noexcept { return length_ != 0; }
  uint32_t length() const noexcept { return length_; }  // a multiple of 4
  // A key of ours that the peer gives up by this message. It dies when the message is taken.
  // 0: none.
  uint32_t invalidated() const noexcept { return invalidated_; }

  // The bytes at `at`. No byte of a message is to be loaded twice: what is checked in one copy and
  // used in another was not checked. Builds with assertions notice.
  template <typename Value>
  [[gnu::always_inline]] Value load(uint32_t at) const noexcept {
    note_loaded(at, sizeof(Value));
    return load_once<Value>(bytes_ + at);
  }
  // The same of `length` bytes from `at` on, multiples of 4.
  void copy(std::byte* to, uint32_t at, uint32_t length) const noexcept {
    note_loaded(at, length);
    copy_once(to, bytes_ + at, length);
  }
  // The bytes themselves, where no peer can write them: they stay as they are until the message is
  // taken. Null over shared memory.
  const std::byte* unshared() const noexcept { return shared_ ? nullptr : bytes_; }

 private:
  friend class Lane;
#ifdef NDEBUG
  void note_loaded(uint32_t, uint32_t) const noexcept {}
#else
  // Which words of four bytes were loaded of the message that is looked at.
  using Loaded = std::array<uint64_t, 4096 / 4 / 64>;
  void note_loaded(uint32_t at, uint32_t bytes) const noexcept {
    const uint32_t end = length_ > kAlwaysReadable ? length_ : kAlwaysReadable;
    RRDK_ASSERT(at % 4 == 0 && bytes % 4 == 0 && at <= end && bytes <= end - at);
    for (uint32_t word = at / 4; word != (at + bytes) / 4; ++word) {
      uint64_t& loaded = (*loaded_)[word / 64];
      RRDK_ASSERT((loaded >> word % 64 & 1) == 0);  // for the second time
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
  bool plain_ = true;  // there is nothing to do when it is taken
};

class alignas(64) Lane {
 public:
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Bytes of a slot. Its first 8 are the word; a message's bytes come behind it.
  static constexpr uint32_t kSlot = 256;
  static constexpr uint32_t kSlotWord = 8;
  // The longest message in a slot: the key that it invalidates has its place behind it.
  static constexpr uint32_t kMostInSlot = kSlot - kSlotWord - sizeof(uint32_t);
  static_assert(kMostInSlot >= LaneMessage::kAlwaysReadable);

  // Longer ones come the general way, and can be sent that way only. They may be longer than the
  // Receives that are posted.
  uint32_t most() const noexcept { return most_; }

  // The next message, or none, and none once the connection has ended. One look: a second one may
  // find another message. What is no message for a lane (too long, not a multiple of 4, nonsense)
  // is none here, and is dealt with the general way. RDMA Writes in front of the message have been
  // placed. For on_burst() only, as take() is.
  [[gnu::always_inline]] LaneMessage peek() noexcept {
    const std::byte* const slot = slot_in();
    // Acquire: the peer has published the word after the bytes, and they are read after it.
    const uint64_t word =
        reinterpret_cast<const std::atomic<uint64_t>*>(slot)->load(std::memory_order_acquire);
    const auto length = static_cast<uint16_t>(word >> 32);
    if (static_cast<uint32_t>(word) != static_cast<uint32_t>(taken_ + 1) || word >> 48 != kInSlot ||
        length - 4u > kMostInSlot - 4 || length % 4 != 0) [[unlikely]]
      return slow_peek(word);
    return found(slot + kSlotWord, length);
  }
  // Takes what peek() said is next: its bytes are not read after this. flush() tells the peer.
  void take(const LaneMessage& message) noexcept {
#ifndef NDEBUG
    RRDK_ASSERT(message.number_ == taken_ + 1, message.number_, taken_);
#endif
    ++taken_;
    if (!message.plain_) [[unlikely]]
      slow_take(message);
  }

  // Where the next message is to be written, at most `most` bytes: memory that the peer does not
  // look at before send(). Aligned to 4. Null: there is no place for it now, or for any since the
  // connection has ended. Until send() no other message can be sent: begin() is null, and
  // post_send() and send_now() take nothing.
  [[gnu::always_inline]] std::byte* begin(uint32_t most) noexcept {
    if (most > kMostInSlot || sent_ >= send_end_ || claimed_ != Claimed::kNothing) [[unlikely]]
      return slow_begin(most);
    claimed_ = Claimed::kSlot;
    return slot_out() + kSlotWord;
  }
  // Sends it, in the order of all Sends. `length`: a multiple of 4 of at most what begin() was
  // asked for. `invalidate`: as of kSendInvalidate; 0: none. Nothing is reported: a message is lost
  // only with its connection. The peer may have it at once, and has it after flush(), which also
  // wakes one that sleeps.
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

  // An RDMA Write of one span, placed before the next message that is sent can be looked at. `span`
  // stays as it is until nothing is untaken(), and does not move. False: it is to be posted, with
  // the message behind it. Nothing is claimed then or now.
  virtual bool write(const MemorySpan& /*span*/, uint32_t /*key*/, uint64_t /*address*/) noexcept {
    return false;
  }
  // Whether write() ever does it.
  virtual bool can_write() const noexcept { return false; }
  // Whether the peer still has to take some of what write() was given, or its transport takes
  // nothing more of what was sent here; and a count that changes whenever it takes something.
  // Nothing once the connection has ended.
  struct Untaken {
    bool any = false;
    uint64_t progress = 0;
  };
  virtual Untaken untaken() noexcept { return {}; }

  // Tells the peer what was taken, and wakes it for what was sent if it sleeps. The driver does it
  // after on_burst(), or by the next poll at the latest; after what was sent elsewhere its user
  // does, once for all.
  void flush() noexcept {
    if (sent_something_ || taken_ != taken_told_)
      slow_flush();
  }

 protected:
  enum class Claimed : uint8_t { kNothing, kSlot, kElsewhere };
  // Flags of a slot's word: the message is in the slot; the key behind it dies.
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
  // The message that is next, as peek() returns it. Not plain: slow_take() is to be called for it.
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

  // What is not a message in a slot, or has more to it.
  virtual LaneMessage slow_peek(uint64_t word) noexcept = 0;
  virtual void slow_take(const LaneMessage& message) noexcept = 0;
  virtual std::byte* slow_begin(uint32_t most) noexcept = 0;
  virtual void slow_send(uint32_t length, uint32_t invalidate) noexcept = 0;
  virtual void slow_flush() noexcept = 0;

  const std::byte* slot_in() const noexcept { return in_ + (taken_ & in_mask_) * kSlot; }
  std::byte* slot_out() const noexcept { return out_ + (sent_ & out_mask_) * kSlot; }

  // Shows the next slot to the peer. `word`: but for the number; `length`: of the bytes in the
  // slot. Release: a peer that sees the word sees what was written before it.
  [[gnu::always_inline]] void publish(uint64_t word, uint32_t length) noexcept {
    std::byte* const slot = slot_out();
    ++sent_;
    reinterpret_cast<std::atomic<uint64_t>*>(slot)->store(word | static_cast<uint32_t>(sent_),
                                                          std::memory_order_release);
    sent_something_ = true;
    prefetch_out(length);
  }
  // The peer has read the cache lines ahead before, and has copies. A store to such a line waits
  // until the peer's copy is gone, and all later stores wait behind it, so the lines are fetched
  // for writing in advance: not those of the next slot, which the peer reads all the time, but of
  // the one after.
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

  // The peer's ring, which it may write at any time; messages taken from it, and how many of these
  // the peer was told of.
  const std::byte* in_ = nullptr;
  uint64_t in_mask_ = 0;  // slots - 1
  uint64_t taken_ = 0;
  uint64_t taken_told_ = 0;
  uint64_t offered_ = 0;  // the last that peek() has found, counted from 1
  // Ours, which no one else can write; messages put into it, and how many there may be before the
  // peer's progress is to be looked at.
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
  // There may be messages. Takes and answers them one after the other, at most `most`, and returns
  // at the first that it does not take. Each reply is to be sent before the next message is looked
  // at: the peer works meanwhile. Called by CompletionQueue::poll(), never within itself, and not
  // while Receives are held (QueuePair::hold_receives()). It may end connections, but not destroy
  // queue pairs.
  virtual void on_burst(Lane& lane, uint32_t most) noexcept = 0;

 protected:
  ~LaneUser() = default;
};

}  // namespace rrdk::fabric
