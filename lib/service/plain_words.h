// The words of plain calls and of their replies (service/plain_calls.h), and how they are examined.
#pragma once

#include <immintrin.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/responder.h"
#include "fabric/lane.h"
#include "proto/plain_words.h"
#include "service/plain_calls.h"

namespace rrdk::service {

using namespace plain;

constexpr uint32_t kCallHeader = 40;  // RPC header without a credential (RFC 5531 section 9)
constexpr uint32_t kShortest = kTransport + kCallHeader;
static_assert(kShortest <= fabric::LaneMessage::kAlwaysReadable);
constexpr uint32_t kAlways = 64;    // bytes that are examined in each call without a chunk
constexpr uint32_t kVerifier = 32;  // in an RPC header whose credential has no body
constexpr uint32_t kNoneBytes = 8;  // length of a verifier or credential that is AUTH_NONE
constexpr uint32_t kNotPlain = UINT32_MAX;

// Which of the words 8 to 15 are the same in each call: all except its procedure (12), its
// credential's flavour and length (13 and 14), and what follows these.
alignas(32) constexpr std::array<uint32_t, 8> kSameRest = {~0u, ~0u, ~0u, ~0u, 0, 0, 0, 0};

// Checks that the flavour is AUTH_NONE, or AUTH_SYS with a body, which the handler may decode, and
// that the verifier after it is AUTH_NONE. `load` gets words of the RPC message, which has `length`
// bytes, beyond those in `b`.
template <typename Load>
uint32_t PlainCalls::credential_length(__m256i b, uint32_t length, Load&& load) noexcept {
  const auto flavor = static_cast<uint32_t>(_mm256_extract_epi32(b, 5));
  const auto bytes = be(static_cast<uint32_t>(_mm256_extract_epi32(b, 6)));
  if (flavor == 0 && bytes == 0) {
    const bool none = _mm256_extract_epi32(b, 7) == 0 && load(uint32_t{0}, kVerifier + 4) == 0;
    return none ? 0 : kNotPlain;
  }
  const uint32_t body = (bytes + 3) & ~3u;
  if (flavor != be(static_cast<uint32_t>(AuthFlavor::kSys)) || bytes == 0 || bytes > kMaxAuthBody ||
      length < kCallHeader + body || load(uint64_t{0}, kVerifier + body) != 0)
    return kNotPlain;
  return body;
}

}  // namespace rrdk::service
