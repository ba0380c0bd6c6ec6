// Connection set-up over TCP: the request and reply frames of MPA (RFC 5044 section 7.1) with the
// enhanced form of RFC 6581, which negotiates Read depths and which end speaks first.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rrdk::iwarp {

constexpr uint32_t kMpaHeader = 20;       // key, flags, revision, length of private data
constexpr uint32_t kMpaMaxPrivate = 512;  // RFC 5044 section 7.1.1
constexpr uint32_t kMpaEnhanced = 4;  // bytes of the private data, if revision 2's S flag is set

enum class MpaKind : uint8_t { kRequest, kReply };

// RFC 6581 section 4. 14 bits each; kMpaAnyDepth: not negotiated.
constexpr uint16_t kMpaAnyDepth = 0x3fff;

struct MpaFrame {
  MpaKind kind = MpaKind::kRequest;
  uint8_t revision = 2;
  bool markers = false;
  bool crc = false;
  bool rejected = false;
  // Revision 2 only (RFC 6581 sections 4 and 5).
  bool enhanced = false;
  uint16_t ird = 0;           // RDMA Reads that the sender of the frame can serve
  uint16_t ord = 0;           // RDMA Reads that it wants to have in flight
  bool peer_to_peer = false;  // A: the initiator's first FPDU is a ready-to-receive message
  // B, C, D: the kinds of that message, offered by a request, chosen by a reply
  bool rtr_send = false;
  bool rtr_write = false;
  bool rtr_read = false;
  std::vector<std::byte> private_data = {};  // the upper layer's
};

// What the fixed part says about the rest.
enum class MpaVerdict : uint8_t {
  kOk,
  kNotMpa,       // another protocol
  kBadRevision,  // neither 1 nor 2
  kTooLong,      // more private data than allowed
  kBadEnhanced,  // less than the enhanced form needs
};
const char* to_string(MpaVerdict verdict);

// `header` is the first kMpaHeader bytes. On kOk, `length` is the length of what follows.
MpaVerdict check_header(std::span<const std::byte, kMpaHeader> header, MpaKind expected,
                        uint32_t& length);
// Decodes the whole frame, whose header must have been checked.
MpaVerdict decode(std::span<const std::byte> bytes, MpaKind expected, MpaFrame& frame);
std::vector<std::byte> encode(const MpaFrame& frame);

}  // namespace rrdk::iwarp
