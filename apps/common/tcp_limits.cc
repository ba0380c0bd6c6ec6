#include "tcp_limits.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <thread>
#include <vector>

#include "machine_limits.h"

namespace rrdk::apps {
namespace {

// Both functions poll until all bytes are transferred. They return false if the other end has
// closed.
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

namespace {

// One end of many connections. It answers messages of `take` bytes with `give` bytes.
class ManyEnds {
 public:
  ManyEnds(size_t take, size_t give, size_t connections)
      : take_(take), out_(give), taken_(connections), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}
  ~ManyEnds() { ::close(epoll_); }
  ManyEnds(const ManyEnds&) = delete;
  ManyEnds& operator=(const ManyEnds&) = delete;

  bool add(int socket) {
    sockets_.push_back(socket);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = sockets_.size() - 1;
    return ::epoll_ctl(epoll_, EPOLL_CTL_ADD, socket, &event) == 0;
  }
  void start() {
    for (const int socket : sockets_)
      (void)give(socket, out_.data(), out_.size());
  }
  // Returns how many messages arrived and were answered.
  size_t step() {
    std::array<epoll_event, 64> ready;
    const int count = ::epoll_wait(epoll_, ready.data(), ready.size(), 0);
    size_t answered = 0;
    for (int i = 0; i < count; ++i) {
      const size_t which = ready[static_cast<size_t>(i)].data.u64;
      std::array<std::byte, 256> in;
      const ssize_t n = ::recv(sockets_[which], in.data(), take_ - taken_[which], MSG_DONTWAIT);
      taken_[which] += static_cast<size_t>(std::max<ssize_t>(n, 0));
      if (taken_[which] != take_)
        continue;
      taken_[which] = 0;
      (void)give(sockets_[which], out_.data(), out_.size());
      ++answered;
    }
    return answered;
  }

 private:
  const size_t take_;
  std::vector<std::byte> out_;
  std::vector<size_t> taken_;
  std::vector<int> sockets_;
  const int epoll_;
};

}  // namespace

double tcp_calls_per_s(TcpEnds ends, size_t connections, uint64_t duration_ns) {
  std::vector<std::unique_ptr<TcpConnection>> all;
  ManyEnds near(kNullReplyBytes, kNullCallBytes, connections);
  ManyEnds far(kNullCallBytes, kNullReplyBytes, connections);
  for (size_t i = 0; i < connections; ++i) {
    all.push_back(std::make_unique<TcpConnection>());
    if (all.back()->failed() || !near.add(all.back()->near()) || !far.add(all.back()->far()))
      return 0;
  }
  std::atomic<bool> over = false;
  std::thread far_end([&] {
    (void)pin_to_cpu(ends.far_cpu);
    while (!over.load(std::memory_order_relaxed))
      far.step();
  });
  (void)pin_to_cpu(ends.near_cpu);
  near.start();
  // Each socket has been used a few times before it counts.
  for (size_t calls = 0; calls < 4 * connections;)
    calls += near.step();
  const uint64_t start = clock_ns();
  uint64_t calls = 0;
  uint64_t elapsed;
  while ((elapsed = clock_ns() - start) < duration_ns)
    calls += near.step();
  over = true;
  far_end.join();
  return static_cast<double>(calls) * 1e9 / static_cast<double>(elapsed);
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
  // Messages that were still in flight count, and so does their time.
  const uint64_t elapsed = clock_ns() - start;
  return static_cast<double>(pieces) * static_cast<double>(size) * 1e9 /
         static_cast<double>(elapsed);
}

}  // namespace rrdk::apps
