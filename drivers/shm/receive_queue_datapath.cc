#include "drivers/shm/queue_pair.h"
#include "drivers/shm/receive_queue.h"

namespace rrdk::shm {

uint32_t ReceiveQueue::post(std::span<const fabric::ReceiveWr> wrs) noexcept {
  uint32_t taken = 0;
  for (; taken < wrs.size() && tail_ - head_ < limit_; ++taken)
    ring_[tail_++ & mask_] = wrs[taken];
  while (waiting_ != nullptr) {
    QueuePair& qp = *waiting_;
    stop_waiting(qp);
    qp.receive_posted();
  }
  return taken;
}

void ReceiveQueue::wait(QueuePair& qp) noexcept {
  if (qp.waiting)
    return;
  qp.waiting = true;
  qp.next_waiting = waiting_;
  waiting_ = &qp;
}

void ReceiveQueue::stop_waiting(QueuePair& qp) noexcept {
  if (!qp.waiting)
    return;
  QueuePair** link = &waiting_;
  while (*link != &qp)
    link = &(*link)->next_waiting;
  *link = qp.next_waiting;
  qp.waiting = false;
}

}  // namespace rrdk::shm
