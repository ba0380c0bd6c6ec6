#include "test/fabric/fabrics.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <iterator>
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

}  // namespace

const FabricUnderTest kFabrics[] = {{"shm", new_shm_uri}, {"iwarp", new_iwarp_uri}};
const size_t kFabricCount = std::size(kFabrics);

}  // namespace rrdk::fabric::test
