// MPA's frames, byte by byte.
#include "drivers/iwarp/mpa.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string_view>

namespace rrdk::iwarp {
namespace {

std::vector<std::byte> frame_of(std::string_view key, std::initializer_list<int> rest) {
  std::vector<std::byte> bytes(key.size());
  std::memcpy(bytes.data(), key.data(), key.size());
  for (int byte : rest)
    bytes.push_back(static_cast<std::byte>(byte));
  return bytes;
}

// The frames that Linux's NFS client sends through siw and its server answers (kernel 6.1).
const auto kLinuxRequest = frame_of(
    "MPA ID Req Frame", {0x10, 2, 0, 12, 0, 0x80, 0, 0, 0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3});
const auto kLinuxReply = frame_of(
    "MPA ID Rep Frame", {0x10, 2, 0, 12, 0, 0, 0, 0x80, 0xf6, 0xab, 0x0e, 0x18, 1, 0, 3, 3});

TEST(Mpa, ReadsAndWritesWhatLinuxSends) {
  MpaFrame frame;
  ASSERT_EQ(decode(kLinuxRequest, MpaKind::kRequest, frame), MpaVerdict::kOk);
  EXPECT_EQ(frame.revision, 2);
  EXPECT_TRUE(frame.enhanced);
  EXPECT_FALSE(frame.crc || frame.markers || frame.rejected || frame.peer_to_peer);
  EXPECT_EQ(frame.ird, 128);
  EXPECT_EQ(frame.ord, 0);
  EXPECT_EQ(frame.private_data.size(), 8u);
  EXPECT_EQ(encode(frame), kLinuxRequest);
  ASSERT_EQ(decode(kLinuxReply, MpaKind::kReply, frame), MpaVerdict::kOk);
  EXPECT_EQ(frame.ird, 0);
  EXPECT_EQ(frame.ord, 128);
  EXPECT_EQ(encode(frame), kLinuxReply);
}

TEST(Mpa, EveryFlagIsItsOwn) {
  for (uint32_t bits = 0; bits != 1u << 8; ++bits) {
    const MpaFrame frame{.kind = bits & 1 ? MpaKind::kRequest : MpaKind::kReply,
                         .revision = 2,
                         .markers = (bits & 2) != 0,
                         .crc = (bits & 4) != 0,
                         .rejected = (bits & 8) != 0,
                         .enhanced = true,
                         .ird = static_cast<uint16_t>(bits * 31),
                         .ord = static_cast<uint16_t>(kMpaAnyDepth - bits),
                         .peer_to_peer = (bits & 16) != 0,
                         .rtr_send = (bits & 32) != 0,
                         .rtr_write = (bits & 64) != 0,
                         .rtr_read = (bits & 128) != 0,
                         .private_data = std::vector<std::byte>(bits)};
    MpaFrame read;
    ASSERT_EQ(decode(encode(frame), frame.kind, read), MpaVerdict::kOk);
    EXPECT_EQ(read.markers, frame.markers);
    EXPECT_EQ(read.crc, frame.crc);
    EXPECT_EQ(read.rejected, frame.rejected);
    EXPECT_EQ(read.ird, frame.ird);
    EXPECT_EQ(read.ord, frame.ord);
    EXPECT_EQ(read.peer_to_peer, frame.peer_to_peer);
    EXPECT_EQ(read.rtr_send, frame.rtr_send);
    EXPECT_EQ(read.rtr_write, frame.rtr_write);
    EXPECT_EQ(read.rtr_read, frame.rtr_read);
    EXPECT_EQ(read.private_data.size(), frame.private_data.size());
  }
}

TEST(Mpa, RevisionOneHasNothingInFrontOfThePrivateData) {
  const auto bytes = frame_of("MPA ID Req Frame", {0x50, 1, 0, 2, 7, 8});
  MpaFrame frame;
  ASSERT_EQ(decode(bytes, MpaKind::kRequest, frame), MpaVerdict::kOk);
  EXPECT_FALSE(frame.enhanced);
  EXPECT_TRUE(frame.crc);
  EXPECT_EQ(frame.private_data.size(), 2u);
}

TEST(Mpa, RefusesInvalidFrames) {
  const auto verdict = [](std::vector<std::byte> bytes, MpaKind kind = MpaKind::kRequest) {
    uint32_t length = 0;
    return check_header(std::span(bytes).first<kMpaHeader>(), kind, length);
  };
  EXPECT_EQ(verdict(kLinuxRequest), MpaVerdict::kOk);
  EXPECT_EQ(verdict(kLinuxRequest, MpaKind::kReply), MpaVerdict::kNotMpa);
  EXPECT_EQ(verdict(frame_of("GET / HTTP/1.1\r\n", {0, 0, 0, 0})), MpaVerdict::kNotMpa);
  for (int revision : {0, 3, 255})
    EXPECT_EQ(verdict(frame_of("MPA ID Req Frame", {0x10, revision, 0, 4})),
              MpaVerdict::kBadRevision);
  EXPECT_EQ(verdict(frame_of("MPA ID Req Frame", {0, 1, 2, 0})), MpaVerdict::kOk);
  EXPECT_EQ(verdict(frame_of("MPA ID Req Frame", {0, 1, 2, 1})), MpaVerdict::kTooLong);
  EXPECT_EQ(verdict(frame_of("MPA ID Req Frame", {0, 1, 0xff, 0xff})), MpaVerdict::kTooLong);
  EXPECT_EQ(verdict(frame_of("MPA ID Req Frame", {0x10, 2, 0, 3})), MpaVerdict::kBadEnhanced);
}

}  // namespace
}  // namespace rrdk::iwarp
