#include "mem/numa.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <string>

#include "base/log.h"
#include "base/system_message.h"

namespace rrdk::mem {

namespace {
constexpr int kMaxNodes = 1024;
}

bool node_exists(int node) {
  if (node == 0)
    return true;  // also where the kernel knows nothing of NUMA
  if (node < 0 || node >= kMaxNodes)
    return false;
  const std::string path = "/sys/devices/system/node/node" + std::to_string(node);
  return access(path.c_str(), F_OK) == 0;
}

int node_count() {
  static const int count = [] {
    int nodes = 0;
    for (int node = 0; node < kMaxNodes; ++node)
      nodes += node_exists(node) ? 1 : 0;
    return nodes;
  }();
  return count;
}

int current_node() noexcept {
  unsigned node = 0;
  return getcpu(nullptr, &node) == 0 ? static_cast<int>(node) : 0;
}

void prefer_node(void* address, size_t length, int node) {
  if (node_count() < 2)
    return;
  constexpr size_t kBits = sizeof(unsigned long) * CHAR_BIT;
  std::array<unsigned long, kMaxNodes / kBits> mask{};
  mask[static_cast<size_t>(node) / kBits] = 1ul << (static_cast<size_t>(node) % kBits);
  if (syscall(SYS_mbind, address, length, MPOL_PREFERRED, mask.data(), kMaxNodes + 1, 0) != 0) {
    // Containers often forbid mbind; the memory is as good, only perhaps further away.
    base::log_debug("memory may not be on NUMA node %d: mbind: %s", node,
                    base::system_message(errno).c_str());
  }
}

}  // namespace rrdk::mem
