#include "base/assert.h"
#include "drivers/common/receive_queue.h"

namespace rrdk::drivers {

uint32_t ReceiveQueue::post(std::span<const fabric::ReceiveWr> wrs) noexcept {
  uint32_t taken = 0;
  for (; taken < wrs.size() && tail_ - head_ < limit_; ++taken)
    ring_[tail_++ & mask_] = wrs[taken];
  while (waiting_ != nullptr) {
    ReceiveWaiter& waiter = *waiting_;
    stop_waiting(waiter);
    waiter.receive_posted();
  }
  return taken;
}

void ReceiveQueue::wait(ReceiveWaiter& waiter) noexcept {
  if (waiter.waiting_)
    return;
  waiter.waiting_ = true;
  waiter.next_waiting_ = waiting_;
  waiting_ = &waiter;
}

void ReceiveQueue::stop_waiting(ReceiveWaiter& waiter) noexcept {
  if (!waiter.waiting_)
    return;
  ReceiveWaiter** link = &waiting_;
  while (*link != &waiter) {
    RRDK_ASSERT(*link != nullptr);  // the waiter must be in the list
    link = &(*link)->next_waiting_;
  }
  *link = waiter.next_waiting_;
  waiter.waiting_ = false;
}

}  // namespace rrdk::drivers
