#include "drivers/iwarp/mpa.h"

#include <algorithm>
#include <cstring>

#include "drivers/iwarp/segment.h"

namespace rrdk::iwarp {

namespace {

constexpr char kRequestKey[] = "MPA ID Req Frame";
constexpr char kReplyKey[] = "MPA ID Rep Frame";
constexpr size_t kKeyLength = 16;
constexpr size_t kFlagsAt = 16;
constexpr size_t kRevisionAt = 17;
constexpr size_t kLengthAt = 18;

constexpr uint8_t kMarkers = 0x80;
constexpr uint8_t kCrc = 0x40;
constexpr uint8_t kRejected = 0x20;
constexpr uint8_t kEnhanced = 0x10;

// In the enhanced words: A and B above IRD, C and D above ORD.
constexpr uint16_t kHighFlag = 0x8000;
constexpr uint16_t kLowFlag = 0x4000;

const char* key_of(MpaKind kind) {
  return kind == MpaKind::kRequest ? kRequestKey : kReplyKey;
}

uint8_t byte_at(std::span<const std::byte> bytes, size_t index) {
  return static_cast<uint8_t>(bytes[index]);
}

}  // namespace

const char* to_string(MpaVerdict verdict) {
  switch (verdict) {
    case MpaVerdict::kOk:
      return "well formed";
    case MpaVerdict::kNotMpa:
      return "not MPA";
    case MpaVerdict::kBadRevision:
      return "an MPA revision other than 1 and 2";
    case MpaVerdict::kTooLong:
      return "more private data than MPA allows";
    case MpaVerdict::kBadEnhanced:
      return "an enhanced MPA frame that is too short";
  }
  return "unknown";
}

MpaVerdict check_header(std::span<const std::byte, kMpaHeader> header, MpaKind expected,
                        uint32_t& length) {
  if (std::memcmp(header.data(), key_of(expected), kKeyLength) != 0)
    return MpaVerdict::kNotMpa;
  const uint8_t revision = byte_at(header, kRevisionAt);
  if (revision != 1 && revision != 2)
    return MpaVerdict::kBadRevision;
  length = load_u16(&header[kLengthAt]);
  if (length > kMpaMaxPrivate)
    return MpaVerdict::kTooLong;
  const bool enhanced = revision == 2 && (byte_at(header, kFlagsAt) & kEnhanced) != 0;
  return enhanced && length < kMpaEnhanced ? MpaVerdict::kBadEnhanced : MpaVerdict::kOk;
}

MpaVerdict decode(std::span<const std::byte> bytes, MpaKind expected, MpaFrame& frame) {
  uint32_t length = 0;
  const MpaVerdict verdict = check_header(bytes.first<kMpaHeader>(), expected, length);
  if (verdict != MpaVerdict::kOk)
    return verdict;
  const uint8_t flags = byte_at(bytes, kFlagsAt);
  frame = {.kind = expected,
           .revision = byte_at(bytes, kRevisionAt),
           .markers = (flags & kMarkers) != 0,
           .crc = (flags & kCrc) != 0,
           .rejected = (flags & kRejected) != 0};
  std::span<const std::byte> rest = bytes.subspan(kMpaHeader, length);
  frame.enhanced = frame.revision == 2 && (flags & kEnhanced) != 0;
  if (frame.enhanced) {
    const uint16_t ird = load_u16(&rest[0]);
    const uint16_t ord = load_u16(&rest[2]);
    frame.ird = ird & kMpaAnyDepth;
    frame.ord = ord & kMpaAnyDepth;
    frame.peer_to_peer = (ird & kHighFlag) != 0;
    frame.rtr_send = (ird & kLowFlag) != 0;
    frame.rtr_write = (ord & kHighFlag) != 0;
    frame.rtr_read = (ord & kLowFlag) != 0;
    rest = rest.subspan(kMpaEnhanced);
  }
  frame.private_data.assign(rest.begin(), rest.end());
  return MpaVerdict::kOk;
}

std::vector<std::byte> encode(const MpaFrame& frame) {
  const bool enhanced = frame.enhanced && frame.revision == 2;
  const size_t length = frame.private_data.size() + (enhanced ? kMpaEnhanced : 0);
  std::vector<std::byte> bytes(kMpaHeader + length);
  std::memcpy(bytes.data(), key_of(frame.kind), kKeyLength);
  uint8_t flags = 0;
  flags |= frame.markers ? kMarkers : 0;
  flags |= frame.crc ? kCrc : 0;
  flags |= frame.rejected ? kRejected : 0;
  flags |= enhanced ? kEnhanced : 0;
  bytes[kFlagsAt] = static_cast<std::byte>(flags);
  bytes[kRevisionAt] = static_cast<std::byte>(frame.revision);
  store_u16(&bytes[kLengthAt], static_cast<uint16_t>(length));
  size_t at = kMpaHeader;
  if (enhanced) {
    uint32_t ird = frame.ird & kMpaAnyDepth;
    uint32_t ord = frame.ord & kMpaAnyDepth;
    ird |= frame.peer_to_peer ? kHighFlag : 0u;
    ird |= frame.rtr_send ? kLowFlag : 0u;
    ord |= frame.rtr_write ? kHighFlag : 0u;
    ord |= frame.rtr_read ? kLowFlag : 0u;
    store_u16(&bytes[at], static_cast<uint16_t>(ird));
    store_u16(&bytes[at + 2], static_cast<uint16_t>(ord));
    at += kMpaEnhanced;
  }
  std::ranges::copy(frame.private_data, bytes.begin() + static_cast<long>(at));
  return bytes;
}

}  // namespace rrdk::iwarp
