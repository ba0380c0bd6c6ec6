#include <bit>

#include "base/assert.h"
#include "drivers/shm/completion_queue.h"
#include "drivers/shm/queue_pair.h"

namespace rrdk::shm {

namespace {

// Polls without work after which a queue pair is left to its doorbell.
constexpr uint32_t kIdlePolls = 1000;
// One poll in this many sweeps: it checks resting queue pairs, whatever the doorbells say, in
// portions such that all have been checked after this many sweeps.
constexpr uint32_t kSweepInterval = 64;
constexpr uint32_t kSweepsPerRound = 4096;
// Messages that the user of a lane may take in one turn. The user knows whether that is too much
// for the other queue pairs.
constexpr uint32_t kBurst = 32;
// And in one poll, over all queue pairs, so that the core can do other work in between.
constexpr uint64_t kMostInPoll = 128;

}  // namespace

uint32_t CompletionQueue::poll(std::span<fabric::Completion> out) {
  for (DoorbellPage* page : pages()) {
    if (page->summary.load(std::memory_order_relaxed) != 0) [[unlikely]]
      take_doorbells(*page);
  }
  if (++polls_ % kSweepInterval == 0) [[unlikely]]
    sweep();
  uint32_t n = 0;
  poll_end_ = lane_messages_ + kMostInPoll;
  for (size_t turns = active_count_; turns > 0 && n < out.size() && lane_messages_ < poll_end_;
       --turns) {
    if (next_ >= active_count_)
      next_ = 0;
    QueuePair& qp = *active_[next_];
    const uint64_t lane_before = lane_messages_;
    const uint32_t got = qp.poll(out.subspan(n), kBurst);
    n += got;
    if (got != 0 || lane_messages_ != lane_before)
      qp.idle_polls = 0;
    else if (++qp.idle_polls > kIdlePolls && qp.rest()) [[unlikely]] {
      deactivate(next_);
      continue;
    }
    ++next_;
  }
  return n;
}

void CompletionQueue::take_doorbells(DoorbellPage& page) noexcept {
  uint64_t groups = page.summary.exchange(0, std::memory_order_seq_cst);
  for (; groups != 0; groups &= groups - 1) {
    const uint32_t first = static_cast<uint32_t>(std::countr_zero(groups)) * kWordsPerGroup;
    for (uint32_t word = first; word < first + kWordsPerGroup; ++word) {
      if (page.words[word].load(std::memory_order_relaxed) != 0)
        take_bits(page, word);
    }
  }
}

void CompletionQueue::take_bits(DoorbellPage& page, uint32_t word) noexcept {
  uint64_t bits = page.words[word].exchange(0, std::memory_order_seq_cst);
  for (; bits != 0; bits &= bits - 1) {
    const auto bit = word * 64 + static_cast<uint32_t>(std::countr_zero(bits));
    if (QueuePair* qp = queue_pairs_[bit].load(std::memory_order_acquire))
      activate(*qp);
  }
}

void CompletionQueue::sweep() noexcept {
  const uint32_t used = bits_used_.load(std::memory_order_acquire);
  for (uint32_t looks = (used + kSweepsPerRound - 1) / kSweepsPerRound; looks > 0; --looks) {
    swept_ = swept_ + 1 < used ? swept_ + 1 : 0;
    QueuePair* qp = queue_pairs_[swept_].load(std::memory_order_acquire);
    if (qp != nullptr && !qp->active && qp->look())
      activate(*qp);
  }
}

void CompletionQueue::activate(QueuePair& qp) noexcept {
  qp.idle_polls = 0;
  if (qp.active)
    return;
  qp.active = true;
  qp.awake();
  RRDK_ASSERT(active_count_ < active_.size());
  active_[active_count_++] = &qp;
}

void CompletionQueue::deactivate(size_t position) noexcept {
  RRDK_ASSERT(position < active_count_ && active_[position]->active, position, active_count_);
  active_[position]->active = false;
  active_[position] = active_[--active_count_];
}

bool CompletionQueue::rest_all() noexcept {
  for (size_t i = active_count_; i > 0; --i) {
    if (!active_[i - 1]->rest())
      return false;
    deactivate(i - 1);
  }
  return true;
}

bool CompletionQueue::arm() {
  for (DoorbellPage* page : pages())
    page->sleeping.store(1, std::memory_order_seq_cst);
  // A peer either sees that we sleep, or has rung before this check.
  bool quiet = rest_all();
  for (DoorbellPage* page : pages())
    quiet = quiet && page->summary.load(std::memory_order_seq_cst) == 0;
  if (quiet)
    return true;
  for (DoorbellPage* page : pages())
    page->sleeping.store(0, std::memory_order_relaxed);
  return false;
}

}  // namespace rrdk::shm
