// Receives that several queue pairs of one thread take from. Devices use them in any order, so each
// has a slot that remembers its wr_id.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <utility>
#include <vector>

#include "drivers/verbs/receive_wrs.h"
#include "fabric/device.h"

namespace rrdk::verbs {

class SharedReceiveQueue final : public fabric::SharedReceiveQueue {
 public:
  // Errors: kNoMemory, kSystem.
  static Result<std::unique_ptr<SharedReceiveQueue>> create(ibv_pd* pd, const Regions& regions,
                                                            uint32_t entries);
  ~SharedReceiveQueue() override;

  uint32_t post(std::span<const fabric::ReceiveWr> wrs) override;

  ibv_srq* get() noexcept { return srq_; }
  // The wr_id that was posted in a slot, which is free again.
  uint64_t take(uint32_t slot) noexcept;
  // Places in a completion queue that it needs: asked by each queue pair, answered once.
  uint32_t entries_to_count() noexcept { return std::exchange(uncounted_, 0); }

 private:
  SharedReceiveQueue(ibv_srq* srq, const Regions& regions, uint32_t entries);

  ibv_srq* srq_;
  const Regions& regions_;
  std::vector<uint64_t> wr_ids_;  // by slot
  std::vector<uint32_t> free_;    // a stack
  uint32_t num_free_;
  uint32_t uncounted_;
  ReceiveChain chain_;
};

}  // namespace rrdk::verbs
