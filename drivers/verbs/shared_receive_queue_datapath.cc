#include "base/assert.h"
#include "drivers/verbs/shared_receive_queue.h"

namespace rrdk::verbs {

uint32_t SharedReceiveQueue::post(std::span<const fabric::ReceiveWr> wrs) {
  uint32_t taken = 0;
  while (taken < wrs.size() && num_free_ != 0) {
    chain_.clear();
    const uint32_t first = taken;
    while (taken < wrs.size() && num_free_ != 0 && !chain_.full()) {
      const uint32_t slot = free_[--num_free_];
      wr_ids_[slot] = wrs[taken].wr_id;
      chain_.add(wrs[taken++], slot, regions_);
    }
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_srq_recv(srq_, chain_.wrs.data(), &bad) == 0)
      continue;
    const auto posted =
        bad != nullptr ? static_cast<uint32_t>(bad - chain_.wrs.data()) : chain_.count;
    for (uint32_t i = chain_.count; i != posted; --i)
      free_[num_free_++] = static_cast<uint32_t>(chain_.wrs[i - 1].wr_id & ~kReceiveBit);
    return first + posted;
  }
  return taken;
}

uint64_t SharedReceiveQueue::take(uint32_t slot) noexcept {
  RRDK_ASSERT(slot < free_.size() && num_free_ < free_.size(), slot, num_free_);
  free_[num_free_++] = slot;
  return wr_ids_[slot];
}

}  // namespace rrdk::verbs
