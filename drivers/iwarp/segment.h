// What travels over a stream: integers, and the segments that they form.
#pragma once

#include <endian.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace rrdk::iwarp {

// Big-endian integers, at any address.
inline uint16_t load_u16(const std::byte* p) {
  uint16_t value;
  std::memcpy(&value, p, sizeof(value));
  return be16toh(value);
}
inline uint32_t load_u32(const std::byte* p) {
  uint32_t value;
  std::memcpy(&value, p, sizeof(value));
  return be32toh(value);
}
inline uint64_t load_u64(const std::byte* p) {
  uint64_t value;
  std::memcpy(&value, p, sizeof(value));
  return be64toh(value);
}
inline void store_u16(std::byte* p, uint16_t value) {
  value = htobe16(value);
  std::memcpy(p, &value, sizeof(value));
}
inline void store_u32(std::byte* p, uint32_t value) {
  value = htobe32(value);
  std::memcpy(p, &value, sizeof(value));
}
inline void store_u64(std::byte* p, uint64_t value) {
  value = htobe64(value);
  std::memcpy(p, &value, sizeof(value));
}

// DDP segments with RDMAP headers (RFC 5041 section 4, RFC 5040 section 4), and the FPDU around
// them (RFC 5044 section 4.2): length, segment, pad to four bytes, CRC32C.

// RFC 5040 section 4.3.
enum class Opcode : uint8_t {
  kWrite = 0,
  kReadRequest = 1,
  kReadResponse = 2,
  kSend = 3,
  kSendInvalidate = 4,
  kSendSolicited = 5,
  kSendSolicitedInvalidate = 6,
  kTerminate = 7,
};

constexpr bool invalidates(Opcode opcode) {
  return opcode == Opcode::kSendInvalidate || opcode == Opcode::kSendSolicitedInvalidate;
}
constexpr bool is_send(Opcode opcode) {
  return opcode >= Opcode::kSend && opcode <= Opcode::kSendSolicitedInvalidate;
}

// Queues of untagged buffers (RFC 5040 section 4.2).
enum Queue : uint32_t { kSendQueue = 0, kReadQueue = 1, kTerminateQueue = 2 };

struct SegmentHeader {
  bool tagged = false;
  bool last = false;
  Opcode opcode = Opcode::kSend;
  uint32_t stag = 0;    // tagged: of the buffer; Send with Invalidate: the key that it invalidates
  uint64_t offset = 0;  // tagged: in the buffer; untagged: in the message
  uint32_t queue = 0;   // untagged
  uint32_t number = 0;  // untagged: of the message in its queue, from 1
};

constexpr uint32_t kLengthField = 2;
constexpr uint32_t kCrcField = 4;
constexpr uint32_t kTaggedHeader = 14;
constexpr uint32_t kUntaggedHeader = 18;
constexpr uint32_t kMaxUlpdu = 65535;
constexpr uint32_t kReadRequestBody = 28;

// The pad that makes length field, segment and pad a multiple of four.
constexpr uint32_t pad_of(uint32_t ulpdu) {
  return (4 - (kLengthField + ulpdu) % 4) % 4;
}
// `first` is a segment's first byte.
inline uint32_t header_length(std::byte first) {
  return (first & std::byte{0x80}) != std::byte{0} ? kTaggedHeader : kUntaggedHeader;
}

enum class SegmentFault : uint8_t { kNone, kDdpVersion, kRdmapVersion, kOpcode };

// `bytes` must have at least header_length() bytes.
SegmentFault decode(const std::byte* bytes, SegmentHeader& header) noexcept;
// Returns how many bytes it wrote.
uint32_t encode(const SegmentHeader& header, std::byte* bytes) noexcept;

struct ReadRequest {
  uint32_t sink_stag = 0;
  uint64_t sink_offset = 0;
  uint32_t length = 0;
  uint32_t source_stag = 0;
  uint64_t source_offset = 0;
};
ReadRequest decode_read_request(const std::byte* bytes) noexcept;
void encode(const ReadRequest& request, std::byte* bytes) noexcept;

// CRC32C of more bytes. Starts with kCrcStart; the wire has its complement, least significant byte
// first.
constexpr uint32_t kCrcStart = 0xffffffff;
uint32_t add_crc(uint32_t crc, const std::byte* bytes, size_t length) noexcept;
void store_crc(std::byte* bytes, uint32_t crc) noexcept;
bool crc_matches(const std::byte* bytes, uint32_t crc) noexcept;
// Appends `pad` zero bytes and the CRC, which is zero unless CRCs were agreed on. `crc`: of
// everything before.
void finish_fpdu(std::byte* bytes, uint32_t pad, bool with_crc, uint32_t crc) noexcept;

}  // namespace rrdk::iwarp
