// Headers of plain calls and of their replies, as vectors of words: for both ends of a lane
// (calls/plain_calls.h, service/plain_calls.h).
#pragma once

#include <immintrin.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "proto/codec.h"
#include "rrdk/xdr.h"

namespace rrdk::plain {

// Length of a transport header (RFC 8166 section 4.2) without chunks, and with one segment.
constexpr uint32_t kTransport = proto::kMinHeader;
constexpr uint32_t kTransportOfOne = kTransport + proto::kOneSegmentBytes;
// RPC header of a reply that is accepted and successful (RFC 5531 section 9).
constexpr uint32_t kReplyHeader = 24;
constexpr uint32_t kEmptyReply = kTransport + kReplyHeader;

constexpr uint32_t be(uint32_t value) {
  return __builtin_bswap32(value);
}

// Which of the words 0 to 7 are the same in all such messages: all except the XIDs and the credits.
alignas(32) constexpr std::array<uint32_t, 8> kSameStart = {0, ~0u, 0, ~0u, ~0u, ~0u, ~0u, 0};

inline __m256i load(const std::array<uint32_t, 8>& words) noexcept {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(words.data()));
}
inline void store(std::byte* to, __m256i value) noexcept {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
}
// Word `index` of a message.
inline uint32_t word(const std::byte* bytes, uint32_t index) noexcept {
  return xdr::load_u32(bytes + index * sizeof(uint32_t));
}

}  // namespace rrdk::plain
