#include <array>
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

constexpr CallTarget kTarget = {.program = 0x20005666, .version = 1, .procedure = 0};

class CallTest : public test::MessageTest {
 protected:
  Bytes encode(uint32_t xid, const CallTarget& target, std::span<const std::byte> credential) {
    Encoder out(message_, *memory_, 64, kNoLimit);
    encode_call(out, xid, target, credential);
    EXPECT_TRUE(out.ok());
    out.finish();
    return stream_of(message_);
  }

  // The reply that a refused header gets.
  Bytes refusal(uint32_t xid, CallVerdict verdict) {
    Encoder out(message_, *memory_, 64, kNoLimit);
    EXPECT_TRUE(encode_refusal(out, xid, verdict));
    out.finish();
    return stream_of(message_);
  }
};

CallVerdict decode(const Bytes& stream, CallHeader& header) {
  Scattered whole(stream);
  Decoder in(whole.fragments());
  return decode_call(in, header);
}

CallVerdict decode(const Bytes& stream) {
  CallHeader header;
  return decode(stream, header);
}

const Bytes kGoldenNull = words_of({
    0x12345678,  // xid
    0,           // CALL
    2,           // RPC version
    0x20005666,  // program
    1,           // version
    0,           // procedure
    0, 0,        // AUTH_NONE credential
    0, 0,        // AUTH_NONE verifier
});

TEST_F(CallTest, NullCallIsTheGoldenBytes) {
  EXPECT_EQ(encode(0x12345678, kTarget, {}), kGoldenNull);
}

// Shows: BIND-12
TEST_F(CallTest, ProgramNumbersAreThoseOfTheProgram) {
  Bytes call = encode(1, {.program = 100003, .version = 3, .procedure = 6}, {});
  EXPECT_EQ(Bytes(call.begin() + 12, call.begin() + 24), words_of({100003, 3, 6}));
}

TEST_F(CallTest, EveryCutOfACallDecodesAlike) {
  Bytes stream = kGoldenNull;
  test::append_u32(stream, 42);  // an argument
  for (size_t first = 0; first <= stream.size(); ++first) {
    Scattered cut(stream, std::array{first});
    Decoder in(cut.fragments());
    CallHeader header;
    ASSERT_EQ(decode_call(in, header), CallVerdict::kOk);
    EXPECT_EQ(header.xid, 0x12345678u);
    EXPECT_EQ(header.program, 0x20005666u);
    EXPECT_EQ(header.version, 1u);
    EXPECT_EQ(header.procedure, 0u);
    EXPECT_EQ(header.credential.flavor, AuthFlavor::kNone);
    EXPECT_TRUE(header.credential.body.empty());
    EXPECT_EQ(header.verifier.flavor, AuthFlavor::kNone);
    EXPECT_EQ(in.get_u32(), 42u);
    EXPECT_TRUE(in.at_end());
  }
}

TEST_F(CallTest, HeaderThatStraddlesBuffersIsTheSame) {
  AuthSys identity;
  identity.set_machine_name("a machine whose name is long enough to fill a buffer");
  PreparedAuth auth(identity);
  for (uint32_t before = 0; before != 20; ++before) {
    for (bool sys : {false, true}) {
      Encoder out(message_, *memory_, 64, kNoLimit);
      for (uint32_t i = 0; i != before; ++i)
        out.put_u32(i);
      encode_call(out, 7, kTarget, sys ? auth.bytes() : std::span<const std::byte>());
      out.finish();
      Bytes stream = stream_of(message_);
      CallHeader header;
      ASSERT_EQ(decode(Bytes(stream.begin() + before * 4, stream.end()), header), CallVerdict::kOk);
      EXPECT_EQ(header.xid, 7u);
      EXPECT_EQ(header.program, kTarget.program);
      EXPECT_EQ(header.credential.flavor, sys ? AuthFlavor::kSys : AuthFlavor::kNone);
    }
  }
}

// Shows: SEC-03
TEST_F(CallTest, OtherFlavoursAreCarriedOpaque) {
  std::mt19937_64 random(test::run_seed());
  for (uint32_t length : {0u, 1u, 5u, 399u, 400u}) {
    Bytes body = test::random_bytes(random, length);
    auto auth = PreparedAuth::opaque(AuthFlavor::kRpcsecGss, body);
    ASSERT_TRUE(auth.has_value());
    Scattered cut(encode(9, kTarget, auth->bytes()), random);
    Decoder in(cut.fragments());
    CallHeader header;
    ASSERT_EQ(decode_call(in, header), CallVerdict::kOk);
    EXPECT_EQ(header.credential.flavor, AuthFlavor::kRpcsecGss);
    EXPECT_EQ(bytes_of(header.credential.body), body);
    EXPECT_TRUE(in.at_end());
  }
  EXPECT_FALSE(PreparedAuth::opaque(AuthFlavor::kRpcsecGss, Bytes(401)).has_value());
}

