#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "rpc/headers_datapath.h"
#include "test/xdr/scatter.h"

namespace rrdk::rpc {
namespace {

using test::append_u32;
using test::Bytes;
using test::Scattered;
using test::words_of;

// The body of a credential, as the call decoder would show it.
struct Body {
  explicit Body(const Bytes& bytes, AuthFlavor flavor = AuthFlavor::kSys)
      : place(bytes, std::array<size_t, 1>{bytes.size() / 3}),
        credential{flavor, {place.fragments(), 0, static_cast<uint32_t>(bytes.size())}} {}
  Scattered place;
  Credential credential;
};

bool decodes(const Bytes& body) {
  AuthSys auth;
  return decode(Body(body).credential, auth);
}

Bytes body_with(uint32_t name_length, uint32_t num_gids) {
  Bytes body = words_of({7, name_length});
  body.resize(body.size() + name_length + xdr_pad(name_length), std::byte{'m'});
  append_u32(body, 1000);
  append_u32(body, 100);
  append_u32(body, num_gids);
  for (uint32_t i = 0; i != num_gids; ++i)
    append_u32(body, i);
  return body;
}

TEST(AuthSys, WireFormIsThatOfRfc5531) {
  AuthSys identity;
  identity.stamp = 7;
  identity.uid = 1000;
  identity.gid = 100;
  ASSERT_TRUE(identity.set_machine_name("host1"));
  const uint32_t gids[] = {4, 24};
  ASSERT_TRUE(identity.set_gids(gids));
  PreparedAuth auth(identity);
  EXPECT_EQ(test::bytes_of(auth.bytes()),
            words_of({1, 36, 7, 5, 0x686f7374, 0x31000000, 1000, 100, 2, 4, 24}));
}

Bytes principal_of(const Bytes& body, AuthFlavor flavor = AuthFlavor::kSys) {
  return test::bytes_of(Principal(Body(body, flavor).credential).bytes());
}

// When a client repeats a call, it may write another stamp, and nothing else.
TEST(Principals, IgnoreTheStamp) {
  const Bytes whole = words_of({7, 5, 0x686f7374, 0x31000000, 1000, 100, 2, 4, 24});
  const Bytes principal = principal_of(whole);
  for (size_t at = 0; at < whole.size(); at += 4) {
    Bytes other = whole;
    other[at + 3] ^= std::byte{1};
    EXPECT_EQ(principal_of(other) == principal, at == 0) << at;
  }
  EXPECT_NE(principal_of(whole, AuthFlavor::kShort), principal) << "another flavour";
}

// A body that does not match its flavour has no stamp.
TEST(Principals, AreAllBytesOfAMalformedBody) {
  const Bytes good = words_of({7, 0, 1000, 100, 0});
  for (Bytes body : {words_of({7, 0, 1000, 100}), words_of({7, 0, 1000, 100, 0, 0}),
                     body_with(0, 17), words_of({7}), Bytes{}}) {
    const Bytes principal = principal_of(body);
    EXPECT_EQ(principal.size(), body.size() + 8);
    EXPECT_NE(principal, principal_of(good));
    if (body.empty())
      continue;
    body[3] = std::byte{8};
    EXPECT_NE(principal_of(body), principal);
  }
  // It is not taken for another body without its stamp either.
  EXPECT_NE(principal_of(words_of({0, 1000, 100, 0})), principal_of(good));
  EXPECT_EQ(principal_of(body_with(255, 16)).size(), 8 + 4 + 256 + 12 + 64);
}

TEST(AuthSys, RoundTripsWithinItsLimits) {
  std::mt19937_64 random(test::run_seed());
  for (size_t name_length : {0u, 1u, 2u, 3u, 4u, 100u, 254u, 255u}) {
    for (size_t num_gids : {0u, 1u, 15u, 16u}) {
      AuthSys identity;
      identity.stamp = static_cast<uint32_t>(random());
      identity.uid = static_cast<uint32_t>(random());
      identity.gid = static_cast<uint32_t>(random());
      std::string name(name_length, 'x');
      std::vector<uint32_t> gids(num_gids, static_cast<uint32_t>(random()));
      ASSERT_TRUE(identity.set_machine_name(name));
      ASSERT_TRUE(identity.set_gids(gids));
      PreparedAuth auth(identity);
      Bytes wire = test::bytes_of(auth.bytes());
      Body body(Bytes(wire.begin() + 8, wire.end()));
      AuthSys got;
      ASSERT_TRUE(decode(body.credential, got));
      EXPECT_EQ(got.stamp, identity.stamp);
      EXPECT_EQ(got.uid, identity.uid);
      EXPECT_EQ(got.gid, identity.gid);
      EXPECT_EQ(got.machine_name(), name);
      EXPECT_EQ(std::vector(got.gids().begin(), got.gids().end()), gids);
    }
  }
}

TEST(AuthSys, SettersRefuseTooLongValues) {
  AuthSys identity;
  ASSERT_TRUE(identity.set_machine_name("host"));
  EXPECT_FALSE(identity.set_machine_name(std::string(256, 'x')));
  EXPECT_EQ(identity.machine_name(), "host");
  EXPECT_FALSE(identity.set_gids(std::vector<uint32_t>(17)));
  EXPECT_TRUE(identity.gids().empty());
}

TEST(AuthSys, LimitsHoldForThePeer) {
  EXPECT_TRUE(decodes(body_with(255, 16)));
  EXPECT_FALSE(decodes(body_with(256, 0)));
  EXPECT_FALSE(decodes(body_with(0, 17)));
  EXPECT_FALSE(decodes(words_of({7, 0, 1000, 100, 0xffffffff})));
  EXPECT_FALSE(decodes(words_of({7, 0xffffffff, 1000, 100, 0})));
}

TEST(AuthSys, BodyIsExactlyItsFields) {
  Bytes body = body_with(5, 3);
  for (size_t length = 0; length != body.size(); ++length)
    EXPECT_FALSE(decodes(Bytes(body.begin(), body.begin() + length))) << length;
  EXPECT_TRUE(decodes(body));
  append_u32(body, 0);
  EXPECT_FALSE(decodes(body));
}

TEST(AuthSys, FailureLeavesTheTargetAlone) {
  AuthSys auth;
  auth.uid = 5;
  EXPECT_FALSE(decode(Body(body_with(0, 17)).credential, auth));
  EXPECT_EQ(auth.uid, 5u);
}

TEST(AuthSys, OtherFlavoursAndOversizedBodiesAreRefused) {
  AuthSys auth;
  EXPECT_FALSE(decode(Body(body_with(4, 1), AuthFlavor::kNone).credential, auth));
  EXPECT_FALSE(decode(Body(Bytes(404)).credential, auth));
}

TEST(PreparedAuth, DefaultIsAuthNone) {
  EXPECT_TRUE(PreparedAuth().bytes().empty());
}

}  // namespace
}  // namespace rrdk::rpc
