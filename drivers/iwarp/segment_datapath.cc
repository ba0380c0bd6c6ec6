#include <endian.h>
#include <isa-l/crc.h>

#include <cstring>

#include "drivers/iwarp/segment.h"

namespace rrdk::iwarp {

namespace {

// DDP's control byte: tagged, last, four reserved bits, version. RDMAP's: version, two reserved
// bits, opcode.
constexpr uint8_t kTagged = 0x80;
constexpr uint8_t kLast = 0x40;
constexpr uint8_t kDdpVersionMask = 0x03;
constexpr uint8_t kDdpVersion = 1;
constexpr uint8_t kRdmapVersionMask = 0xc0;
constexpr uint8_t kRdmapVersion = 0x40;
constexpr uint8_t kOpcodeMask = 0x0f;

}  // namespace

SegmentFault decode(const std::byte* bytes, SegmentHeader& header) noexcept {
  const auto ddp = static_cast<uint8_t>(bytes[0]);
  const auto rdmap = static_cast<uint8_t>(bytes[1]);
  header.tagged = (ddp & kTagged) != 0;
  header.last = (ddp & kLast) != 0;
  header.opcode = static_cast<Opcode>(rdmap & kOpcodeMask);
  header.stag = load_u32(bytes + 2);
  if (header.tagged) {
    header.offset = load_u64(bytes + 6);
  } else {
    header.queue = load_u32(bytes + 6);
    header.number = load_u32(bytes + 10);
    header.offset = load_u32(bytes + 14);
  }
  if ((ddp & kDdpVersionMask) != kDdpVersion)
    return SegmentFault::kDdpVersion;
  if ((rdmap & kRdmapVersionMask) != kRdmapVersion)
    return SegmentFault::kRdmapVersion;
  if (header.opcode > Opcode::kTerminate)
    return SegmentFault::kOpcode;
  const bool of_tagged = header.opcode == Opcode::kWrite || header.opcode == Opcode::kReadResponse;
  return header.tagged == of_tagged ? SegmentFault::kNone : SegmentFault::kOpcode;
}

uint32_t encode(const SegmentHeader& header, std::byte* bytes) noexcept {
  uint32_t ddp = kDdpVersion;
  ddp |= header.tagged ? kTagged : 0u;
  ddp |= header.last ? kLast : 0u;
  bytes[0] = static_cast<std::byte>(ddp);
  bytes[1] = static_cast<std::byte>(kRdmapVersion | static_cast<uint8_t>(header.opcode));
  store_u32(bytes + 2, header.stag);
  if (header.tagged) {
    store_u64(bytes + 6, header.offset);
    return kTaggedHeader;
  }
  store_u32(bytes + 6, header.queue);
  store_u32(bytes + 10, header.number);
  store_u32(bytes + 14, static_cast<uint32_t>(header.offset));
  return kUntaggedHeader;
}

ReadRequest decode_read_request(const std::byte* bytes) noexcept {
  return {.sink_stag = load_u32(bytes),
          .sink_offset = load_u64(bytes + 4),
          .length = load_u32(bytes + 12),
          .source_stag = load_u32(bytes + 16),
          .source_offset = load_u64(bytes + 20)};
}

void encode(const ReadRequest& request, std::byte* bytes) noexcept {
  store_u32(bytes, request.sink_stag);
  store_u64(bytes + 4, request.sink_offset);
  store_u32(bytes + 12, request.length);
  store_u32(bytes + 16, request.source_stag);
  store_u64(bytes + 20, request.source_offset);
}

uint32_t add_crc(uint32_t crc, const std::byte* bytes, size_t length) noexcept {
  // The library takes a length of type int, and does not write.
  auto* at = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes));
  return crc32_iscsi(at, static_cast<int>(length), crc);
}

void store_crc(std::byte* bytes, uint32_t crc) noexcept {
  const uint32_t value = htole32(~crc);
  std::memcpy(bytes, &value, sizeof(value));
}

bool crc_matches(const std::byte* bytes, uint32_t crc) noexcept {
  uint32_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return le32toh(value) == ~crc;
}

void finish_fpdu(std::byte* bytes, uint32_t pad, bool with_crc, uint32_t crc) noexcept {
  std::memset(bytes, 0, pad + kCrcField);
  if (with_crc)
    store_crc(bytes + pad, add_crc(crc, bytes, pad));
}

}  // namespace rrdk::iwarp
