// The doorbell pages of a completion queue: how peers report "queue pair N has something" while it
// is not being polled. They are the only memory that several processes write, so they are only a
// hint. Each user's processes have their own page while they have connections, as long as there are
// pages: the last one is for all users that come after. A peer that scribbles on a page can
// suppress the wake-ups of those who share it, and cause useless checks of other queue pairs. Those
// wake-ups come late, but they come: CompletionQueue::poll also checks every queue pair in turn.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/assert.h"
#include "drivers/shm/segment.h"

namespace rrdk::shm {

constexpr uint32_t kDoorbellGroups = 64;
constexpr uint32_t kWordsPerGroup = 4;
constexpr uint32_t kDoorbellWords = kDoorbellGroups * kWordsPerGroup;
constexpr uint32_t kMaxQueuePairs = kDoorbellWords * 64;  // of one completion queue

struct DoorbellPage {
  alignas(kCacheLine) Shared64 summary;   // bit g: a word of group g has bits
  alignas(kCacheLine) Shared32 sleeping;  // the owner waits for its wake-up socket
  alignas(kCacheLine) std::array<Shared64, kDoorbellWords> words;
};
constexpr size_t kDoorbellBytes = 4096;
static_assert(sizeof(DoorbellPage) <= kDoorbellBytes);

// The location of one doorbell bit.
struct Doorbell {
  DoorbellPage* page = nullptr;
  uint32_t bit = 0;
  int wake_socket = -1;  // only for this connection
};

// Makes the sleeper's wake-up fd readable. A system call, made only while the owner sleeps.
void wake(int wake_socket) noexcept;

// Returns true if the owner sleeps.
inline bool set_bit(DoorbellPage& page, uint32_t bit) noexcept {
  RRDK_ASSERT(bit < kMaxQueuePairs, bit);
  const uint32_t word = bit / 64;
  page.words[word].fetch_or(uint64_t{1} << (bit % 64), std::memory_order_seq_cst);
  page.summary.fetch_or(uint64_t{1} << (word / kWordsPerGroup), std::memory_order_seq_cst);
  return page.sleeping.load(std::memory_order_seq_cst) != 0;
}

inline void ring(const Doorbell& bell) noexcept {
  if (set_bit(*bell.page, bell.bit)) [[unlikely]]
    wake(bell.wake_socket);
}

}  // namespace rrdk::shm
