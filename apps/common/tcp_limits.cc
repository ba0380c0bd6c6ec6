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

}  // namespace

TcpConnection::TcpConnection() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof(address);
  const int listening = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  near_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::bind(listening, any, length) == 0 && ::listen(listening, 1) == 0 &&
      ::getsockname(listening, any, &length) == 0 && ::connect(near_, any, length) == 0)
    far_ = ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
  ::close(listening);
  const int on = 1;
  for (const int end : {near_, far_})
    (void)::setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

TcpConnection::~TcpConnection() {
  ::close(near_);
  ::close(far_);
}

TcpPingPong::TcpPingPong(size_t there, size_t back)
    : near_out_(there, std::byte{1}), near_in_(back), far_in_(there), far_out_(back) {}

bool TcpPingPong::round_trip() {
  return !connection_.failed() && give(connection_.near(), near_out_.data(), near_out_.size()) &&
         take(connection_.near(), near_in_.data(), near_in_.size());
}

bool TcpPingPong::answer() {
  const ssize_t n =
      ::recv(connection_.far(), far_in_.data() + taken_, far_in_.size() - taken_, MSG_DONTWAIT);
  if (n <= 0)
    return n < 0 && (errno == EAGAIN || errno == EINTR);
  taken_ += static_cast<size_t>(n);
  if (taken_ != far_in_.size())
    return true;
  taken_ = 0;
  return give(connection_.far(), far_out_.data(), far_out_.size());
}

void TcpPingPong::close() {
  ::shutdown(connection_.near(), SHUT_WR);
}

double tcp_round_trip_ns(TcpEnds ends, size_t there, size_t back, uint64_t duration_ns) {
  TcpPingPong both(there, back);
  std::thread far_end([&both, ends] {
    (void)pin_to_cpu(ends.far_cpu);
    while (both.answer()) {
    }
  });
  (void)pin_to_cpu(ends.near_cpu);
  std::vector<uint64_t> times;
  const uint64_t end = clock_ns() + duration_ns;
  bool good = true;
  for (uint64_t before = clock_ns(), now; good && before < end; before = now) {
    good = both.round_trip();
    now = clock_ns();
    times.push_back(now - before);
  }
  both.close();
  far_end.join();
  if (!good || times.empty())
    return 0;
  const auto middle = times.begin() + static_cast<ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return static_cast<double>(*middle);
}

double tcp_stream_bytes_per_s(TcpEnds ends, size_t size, size_t buffers, uint64_t duration_ns) {
  TcpConnection connection;
  if (connection.failed())
    return 0;
  std::vector<std::byte> from(size * buffers, std::byte{1});
  std::vector<std::byte> to(size * buffers);
  std::thread far_end([&connection, &to, ends, size, buffers] {
    (void)pin_to_cpu(ends.far_cpu);
    for (size_t i = 0; take(connection.far(), &to[i * size], size); i = (i + 1) % buffers) {
    }
  });
  (void)pin_to_cpu(ends.near_cpu);
  uint64_t pieces = 0;
  const uint64_t start = clock_ns();
  for (; clock_ns() - start < duration_ns; ++pieces) {
    if (!give(connection.near(), &from[pieces % buffers * size], size))
      break;
  }
  ::shutdown(connection.near(), SHUT_WR);
  far_end.join();
  // What was still on its way counts with the time that it took.
  const uint64_t elapsed = clock_ns() - start;
  return static_cast<double>(pieces) * static_cast<double>(size) * 1e9 /
         static_cast<double>(elapsed);
}

}  // namespace rrdk::apps
