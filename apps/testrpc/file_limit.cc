#include "file_limit.h"

#include <sys/resource.h>

#include <algorithm>

namespace rrdk::testrpc {
namespace {

// The descriptors of a connection: over shm a socket and two wake-up sockets, and its memory until
// both ends have mapped it; elsewhere at most one socket.
constexpr rlim_t kOverShm = 4;
constexpr rlim_t kElsewhere = 1;
constexpr rlim_t kOthers = 64;

}  // namespace

std::string raise_file_limit(uint32_t connections, bool over_shm) {
  rlimit limit{};
  const rlim_t wanted = connections * (over_shm ? kOverShm : kElsewhere) + kOthers;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
    return {};
  limit.rlim_cur = std::min(limit.rlim_max, wanted);
  if (::setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == wanted)
    return {};
  return std::to_string(connections) + " connections can need " + std::to_string(wanted) +
         " file descriptors, but this process may have " + std::to_string(limit.rlim_max) +
         ": raise the limit (ulimit -Hn, as root) or ask for fewer connections";
}

}  // namespace rrdk::testrpc
