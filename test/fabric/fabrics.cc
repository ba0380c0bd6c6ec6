#include "test/fabric/fabrics.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

namespace rrdk::fabric::test {

namespace {

// A server that is killed leaves its socket behind; no test run does.
struct Paths {
  ~Paths() {
    for (const std::string& path : used)
      ::unlink(path.c_str());
  }
  std::vector<std::string> used;
};

std::string new_shm_uri() {
  static Paths paths;
  paths.used.push_back(testing::TempDir() + "rrdk-fabric-" + std::to_string(::getpid()) + "-" +
                       std::to_string(paths.used.size()) + ".sock");
  return "shm:" + paths.used.back();
}

// A port that is free now.
std::string new_iwarp_uri() {
  const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(at);
  EXPECT_EQ(::bind(probe, reinterpret_cast<const sockaddr*>(&at), length), 0);
  EXPECT_EQ(::getsockname(probe, reinterpret_cast<sockaddr*>(&at), &length), 0);
  ::close(probe);
  return "iwarp://127.0.0.1:" + std::to_string(ntohs(at.sin_port));
}

// RDMA's ports are not TCP's: no other program uses these.
std::string new_verbs_uri() {
  constexpr int kFirstPort = 21000;
  static int next_port = kFirstPort;
  std::string host = std::getenv("RRDK_VERBS_ADDRESS");
  std::string options;
  if (const size_t at = host.find('?'); at != std::string::npos) {
    options = host.substr(at);
    host.resize(at);
  }
  return "verbs://" + host + ":" + std::to_string(next_port++) + options;
}

}  // namespace

std::vector<FabricUnderTest> fabrics() {
  std::vector<FabricUnderTest> all = {{"shm", new_shm_uri, true}, {"iwarp", new_iwarp_uri, false}};
  if (std::getenv("RRDK_VERBS_ADDRESS") != nullptr)
    all.push_back({"verbs", new_verbs_uri, true});
  return all;
}

}  // namespace rrdk::fabric::test
