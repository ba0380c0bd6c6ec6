// Why a stream is terminated, as stated in the Terminate message (RFC 5040 section 4.8).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "drivers/iwarp/segment.h"

namespace rrdk::iwarp {

enum class Layer : uint8_t { kRdmap = 0, kDdp = 1, kMpa = 2 };

// Layer, error type and code as on the wire: 0xLTCC.
enum class Cause : uint16_t {
  kLocalCatastrophic = 0x0000,
  kInvalidStag = 0x0100,
  kOutOfBounds = 0x0101,
  kAccessRights = 0x0102,
  kForeignStag = 0x0103,
  kOffsetWraps = 0x0104,
  kCannotInvalidate = 0x0109,
  kRdmapVersion = 0x0205,
  kUnexpectedOpcode = 0x0206,
  kCatastrophic = 0x0207,
  kTaggedInvalidStag = 0x1100,
  kTaggedOutOfBounds = 0x1101,
  kTaggedOffsetWraps = 0x1103,
  kTaggedDdpVersion = 0x1104,
  kInvalidQueue = 0x1201,
  kNoBuffer = 0x1202,
  kMessageNumber = 0x1203,
  kMessageOffset = 0x1204,
  kMessageTooLong = 0x1205,
  kUntaggedDdpVersion = 0x1206,
  kMpaClosed = 0x2001,
  kMpaCrc = 0x2002,
};

// Whether it is about a Read or Write and what its key allows: RDMAP's remote protection errors and
// DDP's tagged buffer errors (RFC 5040 section 4.8), except for those that are about something
// else.
constexpr bool refuses_access(Cause cause) noexcept {
  const unsigned layer_and_type = static_cast<unsigned>(cause) >> 8;
  return (layer_and_type == 0x01 && cause != Cause::kCannotInvalidate) ||
         (layer_and_type == 0x11 && cause != Cause::kTaggedDdpVersion);
}

// For people, also for causes that are not listed above.
std::string describe(Cause cause);

// The longest: its own words, a segment's length, an untagged header and a Read Request.
constexpr uint32_t kMaxTerminate = 4 + 2 + kUntaggedHeader + kReadRequestBody;

struct Terminate {
  Cause cause = Cause::kCatastrophic;
  bool has_segment = false;  // the one at fault
  uint16_t ulpdu = 0;        // its length
  SegmentHeader segment = {};
};

// Writes what follows the DDP header. Returns the length.
uint32_t encode(const Terminate& terminate, std::span<std::byte, kMaxTerminate> bytes) noexcept;
// Accepts any bytes: what is cut off counts as absent.
Terminate decode_terminate(std::span<const std::byte> bytes) noexcept;

}  // namespace rrdk::iwarp
