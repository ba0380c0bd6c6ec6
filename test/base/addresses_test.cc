// Addresses of names: their order, and how often a name server is asked.
#include "base/addresses.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "test/name_server.h"

namespace rrdk::base {
namespace {

std::string text_of(const SocketAddress& address) {
  char text[INET6_ADDRSTRLEN] = {};
  const void* bytes = address.storage.ss_family == AF_INET6
                          ? static_cast<const void*>(
                                &reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr)
                          : static_cast<const void*>(
                                &reinterpret_cast<const sockaddr_in&>(address.storage).sin_addr);
  return ::inet_ntop(address.storage.ss_family, bytes, text, sizeof(text));
}

std::vector<std::string> texts_of(const std::vector<SocketAddress>& addresses) {
  std::vector<std::string> texts;
  for (const SocketAddress& address : addresses)
    texts.push_back(text_of(address));
  return texts;
}

using Texts = std::vector<std::string>;

TEST(Addresses, AlternateBetweenTheFamilies) {
  std::vector<SocketAddress> addresses;
  for (const char* one : {"2001:db8::1", "2001:db8::2", "2001:db8::3", "10.0.0.1", "10.0.0.2"})
    addresses.push_back(numeric_address(one, 7).at(0));
  order_addresses(addresses);
  EXPECT_EQ(texts_of(addresses),
            (Texts{"2001:db8::1", "10.0.0.1", "2001:db8::2", "10.0.0.2", "2001:db8::3"}));
  std::ranges::reverse(addresses);
  addresses.pop_back();
  order_addresses(addresses);
  EXPECT_EQ(texts_of(addresses), (Texts{"2001:db8::3", "10.0.0.2", "2001:db8::2", "10.0.0.1"}));
  addresses.clear();
  order_addresses(addresses);
  EXPECT_TRUE(addresses.empty());
}

TEST(Addresses, AreNumericOrOfAName) {
  EXPECT_TRUE(numeric_address("two.test", 7).empty());
  EXPECT_EQ(texts_of(look_up_addresses("10.0.0.1", 7).value()), Texts{"10.0.0.1"});
  test::set_name("two.test", {"10.0.0.1", "10.0.0.2", "2001:db8::1"});
  const auto found = look_up_addresses("two.test", 258).value();
  EXPECT_EQ(texts_of(found), (Texts{"10.0.0.1", "2001:db8::1", "10.0.0.2"}));
  EXPECT_EQ(reinterpret_cast<const sockaddr_in&>(found.at(0).storage).sin_port, htons(258));
  EXPECT_EQ(reinterpret_cast<const sockaddr_in6&>(found.at(1).storage).sin6_port, htons(258));
  test::set_name("none.test", {});
  EXPECT_EQ(look_up_addresses("none.test", 7).error().code, Errc::kNotFound);
}

TEST(Addresses, ConcurrentLookupsOfANameAskOnce) {
  test::set_name("slow.test", {"10.0.0.1"});
  test::silence_name("slow.test", true);
  std::vector<std::future<Result<std::vector<SocketAddress>>>> askers;
  for (uint16_t port = 1; port <= 4; ++port)
    askers.push_back(
        std::async(std::launch::async, [port] { return look_up_addresses("slow.test", port); }));
  while (test::times_asked("slow.test") == 0)
    std::this_thread::yield();
  test::silence_name("slow.test", false);
  for (auto& asker : askers)
    EXPECT_EQ(texts_of(asker.get().value()), Texts{"10.0.0.1"});
  EXPECT_TRUE(look_up_addresses("slow.test", 9));
  EXPECT_EQ(test::times_asked("slow.test"), 1);
}

}  // namespace
}  // namespace rrdk::base
