// The responder's part in the Read-Read model (RFC 5666 section 3.8): a reply whose items fit
// neither inline nor the room that the call offers is sent with a Read list, and its memory is the
// peer's to read until RDMA_DONE.
//
//   kReplying   the keys are bound, then the reply is sent
//   kExposed    until RDMA_DONE, or until done_wait_ns have passed, which ends the connection
//   kRevoking   the keys are invalidated; then the call ends and its memory is free
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/list.h"
#include "rrdk/memory.h"
#include "xprt/incoming_call.h"
#include "xprt/link.h"

namespace rrdk::xprt {

constexpr uint32_t kMaxExposedItems = 16;  // of one reply; proto::Limits::read_chunks of most peers

// One reply that the peer is to read. A key covers one item, for this connection, to be read only.
struct Exposure {
  Incoming* call;
  uint32_t xid;
  uint64_t bytes;
  uint64_t since_ns;  // 0: no tick has seen it sent
  bool acknowledged;  // RDMA_DONE came
  uint16_t num_items;
  uint16_t bound;    // items whose binds were posted
  uint16_t revoked;  // items whose invalidations were posted
  base::Links<Exposure> links;
  std::array<MemorySpan, kMaxExposedItems> items;
  std::array<uint32_t, kMaxExposedItems> keys;
};

// The exposures of one connection, and the plan for the reply that is being sent.
class ReplyExposer {
 public:
  explicit ReplyExposer(Link& link);

  // Decides which items of the reply are read: as many, in order, as it takes for the rest to fit.
  // `placed` are in Write chunks. False: it can not be done.
  bool draft(Incoming& call, MovedItems placed, uint32_t threshold) noexcept;
  MovedItems left_out() const noexcept { return left_out_; }  // placed ones included
  uint64_t reduced() const noexcept { return reduced_; }
  uint32_t header_length() const noexcept { return header_length_; }

  // An exposure for what was drafted, its keys taken, in the header's Read list. Null: not now.
  Exposure* take(Incoming& call) noexcept;
  void give(Exposure& exposure) noexcept;
  uint32_t taken() const noexcept { return taken_; }

 private:
  struct Item {
    MemorySpan bytes;
    uint64_t position;
  };

  Link& link_;
  std::vector<Exposure> exposures_;
  base::List<Exposure, &Exposure::links> free_;
  uint32_t taken_ = 0;
  uint64_t bytes_ = 0;  // exposed now

  // The draft.
  uint32_t num_items_ = 0;
  std::array<Item, kMaxExposedItems> items_;
  MovedItems left_out_ = 0;
  uint64_t reduced_ = 0;
  uint64_t item_bytes_ = 0;
  uint32_t header_length_ = 0;
};

}  // namespace rrdk::xprt
