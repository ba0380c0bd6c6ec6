// Which bytes a transport header has. Two drafts share the version number 2 and are not compatible:
// which of them is meant is configuration, never guessed (V2X-01, V2X-02).
#pragma once

#include <cstdint>
#include <optional>

#include "rrdk/version.h"

namespace rrdk::proto {

enum class Wire : uint8_t {
  kVersion1,  // RFC 5666 section 4.3; same bytes in RFC 8166
  kDraft00,   // draft-cel-nfsv4-rpcrdma-version-two-00
  kDraft04,   // draft-cel-nfsv4-rpcrdma-version-two-04
};

constexpr uint32_t version_of(Wire wire) noexcept {
  return wire == Wire::kVersion1 ? 1 : 2;
}

// The four words that all versions share.
constexpr uint32_t kFixedBytes = 16;
// Of an RDMA_MSG without chunks: three empty lists, in draft-04 behind direction and handle.
constexpr uint32_t kMinHeader = 28;
constexpr uint32_t kMinHeader04 = 36;

constexpr uint32_t min_header(Wire wire) noexcept {
  return wire == Wire::kDraft04 ? kMinHeader04 : kMinHeader;
}

// The smallest inline threshold, version 1's default (RFC 8797 section 3.1), and version 2's
// default (section 2.3 of both drafts), in bytes.
constexpr uint32_t kInlineThreshold = 1024;
constexpr uint32_t kInlineThreshold2 = 4096;

// What one end takes.
struct Versions {
  bool one = true;
  std::optional<Wire> two = Wire::kDraft04;

  std::optional<Wire> wire_of(uint32_t version) const noexcept {
    if (version == 1 && one)
      return Wire::kVersion1;
    return version == 2 ? two : std::nullopt;
  }
  uint32_t low() const noexcept { return one ? 1 : 2; }
  uint32_t high() const noexcept { return two ? 2 : 1; }
};

// Receives take what version 2 allows from the start, so that no message finds too small a one when
// the version is settled (V2D0-INL-05).
constexpr uint32_t receive_bytes(uint32_t inline_size, const Versions& versions) noexcept {
  return versions.two && inline_size < kInlineThreshold2 ? kInlineThreshold2 : inline_size;
}

constexpr Versions versions_of(const RpcRdmaVersions& versions) noexcept {
  Wire draft = versions.draft == RpcRdmaDraft::kDraft00 ? Wire::kDraft00 : Wire::kDraft04;
  return {versions.one, versions.two ? std::optional(draft) : std::nullopt};
}

}  // namespace rrdk::proto
