#include "drivers/iwarp/congestion.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>

#include "base/system.h"
#include "drivers/iwarp/address.h"

namespace rrdk::iwarp {

namespace {

int choose(int socket, std::string_view name) {
  const int result = ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                                  static_cast<socklen_t>(name.size()));
  return result == 0 ? 0 : errno;
}

bool has_bbr(int socket) {
  std::array<char, kLongestCongestion + 1> name{};
  socklen_t length = name.size();
  return ::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), &length) == 0 &&
         std::string_view(name.data(), name.size()).starts_with("bbr");
}

// For example "; net.ipv4.tcp_available_congestion_control has: reno cubic".
std::string names_in(const char* setting) {
  std::ifstream file(std::string("/proc/sys/net/ipv4/") + setting);
  std::string names;
  if (!std::getline(file, names))
    return "";
  return std::string("; net.ipv4.") + setting + " has: " + names;
}

}  // namespace

Result<void> set_congestion(int socket, const std::string& name) {
  const int error = choose(socket, name);
  if (error == 0)
    return {};
  if (error == EPERM)
    return fail(Errc::kPermission, "congestion=" + name + " may not be set by every user" +
                                       names_in("tcp_allowed_congestion_control"));
  if (error == ENOENT)
    return fail(Errc::kUnsupported, "this kernel has no congestion control called \"" + name +
                                        "\"" + names_in("tcp_available_congestion_control"));
  return fail(Errc::kSystem, "congestion=" + name + ": " + std::strerror(error));
}

void set_congestion_of_host(int socket, const Endpoint4Or6& near, const Endpoint4Or6& far) {
  if (drivers::on_one_host(near, far) && has_bbr(socket) && choose(socket, "cubic") != 0)
    (void)choose(socket, "reno");
}

// A connected datagram socket sends nothing, and has the local address of the route to `far`.
void set_congestion_of_host(int socket, const Endpoint4Or6& far) {
  const base::Fd probe(::socket(far.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (probe && ::connect(probe.get(), far.get(), far.length) == 0)
    set_congestion_of_host(socket, local_end(probe.get()), far);
}

}  // namespace rrdk::iwarp
