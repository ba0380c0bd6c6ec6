// Why the engine refuses, in the words of the public statistics.
#pragma once

#include "fabric/work.h"
#include "proto/header.h"
#include "rrdk/refusals.h"

namespace rrdk::xprt {

// Of a header that is not whole: the verdicts stand in the same order, without kOk.
constexpr Refusal refusal_of(proto::Verdict verdict) noexcept {
  return static_cast<Refusal>(static_cast<uint8_t>(verdict) - 1);
}
static_assert(refusal_of(proto::Verdict::kTooShort) == Refusal::kTooShort);
static_assert(refusal_of(proto::Verdict::kPositionZeroInMsg) == Refusal::kPositionZeroInMsg);
static_assert(refusal_of(proto::Verdict::kTooManyBytes) == Refusal::kTooManyBytes);

// Of a work request that failed by the peer's doing.
constexpr Refusal refusal_of(fabric::WcStatus status) noexcept {
  switch (status) {
    case fabric::WcStatus::kLocalLength:
      return Refusal::kMessageTooLong;
    case fabric::WcStatus::kRemoteAccess:
      return Refusal::kAccessRefused;
    case fabric::WcStatus::kRemoteInvalid:
    case fabric::WcStatus::kRnrExceeded:
      return Refusal::kNotReceived;
    default:
      return Refusal::kWorkFailed;
  }
}

}  // namespace rrdk::xprt
