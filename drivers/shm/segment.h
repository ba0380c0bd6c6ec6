// The channel segment: what one end of a connection writes for the other to read. Each end owns
// one, in a separate memfd for each connection, which no other process can write. Nothing in the
// peer's segment is trusted: the reader takes each word once and checks it.
//
//   State | message slots (a ring; the owner produces) | remote keys of the owner | copies (a ring
//   of bytes: messages that are too long for a slot, and short enough to be copied twice)
#pragma once

#include <immintrin.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include "base/assert.h"
#include "base/prefetch_datapath.h"
#include "fabric/device.h"
#include "fabric/lane.h"

namespace rrdk::shm {

constexpr size_t kCacheLine = 64;

// Shared words: an atomic that has the same layout in both processes and is used without a lock.
using Shared32 = std::atomic<uint32_t>;
using Shared64 = std::atomic<uint64_t>;
static_assert(Shared32::is_always_lock_free && sizeof(Shared32) == 4);
static_assert(Shared64::is_always_lock_free && sizeof(Shared64) == 8);

// Why an end closed, as it reports to its peer. Values cross processes.
enum class CloseReason : uint32_t {
  kOpen = 0,
  kDisconnected = 1,    // requested
  kMessageTooLong = 2,  // the peer's message did not fit the Receive that it met
  kAccessRefused = 3,   // the peer's key, or the peer's use of ours, was refused
  kProtocol = 4,        // the peer wrote what no honest peer writes
  kLocalError = 5,      // our own fault
  kTooMuchMemory = 6,   // the peer's regions are larger than what may be mapped here
  kNoDescriptors = 7,   // none was left for a region of the peer's
  kNotMapped = 8,       // the system did not map a region of the peer's
};

// The events that the owner wants reported through its doorbell (State::wants).
constexpr uint32_t kWantsMessages = 1;  // a message was put into the peer's ring
constexpr uint32_t kWantsConsumed = 2;  // an acknowledged message of ours was consumed

struct State {
  // Rarely written, so the peer's loads hit its cache.
  alignas(kCacheLine) Shared32 wants;
  Shared32 closed;         // CloseReason
  Shared64 closed_number;  // of the peer's message that was at fault, if there is one
  // How many of the peer's messages were consumed. Written once per poll.
  alignas(kCacheLine) Shared64 consumed;
  // The peer's key by which the owner is reading the peer's memory at this moment; 0: none.
  //
  //   reader:      reading = key;  key still shown? then check and copy;  reading = 0
  //   key's owner: shows it no more;  the peer is not reading by it? then the key is invalid
  alignas(kCacheLine) Shared32 reading;
};
static_assert(sizeof(State) == 3 * kCacheLine);
static_assert(offsetof(State, consumed) == kCacheLine);
static_assert(offsetof(State, reading) == 2 * kCacheLine);

// A piece of a message or of an RDMA Write that stays in the sender's memory. The receiver copies
// it: neither end ever writes into the memory of the other.
struct RemoteSge {
  uint64_t offset;  // within the region
  uint32_t region;
  uint32_t length;
};

enum SlotFlags : uint8_t {
  kInline = 1,      // the payload is in the slot; otherwise `sges` name it
  kInvalidate = 2,  // `key` is one of the receiver's, and this message invalidates it
  kAckWanted = 4,   // the sender waits for this message to be consumed
  kWrite = 8,       // an RDMA Write to `key` of the receiver's, at `far.address`
  kCopied = 16,     // the payload is in the copies, at `far.address`; there are no `sges`
};

// The first word of a slot, published last and read at once: no part can change between a check and
// its use.
struct SlotWord {
  uint32_t sequence;  // the message's number plus one; wraps
  uint16_t length;    // kInline only
  uint8_t flags;
  uint8_t num_sges;  // otherwise
};

// One message, or an RDMA Write. A NULL reply and its word fit in one cache line.
struct alignas(kCacheLine) Slot {
  static constexpr size_t kSize = fabric::Lane::kSlot;
  static constexpr size_t kRoom = kSize - sizeof(SlotWord);
  // Before the key, if there is one.
  static constexpr uint32_t kMaxInline = kRoom - sizeof(uint32_t);
  // What `sges` name.
  struct Far {
    uint32_t key;  // kInvalidate, kWrite
    uint32_t length;
    uint64_t address;  // kWrite: the destination, as the key's owner names it. kCopied: within the
                       // copies
    RemoteSge sges[(kRoom - 16) / sizeof(RemoteSge)];
  };
  static constexpr uint32_t kMaxSges = sizeof(Far::sges) / sizeof(RemoteSge);

