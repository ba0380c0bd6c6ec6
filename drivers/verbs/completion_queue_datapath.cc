#include <algorithm>

#include "base/assert.h"
#include "drivers/verbs/completion_queue.h"
#include "drivers/verbs/queue_pair.h"

namespace rrdk::verbs {

QueuePair* CompletionQueue::find(uint32_t number) const noexcept {
  for (size_t place = number % kPlaces;; place = (place + 1) % kPlaces) {
    QueuePair* qp = places_[place].load(std::memory_order_acquire);
    if (qp == nullptr || qp->number() == number)
      return qp;
  }
}

// Returns false if there is nothing.
bool CompletionQueue::refill(size_t most) noexcept {
  RRDK_ASSERT(batch_next_ == batch_count_, batch_next_, batch_count_);  // all were processed
  batch_next_ = batch_count_ = 0;
  if (kept_next_ != kept_.size()) [[unlikely]] {
    while (kept_next_ != kept_.size() && batch_count_ != kBatch)
      batch_[batch_count_++] = kept_[kept_next_++];
    return true;
  }
  const int got = ibv_poll_cq(cq_, static_cast<int>(std::min<size_t>(most, kBatch)), batch_.data());
  batch_count_ = got > 0 ? static_cast<uint32_t>(got) : 0;
  return got > 0;
}

uint32_t CompletionQueue::poll(std::span<fabric::Completion> out) {
  if (has_rings_.load(std::memory_order_acquire)) [[unlikely]]
    take_rings();
  uint32_t n = 0;
  const bool empty = batch_next_ == batch_count_ && !out.empty() && !refill(out.size());
  if (empty)
    times_empty_.store(times_empty_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  for (; batch_next_ != batch_count_ && n != out.size(); ++batch_next_) {
    const ibv_wc& wc = batch_[batch_next_];
    if (QueuePair* qp = find(wc.qp_num); qp != nullptr) [[likely]]
      n += qp->complete(wc, out.subspan(n));
  }
  if (!active_.empty()) [[unlikely]]
    n += poll_active(out.subspan(n), empty);
  return n;
}

uint32_t CompletionQueue::poll_active(std::span<fabric::Completion> out, bool empty) noexcept {
  RRDK_ASSERT(!active_.empty());
  uint32_t n = 0;
  for (size_t i = 0; i != active_.size() && n != out.size();) {
    QueuePair& qp = *active_[i];
    RRDK_ASSERT(qp.active, qp.number());
    n += qp.report(out.subspan(n), empty);
    if (qp.has_reports()) {
      ++i;
      continue;
    }
    qp.active = false;
    active_[i] = active_.back();
    active_.pop_back();
  }
  return n;
}

void CompletionQueue::activate(QueuePair& qp) noexcept {
  if (qp.active)
    return;
  RRDK_ASSERT(active_.size() < kMaxQueuePairs);
  qp.active = true;
  // datapath-allow: it was reserved for all queue pairs when the completion queue was made
  active_.push_back(&qp);
}

}  // namespace rrdk::verbs
