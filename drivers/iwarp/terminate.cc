#include "drivers/iwarp/terminate.h"

#include <array>
#include <cstdio>

#include "drivers/iwarp/segment.h"

namespace rrdk::iwarp {

namespace {

// Which headers follow: the segment's length, its DDP header.
constexpr std::byte kHasLength{0x80};
constexpr std::byte kHasDdp{0x40};
constexpr uint32_t kControl = 4;

const char* text(Cause cause) {
  switch (cause) {
    case Cause::kLocalCatastrophic:
      return "it failed";
    case Cause::kInvalidStag:
    case Cause::kTaggedInvalidStag:
      return "invalid STag";
    case Cause::kOutOfBounds:
    case Cause::kTaggedOutOfBounds:
      return "outside the STag's bounds";
    case Cause::kAccessRights:
      return "against the STag's access rights";
    case Cause::kForeignStag:
      return "an STag of another connection";
    case Cause::kOffsetWraps:
    case Cause::kTaggedOffsetWraps:
      return "a tagged offset that wraps around";
    case Cause::kCannotInvalidate:
      return "an STag that cannot be invalidated";
    case Cause::kRdmapVersion:
      return "another version of RDMAP";
    case Cause::kUnexpectedOpcode:
      return "an unexpected RDMAP opcode";
    case Cause::kCatastrophic:
      return "the stream is broken";
    case Cause::kTaggedDdpVersion:
    case Cause::kUntaggedDdpVersion:
      return "another version of DDP";
    case Cause::kInvalidQueue:
      return "an untagged queue that does not exist";
    case Cause::kNoBuffer:
      return "no buffer for a message";
    case Cause::kMessageNumber:
      return "a message number out of order";
    case Cause::kMessageOffset:
      return "a message offset out of order";
    case Cause::kMessageTooLong:
      return "a message longer than its buffer";
    case Cause::kMpaClosed:
      return "TCP was closed";
    case Cause::kMpaCrc:
      return "a CRC that does not match";
  }
  return nullptr;
}

}  // namespace

std::string describe(Cause cause) {
  if (const char* known = text(cause))
    return known;
  std::array<char, 64> unknown;
  const auto value = static_cast<unsigned>(cause);
  std::snprintf(unknown.data(), unknown.size(), "layer %u, type %u, code %u", value >> 12,
                value >> 8 & 0xf, value & 0xff);
  return unknown.data();
}

uint32_t encode(const Terminate& terminate, std::span<std::byte, kMaxTerminate> bytes) noexcept {
  store_u16(bytes.data(), static_cast<uint16_t>(terminate.cause));
  bytes[2] = terminate.has_segment ? kHasLength | kHasDdp : std::byte{0};
  bytes[3] = std::byte{0};
  if (!terminate.has_segment)
    return kControl;
  store_u16(&bytes[kControl], terminate.ulpdu);
  return kControl + kLengthField + encode(terminate.segment, &bytes[kControl + kLengthField]);
}

Terminate decode_terminate(std::span<const std::byte> bytes) noexcept {
  Terminate terminate;
  if (bytes.size() < kControl)
    return terminate;
  terminate.cause = static_cast<Cause>(load_u16(bytes.data()));
  const std::byte headers = bytes[2];
  std::span<const std::byte> rest = bytes.subspan(kControl);
  if ((headers & kHasLength) == std::byte{0} || (headers & kHasDdp) == std::byte{0} ||
      rest.size() < kLengthField + kTaggedHeader ||
      rest.size() < kLengthField + header_length(rest[kLengthField]))
    return terminate;
  terminate.ulpdu = load_u16(rest.data());
  terminate.has_segment = true;
  (void)decode(&rest[kLengthField], terminate.segment);
  return terminate;
}

}  // namespace rrdk::iwarp
