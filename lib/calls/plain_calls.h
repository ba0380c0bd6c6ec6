// Plain calls over a driver that has a lane (fabric/lane.h). Each is written directly to the
// driver's slot, and its reply is examined in its slot, without a Receive, a completion or a work
// request. A plain call is short, and so is its reply; it has no chunk, or one chunk of one
// segment; and nothing of its connection waits. plain_calls_datapath.cc takes it from submit() to
// its callback. All other calls take the general path, and so does every call while the lane is not
// open.
#pragma once

#include <immintrin.h>

#include <array>
#include <cstdint>

#include "calls/calls.h"
#include "engine/requester.h"
#include "fabric/lane.h"
#include "runtime/link.h"

namespace rrdk::calls {

// For one connection that we made; on its core's thread.
class PlainCalls final : public fabric::LaneUser {
 public:
  PlainCalls(Caller::Impl& caller, runtime::Link& link) noexcept : caller_(caller), link_(link) {}

  // Returns false if nothing was done and the call must take the general path.
  bool submit(Call::Impl& call) noexcept;
  void on_burst(fabric::Lane& lane, uint32_t most) noexcept override;

 private:
  bool look() noexcept;
  Call::Impl* take(fabric::Lane& lane) noexcept;
  bool take_with_result(fabric::Lane& lane, const fabric::LaneMessage& message, __m256i a,
                        Call::Impl& call) noexcept;

  // The header of a call, words 0 to 7, except the XIDs.
  alignas(32) std::array<uint32_t, 8> header_ = {};
  Caller::Impl& caller_;
  runtime::Link& link_;
  // As of the last look().
  fabric::Lane* lane_ = nullptr;
  engine::Requester* requester_ = nullptr;
  uint64_t longest_ = 0;        // bytes of a call with its header
  uint64_t longest_reply_ = 0;  // bytes of a reply with its header
  uint32_t longest_in_ = 0;
  bool in_burst_ = false;
};

}  // namespace rrdk::calls
