// Receives in the form that devices take, and those that several queue pairs share.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "drivers/verbs/regions.h"
#include "fabric/device.h"
#include "fabric/work.h"

namespace rrdk::verbs {

// Receives in the form that devices take.

// In the device's wr_ids: marks a Receive.
constexpr uint64_t kReceiveBit = uint64_t{1} << 63;

// A chain of Receives, posted with one doorbell.
struct ReceiveChain {
  static constexpr uint32_t kMost = 32;

  void clear() noexcept { count = 0; }
  bool full() const noexcept { return count == kMost; }
  void add(const fabric::ReceiveWr& wr, uint64_t number, const Regions& regions) noexcept {
    RRDK_ASSERT(!full());
    sges[count] = regions.sge_of(wr.buffer);
    wrs[count] = {
        .wr_id = number | kReceiveBit, .next = nullptr, .sg_list = &sges[count], .num_sge = 1};
    if (count != 0)
      wrs[count - 1].next = &wrs[count];
    ++count;
  }

  std::array<ibv_recv_wr, kMost> wrs;
  std::array<ibv_sge, kMost> sges;
  uint32_t count = 0;
};

// Receives that several queue pairs of one thread use. Devices use them in any order, so each has a
// slot that remembers its wr_id.
class SharedReceiveQueue final : public fabric::SharedReceiveQueue {
 public:
  // Errors: kNoMemory, kSystem.
  static Result<std::unique_ptr<SharedReceiveQueue>> create(ibv_pd* pd, const Regions& regions,
                                                            uint32_t entries);
  ~SharedReceiveQueue() override;

  uint32_t post(std::span<const fabric::ReceiveWr> wrs) override;

  ibv_srq* get() noexcept { return srq_; }
  // Returns the wr_id that was posted in a slot, which is free again.
  uint64_t take(uint32_t slot) noexcept;
  // Places that it needs in a completion queue: asked by each queue pair, returned once.
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
