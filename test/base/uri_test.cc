#include "base/uri.h"

#include <gtest/gtest.h>

#include <ostream>

namespace rrdk::base {
namespace {

struct GoodUri {
  const char* text;
  const char* scheme;
  const char* host;
  std::optional<uint16_t> port;
  const char* path;
};

std::ostream& operator<<(std::ostream& out, const GoodUri& uri) {
  return out << uri.text;
}

class UriParses : public testing::TestWithParam<GoodUri> {};

TEST_P(UriParses, IntoItsParts) {
  const Result<Uri> uri = parse_uri(GetParam().text);
  ASSERT_TRUE(uri) << uri.error().message;
  EXPECT_EQ(uri->scheme, GetParam().scheme);
  EXPECT_EQ(uri->host, GetParam().host);
  EXPECT_EQ(uri->port, GetParam().port);
  EXPECT_EQ(uri->path, GetParam().path);
}

INSTANTIATE_TEST_SUITE_P(
    Uri, UriParses,
    testing::Values(GoodUri{"shm:/run/rrdk.sock", "shm", "", std::nullopt, "/run/rrdk.sock"},
                    GoodUri{"shm:///run/rrdk.sock", "shm", "", std::nullopt, "/run/rrdk.sock"},
                    GoodUri{"shm:relative.sock", "shm", "", std::nullopt, "relative.sock"},
                    GoodUri{"shm:/run/with:colon%20@x", "shm", "", std::nullopt,
                            "/run/with:colon%20@x"},
                    GoodUri{"SHM:/Run/X", "shm", "", std::nullopt, "/Run/X"},
                    GoodUri{"iwarp://127.0.0.1:20049", "iwarp", "127.0.0.1", 20049, ""},
                    GoodUri{"iwarp://0.0.0.0:0", "iwarp", "0.0.0.0", 0, ""},
                    GoodUri{"iwarp://host.example", "iwarp", "host.example", std::nullopt, ""},
                    GoodUri{"iwarp://host:65535/export/a", "iwarp", "host", 65535, "/export/a"},
                    GoodUri{"rdma://[fe80::1%eth0]:20049", "rdma", "fe80::1%eth0", 20049, ""},
                    GoodUri{"rdma://[FEB0::1%25eth0]", "rdma", "FEB0::1%eth0", std::nullopt, ""},
                    GoodUri{"rdma://[fe80::1%25]", "rdma", "fe80::1%25", std::nullopt, ""},
                    GoodUri{"rdma://[fec0::1]", "rdma", "fec0::1", std::nullopt, ""},
                    GoodUri{"rdma://[::1]", "rdma", "::1", std::nullopt, ""}));

TEST(Uri, QueryKeepsNamesValuesAndOrder) {
  const Result<Uri> uri = parse_uri("iwarp://h:1?credits=64&markers&x=a=b&&y=");
  ASSERT_TRUE(uri) << uri.error().message;
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"credits", "64"}, {"markers", ""}, {"x", "a=b"}, {"y", ""}};
  EXPECT_EQ(uri->query, expected);
}

struct BadUri {
  const char* text;
  const char* fault;
};

std::ostream& operator<<(std::ostream& out, const BadUri& uri) {
  return out << '"' << uri.text << '"';
}

class UriIsRefused : public testing::TestWithParam<BadUri> {};

TEST_P(UriIsRefused, NamingTheFault) {
  const Result<Uri> uri = parse_uri(GetParam().text);
  ASSERT_FALSE(uri);
  EXPECT_EQ(uri.error().code, Errc::kBadUri);
  EXPECT_NE(uri.error().message.find(GetParam().fault), std::string::npos) << uri.error().message;
  EXPECT_EQ(uri.error().message.find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    Uri, UriIsRefused,
    testing::Values(BadUri{"", "scheme"}, BadUri{"/run/rrdk.sock", "scheme"},
                    BadUri{":x", "scheme"}, BadUri{"1shm:/x", "scheme"},
                    BadUri{"sh m:/x", "scheme"}, BadUri{"shm:", "nothing follows"},
                    BadUri{"iwarp://", "nothing follows"}, BadUri{"shm:?a=b", "nothing follows"},
                    BadUri{"iwarp://:20049", "without a host"}, BadUri{"iwarp://host:", "port"},
                    BadUri{"iwarp://host:65536", "port"}, BadUri{"iwarp://host:-1", "port"},
                    BadUri{"iwarp://host:20x", "port"}, BadUri{"iwarp://::1:20049", "brackets"},
                    BadUri{"rdma://[::1:20049", "not closed"}, BadUri{"rdma://[]:1", "no host"},
                    BadUri{"rdma://[fe80::1]:1", "needs its interface"},
                    BadUri{"rdma://[Fe9f::]", "needs its interface"},
                    BadUri{"rdma://[::1]20049", "follow the bracket"},
                    BadUri{"iwarp://root@host:1", "user names"},
                    BadUri{"shm:/a\nb", "control character"}));

TEST(Uri, TheAddressStandsBeforeTheFault) {
  const Error fault = parse_uri("iwarp://host:99999").error();
  EXPECT_EQ(about("iwarp://host:99999", fault).message, "iwarp://host:99999: " + fault.message);
  EXPECT_EQ(about("", {Errc::kBadUri, "x"}).message, "\"\": x");
  EXPECT_EQ(about("shm:/a\nb", {Errc::kBadUri, "x"}).message, "shm:/a?b: x");
}

}  // namespace
}  // namespace rrdk::base
