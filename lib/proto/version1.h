// RPC-over-RDMA version 1 (RFC 5666 section 4.3; same bytes in RFC 8166): pure functions on bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "proto/header.h"

namespace rrdk::proto::version1 {

constexpr uint32_t kVersion = 1;
constexpr uint32_t kMinHeader = 28;  // RDMA_MSG with three empty lists
// The default and smallest inline threshold (RFC 8797 section 3.1), in bytes.
constexpr uint32_t kInlineThreshold = 1024;

// Which way a message travels: the rules differ (a call's RDMA_NOMSG needs a Position-Zero chunk, a
// reply's a Reply chunk; a reply's Read list must be empty, which the engine, not the codec, says).
enum class Role : uint8_t { kCall, kReply };

// The four fixed words, whatever the version. Empty below 16 bytes.
std::optional<FixedWords> peek(std::span<const std::byte> message);

// Most messages by far: a version 1 RDMA_MSG with three empty lists. Reads kMinHeader bytes.
bool is_plain(std::span<const std::byte> message);

// Decodes and checks one whole version 1 header. `message` is exactly what was received. On any
// verdict but kTooShort, `header`'s fixed words are valid (an error answer needs them), its type
// too unless the verdict is kBadVersion or kBadProc, and its lists are empty where the message has
// none. An ERR_VERS is understood whatever its version word (V1-ERR-05). Of the other fields only
// those that the type has are written: see Header. Bytes behind an RDMA_NOMSG, RDMA_DONE or
// RDMA_ERROR header are not looked at; they include the eight words that RFC 5666 puts behind
// ERR_CHUNK and later texts do not (V1-HDR-18, V1-ERR-09).
Decoded decode(std::span<const std::byte> message, Role role, const Limits& limits, Header& header);

// Writes a header. Returns its length, or 0 when `out` is too small. ERR_CHUNK is written in its
// short form, without RFC 5666's extra words. Read chunks are written in the order they have.
uint32_t encode(const Header& header, std::span<std::byte> out);

// An RDMA_MSG with three empty lists: kMinHeader bytes.
void encode_plain(uint32_t xid, uint32_t credits, std::byte* out);

// The length that encode() would write.
uint32_t encoded_length(const Header& header);

}  // namespace rrdk::proto::version1
