// RFC 8797: the octets in the connection manager's private data.
#include <gtest/gtest.h>

#include <vector>

#include "proto/negotiation.h"

namespace rrdk::proto {
namespace {

using Octets = std::vector<std::byte>;

Octets octets(std::initializer_list<int> values) {
  Octets out;
  for (int v : values)
    out.push_back(std::byte(v));
  return out;
}

Octets valid(int flags, int send, int receive) {
  return octets({0xf6, 0xab, 0x0e, 0x18, 1, flags, send, receive});
}

Octets join(std::initializer_list<Octets> parts) {
  Octets out;
  for (const Octets& part : parts)
    out.insert(out.end(), part.begin(), part.end());
  return out;
}

Octets encoding(bool r, uint32_t send, uint32_t receive) {
  auto bytes = encode(PrivateData{r, send, receive});
  return {bytes.begin(), bytes.end()};
}

void expect_defaults(const Octets& field) {
  PrivateData d = decode_private_data(field);
  EXPECT_FALSE(d.remote_invalidation);
  EXPECT_EQ(d.send_size, 1024u);
  EXPECT_EQ(d.receive_size, 1024u);
}

// Shows: PD-01, PD-02, PD-03, PD-06, PD-08, PD-40
TEST(PrivateData, EncodesToEightOctets) {
  EXPECT_EQ(encoding(true, 4096, 4096), valid(1, 3, 3));
  EXPECT_EQ(encoding(false, 1024, 262144), valid(0, 0, 255));
  EXPECT_EQ(encoding(false, 8192, 1024), valid(0, 7, 0));
}

// Shows: PD-13
TEST(PrivateData, SizesAreRoundedDownAndCapped) {
  EXPECT_EQ(encoding(false, 5000, 1 << 20), valid(0, 3, 255));
  EXPECT_EQ(encoding(false, 2047, 0xffffffff), valid(0, 0, 255));
  // Smaller sizes cannot be expressed, and cannot be configured either.
  EXPECT_EQ(encoding(false, 512, 0), valid(0, 0, 0));
}

// Shows: PD-07, PD-08
TEST(PrivateData, EachSizeOctetIsAMultipleOf1024) {
  for (int v = 0; v < 256; ++v) {
    PrivateData d = decode_private_data(valid(0, v, 255 - v));
    EXPECT_EQ(d.send_size, (v + 1) * 1024u);
    EXPECT_EQ(d.receive_size, (256 - v) * 1024u);
  }
}

// Shows: PD-04, PD-05
TEST(PrivateData, OnlyTheLowestFlagCounts) {
  EXPECT_TRUE(decode_private_data(valid(0x01, 3, 3)).remote_invalidation);
  EXPECT_TRUE(decode_private_data(valid(0xff, 3, 3)).remote_invalidation);
  EXPECT_FALSE(decode_private_data(valid(0xfe, 3, 3)).remote_invalidation);
  EXPECT_FALSE(decode_private_data(valid(0x80, 3, 3)).remote_invalidation);
  EXPECT_EQ(decode_private_data(valid(0xfe, 3, 7)).send_size, 4096u);
  EXPECT_EQ(decode_private_data(valid(0xfe, 3, 7)).receive_size, 8192u);
}

// Shows: PD-15, PD-16, PD-37, PD-43
TEST(PrivateData, IsFoundAtEveryOffset) {
  for (size_t offset = 0; offset <= 48; ++offset) {
    Octets field(56);
    Octets message = valid(1, 3, 7);
    std::copy(message.begin(), message.end(), field.begin() + ptrdiff_t(offset));
    PrivateData d = decode_private_data(field);
    EXPECT_TRUE(d.remote_invalidation) << offset;
    EXPECT_EQ(d.send_size, 4096u) << offset;
    EXPECT_EQ(d.receive_size, 8192u) << offset;
  }
  // A prefix that begins like the identifier.
  EXPECT_EQ(decode_private_data(join({octets({0xf6, 0xab, 0x0e}), valid(1, 3, 7)})).send_size,
            4096u);
}

// Shows: PD-12, PD-14, PD-17, PD-18, PD-43, SEC-13
TEST(PrivateData, WithoutAValidMessageThePeerHasTheDefaults) {
  expect_defaults({});
  expect_defaults(Octets(196));
  expect_defaults(octets({0xf6, 0xab, 0x0e, 0x19, 1, 1, 3, 3}));
  expect_defaults(octets({0x18, 0x0e, 0xab, 0xf6, 1, 1, 3, 3}));
  for (int version : {0, 2, 255})
    expect_defaults(octets({0xf6, 0xab, 0x0e, 0x18, version, 1, 3, 3}));
}

// Shows: PD-14, PD-19
TEST(PrivateData, TruncatedMessageIsIgnored) {
  Octets whole = valid(1, 3, 3);
  for (size_t size = 0; size < whole.size(); ++size) {
    Octets cut(whole.begin(), whole.begin() + ptrdiff_t(size));
    expect_defaults(cut);
    expect_defaults(join({Octets(48), cut}));
  }
}

// Shows: PD-20
TEST(PrivateData, FirstValidMessageCounts) {
  Octets other_version = octets({0xf6, 0xab, 0x0e, 0x18, 2, 1, 9, 9});
  EXPECT_EQ(decode_private_data(join({other_version, valid(0, 3, 3)})).send_size, 4096u);
  EXPECT_EQ(decode_private_data(join({valid(0, 3, 3), valid(0, 7, 7)})).send_size, 4096u);
  // A hit whose remaining octets are the beginning of the valid one.
  EXPECT_EQ(decode_private_data(join({octets({0xf6, 0xab, 0x0e, 0x18}), valid(0, 3, 3)})).send_size,
            4096u);
}

// Shows: PD-38
TEST(PrivateData, OctetsBehindTheMessageAreIgnored) {
  PrivateData d = decode_private_data(join({valid(1, 3, 7), Octets(20, std::byte{0xff})}));
  EXPECT_TRUE(d.remote_invalidation);
  EXPECT_EQ(d.send_size, 4096u);
  EXPECT_EQ(d.receive_size, 8192u);
}

std::string told(Rejection why, std::string_view text) {
  return decode_rejection(encode(why, text)).value().to_string();
}

TEST(Rejections, SayWhyAndWhatTheProgramSays) {
  for (Rejection why : {Rejection::kConnections, Rejection::kClient, Rejection::kBuffers,
                        Rejection::kNotAdmitted, Rejection::kClosing}) {
    EXPECT_EQ(encode(why).size(), kRejectionLength);
    EXPECT_EQ(told(why, ""), to_string(why));
    EXPECT_EQ(told(why, "not before noon"), std::string(to_string(why)) + ": not before noon");
  }
}

TEST(Rejections, TextThatIsTooLongIsCut) {
  std::string fits(kMaxRejectionText, 'x');
  EXPECT_EQ(decode_rejection(encode(Rejection::kClient, fits))->text, fits);
  std::string cut = fits.substr(3) + "...";
  EXPECT_EQ(decode_rejection(encode(Rejection::kClient, fits + "y"))->text, cut);
  EXPECT_EQ(encode(Rejection::kClient, std::string(100'000, 'x')).size(),
            kRejectionLength + kMaxRejectionText);
}

TEST(Rejections, TextIsPrintableOnBothSides) {
  EXPECT_EQ(decode_rejection(encode(Rejection::kClient, "a\nb\x1b[2J\xc3\xa4\x7f"))->text,
            "a?b?[2J???");
  // Invalid data from a peer.
  Octets sent = encode(Rejection::kClient);
  for (int octet = 1; octet < 256; ++octet) {
    Octets field = join({sent, Octets(1, std::byte(octet))});
    bool printable = octet >= 0x20 && octet < 0x7f;
    EXPECT_EQ(decode_rejection(field)->text, std::string(1, printable ? char(octet) : '?'));
  }
  EXPECT_EQ(decode_rejection(join({sent, Octets(1000, std::byte{7})}))->text,
            std::string(kMaxRejectionText, '?'));
  // A driver may fill the rest with zeros.
  EXPECT_EQ(decode_rejection(join({encode(Rejection::kClient, "no"), Octets(46)}))->text, "no");
}

TEST(Rejections, ForeignDataIsNotARejection) {
  Octets whole = encode(Rejection::kClient, "no");
  for (size_t size = 0; size < kRejectionLength; ++size)
    EXPECT_FALSE(decode_rejection(std::span(whole).first(size))) << size;
  whole[0] ^= std::byte{1};
  EXPECT_FALSE(decode_rejection(whole));
  EXPECT_STREQ(to_string(static_cast<Rejection>(200)), "for a reason that is not known here");
}

}  // namespace
}  // namespace rrdk::proto
