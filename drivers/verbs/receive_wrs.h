// Receives in the shape that devices take them.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <span>

#include "drivers/verbs/regions.h"
#include "fabric/work.h"

namespace rrdk::verbs {

// In the device's wr_ids: of a Receive.
constexpr uint64_t kReceiveBit = uint64_t{1} << 63;

// A chain of some, posted with one doorbell.
struct ReceiveChain {
  static constexpr uint32_t kMost = 32;

  void clear() noexcept { count = 0; }
  bool full() const noexcept { return count == kMost; }
  void add(const fabric::ReceiveWr& wr, uint64_t number, const Regions& regions) noexcept {
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

}  // namespace rrdk::verbs