TEST_F(CallTest, UnknownFlavourAndVerifierBodyAreCarried) {
  Bytes stream = words_of({1, 0, 2, 100, 1, 5, 390004, 4, 0xabcdef01, 77, 8, 1, 2, 3});
  Scattered whole(stream);
  Decoder in(whole.fragments());
  CallHeader header;
  ASSERT_EQ(decode_call(in, header), CallVerdict::kOk);
  EXPECT_EQ(static_cast<uint32_t>(header.credential.flavor), 390004u);
  EXPECT_EQ(bytes_of(header.credential.body), words_of({0xabcdef01}));
  EXPECT_EQ(static_cast<uint32_t>(header.verifier.flavor), 77u);
  EXPECT_EQ(bytes_of(header.verifier.body), words_of({1, 2}));
  EXPECT_EQ(in.get_u32(), 3u);
}

TEST_F(CallTest, EveryTruncationIsRefused) {
  AuthSys identity;
  identity.set_machine_name("host");
  for (const Bytes& call :
       {encode(5, kTarget, {}), encode(5, kTarget, PreparedAuth(identity).bytes())}) {
    for (size_t length = 0; length != call.size(); ++length) {
      for (size_t cut : {length / 2, length}) {
        Scattered part(std::span<const std::byte>(call).first(length), std::array{cut});
        Decoder in(part.fragments());
        CallHeader header;
        CallVerdict expected = length < 8 ? CallVerdict::kNotACall : CallVerdict::kGarbage;
        EXPECT_EQ(decode_call(in, header), expected) << length;
        if (length >= 8) {
          EXPECT_EQ(header.xid, 5u);
        }
      }
    }
  }
}

TEST_F(CallTest, ReplyIsNotACall) {
  for (uint32_t type : {1u, 2u, 0xffffffffu}) {
    Bytes stream = kGoldenNull;
    stream[7] = static_cast<std::byte>(type);
    EXPECT_EQ(decode(stream), CallVerdict::kNotACall);
  }
  Encoder out(message_, *memory_, 64, kNoLimit);
  EXPECT_FALSE(encode_refusal(out, 1, CallVerdict::kNotACall));
  EXPECT_FALSE(encode_refusal(out, 1, CallVerdict::kOk));
  EXPECT_EQ(out.position(), 0u);
}

TEST_F(CallTest, OtherRpcVersionIsToldTwoToTwo) {
  for (uint32_t version : {0u, 1u, 3u, 0xffffffffu}) {
    // Only XID, type and version are known to mean what they say.
    EXPECT_EQ(decode(words_of({5, 0, version})), CallVerdict::kRpcMismatch);
  }
  EXPECT_EQ(refusal(5, CallVerdict::kRpcMismatch), words_of({5, 1, 1, 0, 2, 2}));
}

TEST_F(CallTest, OversizedCredentialsAreRefusedByLengthAlone) {
  for (uint32_t length : {401u, 404u, 0x7fffffffu, 0xfffffffdu, 0xffffffffu}) {
    EXPECT_EQ(decode(words_of({5, 0, 2, 100, 1, 0, 1, length})), CallVerdict::kBadCredential);
    EXPECT_EQ(decode(words_of({5, 0, 2, 100, 1, 0, 0, 0, 0, length})), CallVerdict::kBadVerifier);
  }
  Bytes whole = words_of({5, 0, 2, 100, 1, 0, 1, 404});
  whole.resize(whole.size() + 404 + 8);
  EXPECT_EQ(decode(whole), CallVerdict::kBadCredential);
  EXPECT_EQ(refusal(5, CallVerdict::kBadCredential), words_of({5, 1, 1, 1, 1}));
  EXPECT_EQ(refusal(5, CallVerdict::kBadVerifier), words_of({5, 1, 1, 1, 3}));
}

TEST_F(CallTest, TruncatedHeaderIsAnsweredGarbageArgs) {
  EXPECT_EQ(decode(words_of({5, 0, 2, 100})), CallVerdict::kGarbage);
  EXPECT_EQ(refusal(5, CallVerdict::kGarbage), words_of({5, 1, 0, 0, 0, 4}));
}

TEST_F(CallTest, MutatedHeadersStayInside) {
  std::mt19937_64 random(test::run_seed());
  AuthSys identity;
  identity.set_machine_name("host");
  const Bytes call = encode(5, kTarget, PreparedAuth(identity).bytes());
  for (int round = 0; round != 20000; ++round) {
    Bytes stream = call;
    for (uint64_t n = 1 + random() % 4; n != 0; --n)
      stream[random() % stream.size()] = static_cast<std::byte>(random());
    stream.resize(random() % (stream.size() + 1));
    Scattered cut(stream, random);
    Decoder in(cut.fragments());
    CallHeader header;
    if (decode_call(in, header) != CallVerdict::kOk)
      continue;
    EXPECT_LE(header.credential.body.size(), kMaxAuthBody);
    AuthSys auth;
    if (rrdk::decode(header.credential, auth)) {
      EXPECT_LE(auth.gids().size(), AuthSys::kMaxGids);
      EXPECT_LE(auth.machine_name().size(), AuthSys::kMaxMachineName);
    }
  }
}

}  // namespace
}  // namespace rrdk::rpc
