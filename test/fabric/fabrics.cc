#include "test/fabric/fabrics.h"

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

}  // namespace

const FabricUnderTest kFabrics[] = {{"shm", new_shm_uri}};
const size_t kFabricCount = std::size(kFabrics);

}  // namespace rrdk::fabric::test
