// The words of plain calls and of their replies (service/plain_calls.h), and how they are looked
// at.
#pragma once

#include <immintrin.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "fabric/lane.h"
#include "proto/codec.h"
#include "service/plain_calls.h"
#include "xprt/responder.h"

namespace rrdk::service {

// Transport header, RPC header without a credential (RFC 5531 section 9), and those of a reply.
constexpr uint32_t kTransport = proto::kMinHeader;
constexpr uint32_t kCallHeader = 40;
constexpr uint32_t kReplyHeader = 24;
constexpr uint32_t kShortest = kTransport + kCallHeader;
constexpr uint32_t kEmptyReply = kTransport + kReplyHeader;
static_assert(kShortest <= fabric::LaneMessage::kAlwaysReadable);
constexpr uint32_t kAlways = 64;    // bytes that are looked at of each call without a chunk
constexpr uint32_t kVerifier = 32;  // in an RPC header whose credential has no body
constexpr uint32_t kNoneBytes = 8;  // of a verifier or credential that is AUTH_NONE
constexpr uint32_t kNotPlain = UINT32_MAX;

constexpr uint32_t be(uint32_t value) {
  return __builtin_bswap32(value);
}

// Which words of a call are the same in each: not its XIDs (words 0 and 7), the credits that it
// asks for (2), its procedure (12), its credential's flavour and length (13 and 14), and what comes
// behind these.
alignas(32) constexpr std::array<uint32_t, 8> kSameA = {0, ~0u, 0, ~0u, ~0u, ~0u, ~0u, 0};
alignas(32) constexpr std::array<uint32_t, 8> kSameB = {~0u, ~0u, ~0u, ~0u, 0, 0, 0, 0};

inline __m256i load(const std::array<uint32_t, 8>& words) noexcept {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(words.data()));
}
inline void store(std::byte* to, __m256i value) noexcept {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
}

// The flavour is AUTH_NONE, or AUTH_SYS with a body, which its handler may decode; the verifier
// behind it is AUTH_NONE. `load` gets words of the RPC message, which has `length` bytes, beyond
// those in `b`.
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
