// Plain calls over a driver that has a lane (fabric/lane.h): each is written to where the driver
// sends it from, and its reply is looked at where it lies, without a Receive, a completion or a
// work request. A plain call is short, and so is its reply; it has no chunk, or one of one segment;
// nothing of its connection waits. plain_calls_datapath.cc has its way from submit() to its
// callback. All other calls go the general way, and so does every call while the lane is not open.
#pragma once

#include <immintrin.h>

#include <array>
#include <cstdint>

#include "calls/calls.h"
#include "engine/requester.h"
#include "fabric/lane.h"
#include "runtime/link.h"

namespace rrdk::calls {

// Of one connection that we made; on its core's thread.
class PlainCalls final : public fabric::LaneUser {
 public:
  PlainCalls(Caller::Impl& caller, runtime::Link& link) noexcept : caller_(caller), link_(link) {}

  // False: nothing was done, and the call is to go the general way.
  bool submit(Call::Impl& call) noexcept;
  void on_burst(fabric::Lane& lane, uint32_t most) noexcept override;

 private:
  bool look() noexcept;
  Call::Impl* take(fabric::Lane& lane) noexcept;
  bool take_with_result(fabric::Lane& lane, const fabric::LaneMessage& message, __m256i a,
                        Call::Impl& call) noexcept;

  // The header of a call, words 0 to 7, but for the XIDs.
  alignas(32) std::array<uint32_t, 8> header_ = {};
  Caller::Impl& caller_;
  runtime::Link& link_;
  // As they were at the last look.
  fabric::Lane* lane_ = nullptr;
  engine::Requester* requester_ = nullptr;
  uint64_t longest_ = 0;        // bytes of a call with its header
  uint64_t longest_reply_ = 0;  // likewise
  uint32_t longest_in_ = 0;
  bool in_burst_ = false;
};

}  // namespace rrdk::calls
