// DDP and RDMAP headers, Terminate messages and CRCs, byte by byte.
#include "drivers/iwarp/segment.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "drivers/iwarp/terminate.h"

namespace rrdk::iwarp {
namespace {

std::vector<std::byte> bytes(std::initializer_list<int> values) {
  std::vector<std::byte> out;
  for (int value : values)
    out.push_back(static_cast<std::byte>(value));
  return out;
}

std::vector<std::byte> encoded(const SegmentHeader& header) {
  std::vector<std::byte> out(kUntaggedHeader);
  out.resize(encode(header, out.data()));
  return out;
}

TEST(Segment, HeadersHaveTheLayoutOfTheSpecifications) {
  // A Send as siw sends it: queue 0, message 1, offset 0.
  EXPECT_EQ(encoded({.last = true, .opcode = Opcode::kSend, .number = 1}),
            bytes({0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0}));
  EXPECT_EQ(encoded({.last = false,
                     .opcode = Opcode::kSendInvalidate,
                     .stag = 0x01020304,
                     .offset = 0x0a0b0c0d,
                     .number = 7}),
            bytes({0x01, 0x44, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 7, 10, 11, 12, 13}));
  EXPECT_EQ(encoded({.tagged = true,
                     .last = true,
                     .opcode = Opcode::kWrite,
                     .stag = 0x05060708,
                     .offset = 0x1122334455667788}),
            bytes({0xc1, 0x40, 5, 6, 7, 8, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88}));
}

TEST(Segment, HeadersComeBack) {
  for (uint8_t opcode = 0; opcode != 8; ++opcode) {
    const auto of = static_cast<Opcode>(opcode);
    const bool tagged = of == Opcode::kWrite || of == Opcode::kReadResponse;
    for (bool last : {false, true}) {
      SegmentHeader header{.tagged = tagged,
                           .last = last,
                           .opcode = of,
                           .stag = 0xdeadbeef,
                           .offset = tagged ? 0xfedcba9876543210 : 0x76543210};
      if (!tagged) {
        header.queue = 1;
        header.number = 0x80000001;
      }
      const auto wire = encoded(header);
      EXPECT_EQ(wire.size(), header_length(wire[0]));
      SegmentHeader read;
      EXPECT_EQ(decode(wire.data(), read), SegmentFault::kNone);
      EXPECT_EQ(encoded(read), wire);
      EXPECT_EQ(read.offset, header.offset);
      EXPECT_EQ(read.number, header.number);
    }
  }
}

TEST(Segment, VersionsAndOpcodesAreChecked) {
  auto wire = encoded({.last = true, .opcode = Opcode::kSend, .number = 1});
  const auto fault = [&](int ddp, int rdmap) {
    wire[0] = static_cast<std::byte>(ddp);
    wire[1] = static_cast<std::byte>(rdmap);
    SegmentHeader header;
    return decode(wire.data(), header);
  };
  EXPECT_EQ(fault(0x41, 0x43), SegmentFault::kNone);
  EXPECT_EQ(fault(0x40, 0x43), SegmentFault::kDdpVersion);
  EXPECT_EQ(fault(0x42, 0x43), SegmentFault::kDdpVersion);
  EXPECT_EQ(fault(0x41, 0x03), SegmentFault::kRdmapVersion);
  EXPECT_EQ(fault(0x41, 0x83), SegmentFault::kRdmapVersion);
  for (int opcode = 8; opcode != 16; ++opcode)
    EXPECT_EQ(fault(0x41, 0x40 | opcode), SegmentFault::kOpcode);
  EXPECT_EQ(fault(0x41, 0x40), SegmentFault::kOpcode) << "a Write that is not tagged";
  EXPECT_EQ(fault(0xc1, 0x43), SegmentFault::kOpcode) << "a tagged Send";
}

TEST(Segment, ReadRequestsComeBack) {
  const ReadRequest request{.sink_stag = 1,
                            .sink_offset = 0x0203040506070809,
                            .length = 0x0a0b0c0d,
                            .source_stag = 0x0e0f1011,
                            .source_offset = 0x1213141516171819};
  std::array<std::byte, kReadRequestBody> wire;
  encode(request, wire.data());
  EXPECT_EQ(wire[3], std::byte{1});
  EXPECT_EQ(wire[4], std::byte{2});
  EXPECT_EQ(wire[27], std::byte{0x19});
  const ReadRequest read = decode_read_request(wire.data());
  EXPECT_EQ(read.sink_offset, request.sink_offset);
  EXPECT_EQ(read.length, request.length);
  EXPECT_EQ(read.source_stag, request.source_stag);
  EXPECT_EQ(read.source_offset, request.source_offset);
}

TEST(Segment, PadsMakeMultiplesOfFour) {
  for (uint32_t ulpdu = 14; ulpdu != 40; ++ulpdu) {
    EXPECT_LT(pad_of(ulpdu), 4u);
    EXPECT_EQ((kLengthField + ulpdu + pad_of(ulpdu)) % 4, 0u);
  }
}

// RFC 3720 appendix B.4: the CRC32C of 32 zeros, and of 0 to 31, as they go over the wire.
TEST(Segment, CrcsAreThoseOfTheSpecification) {
  std::array<std::byte, 32> data{};
  std::array<std::byte, kCrcField> wire;
  store_crc(wire.data(), add_crc(kCrcStart, data.data(), data.size()));
  EXPECT_EQ(std::vector<std::byte>(wire.begin(), wire.end()), bytes({0xaa, 0x36, 0x91, 0x8a}));
  for (size_t i = 0; i != data.size(); ++i)
    data[i] = static_cast<std::byte>(i);
  uint32_t crc = add_crc(kCrcStart, data.data(), 5);
  crc = add_crc(crc, data.data() + 5, data.size() - 5);
  store_crc(wire.data(), crc);
  EXPECT_EQ(std::vector<std::byte>(wire.begin(), wire.end()), bytes({0x4e, 0x79, 0xdd, 0x46}));
  EXPECT_TRUE(crc_matches(wire.data(), crc));
  wire[2] ^= std::byte{1};
  EXPECT_FALSE(crc_matches(wire.data(), crc));
}

TEST(Terminate, SaysWhatAndWhich) {
  const Terminate terminate{
      .cause = Cause::kOutOfBounds,
      .has_segment = true,
      .ulpdu = 46,
      .segment = {.last = true, .opcode = Opcode::kReadRequest, .queue = 1, .number = 9}};
  std::array<std::byte, kMaxTerminate> wire;
  const uint32_t length = encode(terminate, wire);
  EXPECT_EQ(length, 4u + 2 + kUntaggedHeader);
  EXPECT_EQ(wire[0], std::byte{0x01});  // RDMAP, remote protection
  EXPECT_EQ(wire[1], std::byte{0x01});  // base or bounds
  EXPECT_EQ(wire[2], std::byte{0xc0});
  const Terminate read = decode_terminate(std::span(wire).first(length));
  EXPECT_EQ(read.cause, terminate.cause);
  EXPECT_TRUE(read.has_segment);
  EXPECT_EQ(read.segment.number, 9u);
  // Truncated anywhere, it is still read as far as it goes.
  for (uint32_t cut = 0; cut != length; ++cut)
    EXPECT_FALSE(decode_terminate(std::span(wire).first(cut)).has_segment);
  EXPECT_EQ(decode_terminate(std::span(wire).first(4)).cause, terminate.cause);
  EXPECT_NE(describe(static_cast<Cause>(0x2345)).find("layer 2, type 3, code 69"),
            std::string::npos);
}

}  // namespace
}  // namespace rrdk::iwarp
