// A security context at its caller, whose server does not keep to the rules.
#include "gss/session.h"

#include <gtest/gtest.h>

#include <functional>

#include "gss_caller.h"

namespace rrdk::gss {
namespace {

constexpr uint32_t kWindow = 128;
constexpr uint32_t kUsed = 7;  // sequence number of the call that is answered

Words words_of(std::span<const std::byte> bytes) {
  Words words;
  for (size_t at = 0; at + 4 <= bytes.size(); at += 4)
    words.push_back(xdr::load_u32(&bytes[at]));
  return words;
}

// Both ends of a context; the server's is held by the test.
struct Contexts {
  explicit Contexts(Protection protection = Protection::kIntegrity)
      : session(Identity::initiator({}).value(), "nfs@localhost", protection) {
    const auto identity = Identity::acceptor("nfs@localhost", "").value();
    Token first, answer, none;
    EXPECT_TRUE(session.begin({}, first).goes_on());
    EXPECT_TRUE(server.accept(*identity, first.bytes(), answer).complete());
    EXPECT_TRUE(session.begin(answer.bytes(), none).complete());
  }
  Bytes sign(const Words& message) {
    Token sum;
    EXPECT_TRUE(server.sign(bytes_of(message), sum));
    return {sum.bytes().begin(), sum.bytes().end()};
  }
  bool open(uint32_t window, const Bytes& sum, size_t handle_bytes = 8) {
    return session.open(Bytes(handle_bytes), window, sum);
  }
  // Whether the caller takes these results, and if it does, what they are.
  std::optional<Words> results(const Bytes& bytes, const Bytes& verifier = {}) {
    const Fragment all = {bytes.data(), static_cast<uint32_t>(bytes.size())};
    Decoder in(std::span(&all, 1));
    ProtectedCall call;
    call.sequence = kUsed;
    const Fragment sum = {verifier.data(), static_cast<uint32_t>(verifier.size())};
    if (!session.open_results(call, in, ItemView({&sum, 1}, 0, sum.length)))
      return std::nullopt;
    return words_of({call.results.data, call.results.length});
  }
  // As a right server would send them.
  Words protect(const Words& clear) {
    if (session.protection() == Protection::kIntegrity)
      return opaque(bytes_of(clear)) + opaque(sign(clear));
    Token sealed;
    EXPECT_TRUE(server.wrap(bytes_of(clear), sealed));
    return opaque(sealed.bytes());
  }

  Session session;
  Context server;
};

class Sessions : public testing::TestWithParam<Protection> {};
INSTANTIATE_TEST_SUITE_P(Gss, Sessions,
                         testing::Values(Protection::kIntegrity, Protection::kPrivacy));

// Shows: GSS-INIT-07, GSS-SEQ-05
TEST(ASession, BelievesTheWindowOnlyIfTheServerHasSignedIt) {
  Contexts ends;
  EXPECT_FALSE(ends.open(kWindow, {}));
  EXPECT_FALSE(ends.open(kWindow, ends.sign({kWindow + 1})));
  EXPECT_FALSE(ends.open(kWindow, Bytes(kMaxAuthBody)));
  EXPECT_FALSE(ends.open(kWindow, ends.sign({kWindow}), kMaxAuthBody)) << "no header has space";
  EXPECT_TRUE(ends.session.blank().empty());
  EXPECT_TRUE(ends.open(kWindow, ends.sign({kWindow})));
  EXPECT_FALSE(ends.session.blank().empty());
  uint32_t number = 0;
  for (uint32_t i = 1; i <= kWindow; ++i) {
    ASSERT_TRUE(ends.session.take_number(number));
    EXPECT_EQ(number, i == kWindow ? kWindow + 1 : i) << "the window's checksum is known";
  }
}

// Shows: GSS-DATA-02
TEST(ASession, BelievesNoReplyToAnotherCall) {
  Contexts ends;
  const auto verifies = [&](const Bytes& sum) {
    const Fragment all = {sum.data(), static_cast<uint32_t>(sum.size())};
    return ends.session.verify_reply(kUsed, ItemView({&all, 1}, 0, all.length));
  };
  EXPECT_TRUE(verifies(ends.sign({kUsed})));
  EXPECT_FALSE(verifies(ends.sign({kUsed + 1})));
  EXPECT_FALSE(verifies({}));
  EXPECT_FALSE(verifies(Bytes(kMaxAuthBody + 4)));
}

// Shows: GSS-INTEG-01, GSS-INTEG-02, GSS-PRIV-01, GSS-PRIV-02
TEST_P(Sessions, TakeResultsOnlyAsTheServerHasProtectedThem) {
  Contexts ends(GetParam());
  const Words right = {kUsed, 1, 2, 3};
  const Words sent = ends.protect(right);
  EXPECT_EQ(ends.results(bytes_of(sent)), (Words{1, 2, 3}));
  EXPECT_EQ(ends.results(bytes_of(ends.protect({kUsed}))), Words());

  EXPECT_FALSE(ends.results(bytes_of(ends.protect({kUsed + 1, 1, 2, 3})))) << "of another call";
  EXPECT_FALSE(ends.results(bytes_of(ends.protect({})))) << "without a number";
  EXPECT_FALSE(ends.results(bytes_of(right))) << "not protected";
  EXPECT_FALSE(ends.results(bytes_of(opaque(bytes_of(right))))) << "without a checksum";
  EXPECT_FALSE(ends.results(bytes_of(sent + Words{0}))) << "with something behind it";
  EXPECT_FALSE(ends.results({}));
  const Bytes verifier = ends.sign({kUsed});
  EXPECT_EQ(ends.results(bytes_of(ends.protect({kUsed})), verifier), Words());
  EXPECT_FALSE(ends.results(bytes_of(opaque(bytes_of({kUsed})) + opaque(verifier)), verifier))
      << "no results, out of what every reply has";
  for (size_t length = 0; length < 4 * sent.size(); length += 4) {
    const Bytes all = bytes_of(sent);
    EXPECT_FALSE(ends.results({all.begin(), all.begin() + static_cast<ptrdiff_t>(length)}));
  }
  // Every byte but the pads'.
  const size_t pad =
      GetParam() == Protection::kPrivacy ? xdr_pad(xdr::load_u32(bytes_of(sent).data())) : 0;
  for (size_t at = 0; at + pad < 4 * sent.size(); ++at) {
    Bytes changed = bytes_of(sent);
    changed[at] ^= std::byte{0x10};
    EXPECT_FALSE(ends.results(changed)) << at;
  }
}

}  // namespace
}  // namespace rrdk::gss
