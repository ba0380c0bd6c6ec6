#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "rpc/headers_datapath.h"
#include "test/xdr/messages.h"

namespace rrdk::rpc {
namespace {

using test::Bytes;
using test::bytes_of;
using test::kNoLimit;
using test::Scattered;
using test::stream_of;
using test::words_of;

class ReplyTest : public test::MessageTest {
 protected:
  Bytes encode(const std::function<void(Encoder&)>& put) {
    Encoder out(message_, *memory_, 64, kNoLimit);
    put(out);
    EXPECT_TRUE(out.ok());
    out.finish();
    return stream_of(message_);
  }
};

bool decode(const Bytes& stream, ReplyHeader& header) {
  Scattered whole(stream);
  Decoder in(whole.fragments());
  return decode_reply(in, header);
}

bool decodes(const Bytes& stream) {
  ReplyHeader header;
  return decode(stream, header);
}

const Bytes kGoldenSuccess = words_of({0x12345678, 1, 0, 0, 0, 0});

TEST_F(ReplyTest, NullReplyIsTheGoldenBytes) {
  EXPECT_EQ(encode([](Encoder& out) { encode_success(out, 0x12345678); }), kGoldenSuccess);
}

TEST_F(ReplyTest, EveryCutOfASuccessDecodesAlike) {
  Bytes stream = kGoldenSuccess;
  test::append_u32(stream, 42);
  for (size_t first = 0; first <= stream.size(); ++first) {
    Scattered cut(stream, std::array{first});
    Decoder in(cut.fragments());
    ReplyHeader header;
    header.accept_stat = AcceptStat::kSystemErr;  // left from a call before
    ASSERT_TRUE(decode_reply(in, header));
    EXPECT_EQ(header.xid, 0x12345678u);
    EXPECT_EQ(call_status(header), CallStatus::kOk);
    EXPECT_EQ(in.get_u32(), 42u);
    EXPECT_TRUE(in.at_end());
  }
}

TEST_F(ReplyTest, SuccessThatStraddlesBuffersIsTheSame) {
  for (uint32_t before = 0; before != 20; ++before) {
    Bytes stream = encode([before](Encoder& out) {
      for (uint32_t i = 0; i != before; ++i)
        out.put_u32(0);
      encode_success(out, 0x12345678);
    });
    EXPECT_EQ(Bytes(stream.begin() + before * 4, stream.end()), kGoldenSuccess);
  }
}

// Shows: V1-ERR-17
TEST_F(ReplyTest, EveryAcceptStatusRoundTrips) {
  const std::array<std::pair<AcceptStat, CallStatus>, 6> cases = {{
      {AcceptStat::kSuccess, CallStatus::kOk},
      {AcceptStat::kProgUnavail, CallStatus::kProgUnavail},
      {AcceptStat::kProgMismatch, CallStatus::kProgMismatch},
      {AcceptStat::kProcUnavail, CallStatus::kProcUnavail},
      {AcceptStat::kGarbageArgs, CallStatus::kGarbageArgs},
      {AcceptStat::kSystemErr, CallStatus::kSystemErr},
  }};
  for (uint32_t number = 0; number != cases.size(); ++number) {
    auto [accept, status] = cases[number];
    Bytes reply = encode([&](Encoder& out) { encode_accepted(out, 8, accept, 2, 4); });
    Bytes expected = words_of({8, 1, 0, 0, 0, number});
    if (accept == AcceptStat::kProgMismatch) {
      test::append_u32(expected, 2);
      test::append_u32(expected, 4);
    }
    EXPECT_EQ(reply, expected);
    ReplyHeader header;
    ASSERT_TRUE(decode(reply, header));
    EXPECT_EQ(header.xid, 8u);
    EXPECT_EQ(header.reply_stat, ReplyStat::kAccepted);
    EXPECT_EQ(header.accept_stat, accept);
    EXPECT_EQ(call_status(header), status);
    if (accept == AcceptStat::kProgMismatch) {
      EXPECT_EQ(header.mismatch_low, 2u);
      EXPECT_EQ(header.mismatch_high, 4u);
    }
  }
}

TEST_F(ReplyTest, RpcMismatchRoundTrips) {
  Bytes reply = encode([](Encoder& out) { encode_rpc_mismatch(out, 8); });
  EXPECT_EQ(reply, words_of({8, 1, 1, 0, 2, 2}));
  ReplyHeader header;
  ASSERT_TRUE(decode(reply, header));
  EXPECT_EQ(header.reply_stat, ReplyStat::kDenied);
  EXPECT_EQ(header.reject_stat, RejectStat::kRpcMismatch);
  EXPECT_EQ(header.mismatch_low, 2u);
  EXPECT_EQ(header.mismatch_high, 2u);
  EXPECT_EQ(call_status(header), CallStatus::kRpcMismatch);
}

TEST_F(ReplyTest, EveryAuthErrorRoundTrips) {
  for (uint32_t number : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u, 13u, 14u, 99u}) {
    AuthStat reason = static_cast<AuthStat>(number);
    Bytes reply = encode([reason](Encoder& out) { encode_auth_error(out, 8, reason); });
    EXPECT_EQ(reply, words_of({8, 1, 1, 1, number}));
    ReplyHeader header;
    ASSERT_TRUE(decode(reply, header));
    EXPECT_EQ(header.reply_stat, ReplyStat::kDenied);
    EXPECT_EQ(header.reject_stat, RejectStat::kAuthError);
    EXPECT_EQ(header.auth_stat, reason);
    EXPECT_EQ(call_status(header), CallStatus::kAuthError);
  }
}

TEST_F(ReplyTest, VerifierOfTheServerIsCarried) {
  for (uint32_t length : {1u, 8u, 400u}) {
    Bytes stream = words_of({8, 1, 0, 2, length});
    stream.resize(stream.size() + length + xdr_pad(length), std::byte{0x5a});
    test::append_u32(stream, 0);
    test::append_u32(stream, 42);
    Scattered cut(stream, std::array<size_t, 1>{22});
    Decoder in(cut.fragments());
    ReplyHeader header;
    ASSERT_TRUE(decode_reply(in, header));
    EXPECT_EQ(header.verifier.flavor, AuthFlavor::kShort);
    EXPECT_EQ(bytes_of(header.verifier.body), Bytes(length, std::byte{0x5a}));
    EXPECT_EQ(in.get_u32(), 42u);
    EXPECT_TRUE(in.at_end());
  }
}

TEST_F(ReplyTest, ValuesUndefinedByRfc5531AreMalformed) {
  EXPECT_FALSE(decodes(words_of({8, 0, 0, 0, 0, 0})));  // a call
  EXPECT_FALSE(decodes(words_of({8, 2, 0, 0, 0, 0})));  // no msg_type
  EXPECT_FALSE(decodes(words_of({8, 1, 2, 0, 0, 0})));  // no reply_stat
  EXPECT_FALSE(decodes(words_of({8, 1, 0, 0, 0, 6})));  // no accept_stat
  EXPECT_FALSE(decodes(words_of({8, 1, 0, 0, 0, 0xffffffff})));
  EXPECT_FALSE(decodes(words_of({8, 1, 1, 2, 0, 0})));  // no reject_stat
  for (uint32_t length : {401u, 0xfffffffdu, 0xffffffffu}) {
    Bytes stream = words_of({8, 1, 0, 2, length});
    stream.resize(stream.size() + 500);
    EXPECT_FALSE(decodes(stream));
  }
}

TEST_F(ReplyTest, EveryTruncationIsMalformed) {
  for (const Bytes& reply :
       {kGoldenSuccess, words_of({8, 1, 0, 2, 8, 1, 2, 0}), words_of({8, 1, 0, 0, 0, 2, 2, 4}),
        words_of({8, 1, 1, 0, 2, 2}), words_of({8, 1, 1, 1, 5})}) {
    ASSERT_TRUE(decodes(reply));
    for (size_t length = 0; length != reply.size(); ++length)
      EXPECT_FALSE(decodes(Bytes(reply.begin(), reply.begin() + length))) << length;
  }
}

TEST_F(ReplyTest, NothingReadsPastTheEndOfAReply) {
  std::mt19937_64 random(test::run_seed());
  for (int round = 0; round != 20000; ++round) {
    Bytes stream = words_of({8, 1, random() % 2 == 0 ? 1u : 0u});
    while (stream.size() < 48)
      test::append_u32(stream, static_cast<uint32_t>(random() % 8 == 0 ? random() : random() % 8));
    stream.resize(random() % (stream.size() + 1));
    Scattered cut(stream, random);
    Decoder in(cut.fragments());
    ReplyHeader header;
    if (decode_reply(in, header)) {
      EXPECT_LE(header.verifier.body.size(), kMaxAuthBody);
      EXPECT_NE(call_status(header), CallStatus::kMalformedReply);
    }
  }
}

TEST(Names, EachStatusHasADistinctNameAndOthersAreUnknown) {
  std::vector<std::string> names;
  for (uint8_t i = 0; i <= static_cast<uint8_t>(CallStatus::kFull); ++i)
    names.emplace_back(to_string(static_cast<CallStatus>(i)));
  std::ranges::sort(names);
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
  EXPECT_STREQ(to_string(static_cast<CallStatus>(200)), "unknown call status");
  EXPECT_STREQ(to_string(AcceptStat::kGarbageArgs), "garbage arguments");
  EXPECT_STREQ(to_string(static_cast<AcceptStat>(6)), "unknown accept status");
  EXPECT_STREQ(to_string(AuthStat::kTooWeak), "credential too weak");
  EXPECT_STREQ(to_string(static_cast<AuthStat>(99)), "unknown authentication status");
  EXPECT_STREQ(to_string(static_cast<RejectStat>(2)), "unknown reject status");
  EXPECT_STREQ(to_string(AuthFlavor::kRpcsecGss), "RPCSEC_GSS");
  EXPECT_STREQ(to_string(static_cast<AuthFlavor>(99)), "unknown flavour");
}

}  // namespace
}  // namespace rrdk::rpc
