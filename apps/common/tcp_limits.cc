#include "tcp_limits.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <vector>

#include "machine_limits.h"

namespace rrdk::apps {
namespace {

struct Connection {
  Connection() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* any = reinterpret_cast<sockaddr*>(&address);
    socklen_t length = sizeof(address);
    const int listening = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    near = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::bind(listening, any, length) == 0 && ::listen(listening, 1) == 0 &&
        ::getsockname(listening, any, &length) == 0 && ::connect(near, any, length) == 0)
      far = ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
    ::close(listening);
    const int on = 1;
    for (const int end : {near, far})
      (void)::setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  ~Connection() {
    ::close(near);
    ::close(far);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int near = -1;
  int far = -1;
};

// Both poll until all of it is done. False: the other end has closed.
bool take(int socket, std::byte* to, size_t length) {
  while (length != 0) {
    const ssize_t n = ::recv(socket, to, length, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
      return false;
    to += std::max<ssize_t>(n, 0);
    length -= static_cast<size_t>(std::max<ssize_t>(n, 0));
  }
  return true;
}

bool give(int socket, const std::byte* from, size_t length) {
  while (length != 0) {
    const ssize_t n = ::send(socket, from, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR)
      return false;
    from += std::max<ssize_t>(n, 0);
    length -= static_cast<size_t>(std::max<ssize_t>(n, 0));
  }
  return true;
}

// The far end's thread, pinned. It ends when the near end closes its half.
template <typename Work>
std::thread far_end(const Connection& connection, TcpEnds ends, Work work) {
  return std::thread([&connection, ends, work]() mutable {
    (void)pin_to_cpu(ends.far_cpu);
    while (work(connection.far)) {
    }
  });
}

}  // namespace

double tcp_round_trip_ns(TcpEnds ends, size_t there, size_t back, uint64_t duration_ns) {
  Connection connection;
  if (connection.far < 0)
    return 0;
  std::vector<std::byte> buffer(std::max(there, back), std::byte{1});
  std::thread other = far_end(
      connection, ends, [there, back, room = std::vector<std::byte>(buffer)](int socket) mutable {
        return take(socket, room.data(), there) && give(socket, room.data(), back);
      });
  (void)pin_to_cpu(ends.near_cpu);
  std::vector<uint64_t> times;
  const uint64_t end = clock_ns() + duration_ns;
  bool good = true;
  for (uint64_t before = clock_ns(), now; good && before < end; before = now) {
    good =
        give(connection.near, buffer.data(), there) && take(connection.near, buffer.data(), back);
    now = clock_ns();
    times.push_back(now - before);
  }
  ::shutdown(connection.near, SHUT_WR);
  other.join();
  if (!good || times.empty())
    return 0;
  const auto middle = times.begin() + static_cast<ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return static_cast<double>(*middle);
}

double tcp_stream_bytes_per_s(TcpEnds ends, size_t size, uint64_t duration_ns) {
  Connection connection;
  if (connection.far < 0)
    return 0;
  std::vector<std::byte> buffer(size, std::byte{1});
  std::thread other =
      far_end(connection, ends, [size, room = std::vector<std::byte>(buffer)](int socket) mutable {
        return take(socket, room.data(), size);
      });
  (void)pin_to_cpu(ends.near_cpu);
  uint64_t pieces = 0;
  const uint64_t start = clock_ns();
  uint64_t elapsed = 0;
  for (; elapsed < duration_ns; ++pieces) {
    if (!give(connection.near, buffer.data(), size))
      break;
    elapsed = clock_ns() - start;
  }
  ::shutdown(connection.near, SHUT_WR);
  other.join();
  // What is still on its way counts with the time that it takes.
  elapsed = clock_ns() - start;
  return static_cast<double>(pieces) * static_cast<double>(size) * 1e9 /
         static_cast<double>(elapsed);
}

}  // namespace rrdk::apps