  std::atomic<SlotWord> word;
  union {
    std::byte room[kRoom];  // kInline: the bytes, and with kInvalidate the key right after them
    Far far;
  };
};
static_assert(std::atomic<SlotWord>::is_always_lock_free && sizeof(SlotWord) == 8);
static_assert(sizeof(Slot) == Slot::kSize && offsetof(Slot, room) == sizeof(SlotWord));
// What fabric::Lane knows about it.
static_assert(sizeof(SlotWord) == fabric::Lane::kSlotWord &&
              Slot::kMaxInline == fabric::Lane::kMostInSlot);
static_assert(std::bit_cast<uint64_t>(SlotWord{1, 2, 3, 4}) == 0x0403'0002'0000'0001);
static_assert(offsetof(Slot, far.sges) + 2 * sizeof(RemoteSge) < kCacheLine);

// Prefetches the cache lines of a slot of the peer's that will soon be read, for a message with
// such flags and length. Beyond the ring's last slot this is useless, and harmless.
[[gnu::always_inline]] inline void prefetch_slot(const Slot* slot, uint32_t flags,
                                                 uint32_t length) noexcept {
  constexpr size_t kFirst = kCacheLine - offsetof(Slot, room);
  const auto* const bytes = reinterpret_cast<const std::byte*>(slot);
  __builtin_prefetch(bytes);
  if ((flags & kInline) == 0 || length <= kFirst)
    return;
  __builtin_prefetch(bytes + kCacheLine);
  if (length > kFirst + kCacheLine) {
    for (size_t at = 2 * kCacheLine; at < Slot::kSize; at += kCacheLine)
      __builtin_prefetch(bytes + at);
  }
}

// Copies what fits a slot, in line: a call of memcpy costs more than these few bytes.
inline void copy_short(std::byte* __restrict to, const std::byte* __restrict from,
                       uint32_t length) noexcept {
  if (length > Slot::kRoom) {
    std::memcpy(to, from, length);
    return;
  }
  for (; length > 32; length -= 32, to += 32, from += 32)
    std::memcpy(to, from, 32);
  if (length >= 16) {
    std::memcpy(to, from, 16);
    std::memcpy(to + length - 16, from + length - 16, 16);  // some of these again
  } else if (length >= 8) {
    std::memcpy(to, from, 8);
    std::memcpy(to + length - 8, from + length - 8, 8);
  } else {
    for (uint32_t i = 0; i < length; ++i)
      to[i] = from[i];
  }
}

// Copies one run of a list. The C library copies some KiB by "rep movsb", whose beginning costs a
// page a quarter of its time.
inline void copy_page(std::byte* __restrict to, const std::byte* __restrict from,
                      uint32_t length) noexcept {
  constexpr uint32_t kStep = 4 * sizeof(__m256i);
  constexpr uint32_t kLong = 64 << 10;
  if (length < kLong) {
    for (; length >= kStep; length -= kStep, to += kStep, from += kStep) {
      const auto* const source = reinterpret_cast<const __m256i*>(from);
      auto* const target = reinterpret_cast<__m256i*>(to);
      const __m256i a = _mm256_loadu_si256(source);
      const __m256i b = _mm256_loadu_si256(source + 1);
      const __m256i c = _mm256_loadu_si256(source + 2);
      const __m256i d = _mm256_loadu_si256(source + 3);
      _mm256_storeu_si256(target, a);
      _mm256_storeu_si256(target + 1, b);
      _mm256_storeu_si256(target + 2, c);
      _mm256_storeu_si256(target + 3, d);
    }
  }
  std::memcpy(to, from, length);
}

// A remote key as its owner shows it.
struct alignas(kCacheLine) KeyEntry {
  Shared32 key;     // 0: invalid
  Shared32 rights;  // fabric::Rights
  Shared32 region;
  Shared32 runs;     // if not 0: the key stands for what a list of this many RemoteSges names
  Shared64 offset;   // within the region
  Shared64 address;  // of the first byte in the owner's memory: this is what messages contain
  Shared64 length;
};
static_assert(sizeof(KeyEntry) == kCacheLine);

constexpr uint32_t kMaxSlots = 16384;
constexpr uint32_t kMaxKeys = 16384;
// A longer message stays in its sender's memory. The default inline threshold (4096 bytes) includes
// the transport header.
constexpr uint32_t kMaxCopied = 4096;
constexpr uint32_t kMaxCopies = 64 * kMaxCopied;  // bytes

// A segment's dimensions, as stated in the handshake and checked there, never read from the
// segment.
struct Geometry {
  uint32_t slots;  // powers of two
  uint32_t keys;
  uint32_t copies;  // bytes

  bool valid() const {
    return std::has_single_bit(slots) && slots <= kMaxSlots && std::has_single_bit(keys) &&
           keys <= kMaxKeys && std::has_single_bit(copies) && copies <= kMaxCopies;
  }
  size_t slots_offset() const { return sizeof(State); }
  size_t keys_offset() const { return slots_offset() + size_t{slots} * sizeof(Slot); }
  size_t copies_offset() const { return keys_offset() + size_t{keys} * sizeof(KeyEntry); }
  size_t bytes() const {
    constexpr size_t kPage = 4096;
    return (copies_offset() + copies + kPage - 1) & ~(kPage - 1);
  }
};

// A mapped segment. Zeros are a valid fresh one. The peer's is mapped for reading only.
struct SegmentView {
  State* state = nullptr;
  Slot* slots = nullptr;
  KeyEntry* keys = nullptr;
  std::byte* copies = nullptr;
  uint32_t slot_mask = 0;
  uint32_t key_mask = 0;
  uint32_t copies_bytes = 0;

  SegmentView() = default;
  SegmentView(std::byte* base, const Geometry& g)
      : state(reinterpret_cast<State*>(base)),
        slots(reinterpret_cast<Slot*>(base + g.slots_offset())),
        keys(reinterpret_cast<KeyEntry*>(base + g.keys_offset())),
        copies(base + g.copies_offset()),
        slot_mask(g.slots - 1),
        key_mask(g.keys - 1),
        copies_bytes(g.copies) {
    RRDK_ASSERT(g.valid(), g.slots, g.keys, g.copies);
  }

  Slot& slot(uint64_t number) const { return slots[number & slot_mask]; }
};

}  // namespace rrdk::shm
