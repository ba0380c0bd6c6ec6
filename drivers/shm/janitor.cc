#include "drivers/shm/janitor.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <thread>

#include "base/log.h"
#include "base/signals.h"

namespace rrdk::shm {

namespace {

using Clock = std::chrono::steady_clock;

// Of a socket whose owner asked for a close() that waits until all is sent: it is not waited for.
void do_not_linger(int fd) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  (void)::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

bool is_unix_socket(int fd) {
  int domain = 0;
  socklen_t size = sizeof(domain);
  return ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}

// Of a packet, more than an honest peer sends. Others the kernel closes, in this thread, and they
// take no place in the process's table of descriptors meanwhile.
constexpr size_t kTakenAtOnce = 16;

// Takes a packet out of a socket, and closes the descriptors in it; false: there is none. The end
// of the socket looks as an empty packet does, and the peer's reset comes before its packets.
bool close_next_packet(int socket) {
  std::array<char, 4096> data;
  union {
    cmsghdr align;
    std::array<char, CMSG_SPACE(kTakenAtOnce * sizeof(int))> bytes;
  } control;
  iovec piece{data.data(), data.size()};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control.bytes.data();
  header.msg_controllen = control.bytes.size();
  const ssize_t bytes = ::recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (bytes < 0)
    return errno == ECONNRESET || errno == EINTR;
  std::array<Fd, kTakenAtOnce> fds;
  size_t count = 0;
  for_each_descriptor(header, [&](Fd fd) {
    do_not_linger(fd.get());
    fds[count++] = std::move(fd);
  });
  return true;
}

// Descriptors that wait in a socket of the Unix domain are closed with it, and may linger: they are
// taken out first. The packets that a socket's queue holds are fewer.
void close_packets(int socket) {
  constexpr int kMostPackets = 300;
  for (int i = 0; i < kMostPackets && close_next_packet(socket); ++i) {
  }
}

constexpr uint32_t kMostThreads = 8;
constexpr uint32_t kMostThreadsOfAUser = 4;
// Honest descriptors are closed in no time, however many there are at once.
constexpr std::chrono::seconds kLongClose{1};
constexpr size_t kManyOfAUser = 64;
constexpr size_t kManyOfAll = 1024;

// Lives as long as the process: its threads may be in a close() that never returns.
class Janitor {
 public:
  void take(Fd fd, uid_t sender) {
    const std::lock_guard lock(mutex_);
    users_[sender].waiting.push_back(std::move(fd));
    ++waiting_;
    if (closing_ == threads_ && threads_ < kMostThreads)
      start();
    else
      arrived_.notify_one();
  }

  Backlog backlog(uid_t sender) {
    const std::lock_guard lock(mutex_);
    const auto user = users_.find(sender);
    if (user == users_.end() || user->second.waiting.size() < kManyOfAUser)
      return Backlog::kFine;
    const bool stuck = user->second.closing == kMostThreadsOfAUser &&
                       Clock::now() - user->second.last_start > kLongClose;
    return stuck ? Backlog::kStuck : Backlog::kMany;
  }

  bool full() {
    const std::lock_guard lock(mutex_);
    return waiting_ >= kManyOfAll;
  }

 private:
  struct User {
    std::deque<Fd> waiting;
    uint32_t closing = 0;            // threads in close()
    Clock::time_point last_start{};  // of a close
  };
  using Users = std::map<uid_t, User>;

  void start() {
    const base::SignalsBlocked blocked;
    std::thread([this] { run(); }).detach();
    ++threads_;
  }

  // Whose turn it is; end: nobody's.
  Users::iterator next() {
    auto user = users_.upper_bound(last_);
    for (size_t i = 0; i < users_.size(); ++i, ++user) {
      if (user == users_.end())
        user = users_.begin();
      if (!user->second.waiting.empty() && user->second.closing < kMostThreadsOfAUser)
        return user;
    }
    return users_.end();
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      const auto user = next();
      if (user == users_.end()) {
        if (idle_ != 0)
          break;  // one is enough to wait
        ++idle_;
        arrived_.wait(lock);
        --idle_;
        continue;
      }
      close_one(user, lock);
    }
    --threads_;
  }

  void close_one(Users::iterator of, std::unique_lock<std::mutex>& lock) {
    User& user = of->second;
    last_ = of->first;
    Fd fd = std::move(user.waiting.front());
    user.waiting.pop_front();
    --waiting_;
    ++user.closing;
    ++closing_;
    user.last_start = Clock::now();
    // While this one is in close() another can see to the rest.
    if (waiting_ != 0 && closing_ == threads_ && threads_ < kMostThreads)
      start();
    lock.unlock();
    do_not_linger(fd.get());  // may wait: for whoever has the socket locked
    if (is_unix_socket(fd.get()))
      close_packets(fd.get());
    fd.reset();
    lock.lock();
    --closing_;
    if (--user.closing == 0 && user.waiting.empty())
      users_.erase(of);
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  Users users_;
  uid_t last_ = 0;      // who had the last turn
  size_t waiting_ = 0;  // of all users
  uint32_t threads_ = 0;
  uint32_t closing_ = 0;  // of them, in close()
  uint32_t idle_ = 0;     // of them, waiting
};

// Null: no memory for it.
Janitor* janitor() {
  static Janitor* const one = new (std::nothrow) Janitor;
  return one;
}

// Sealed memory is a file of the kernel's own, whose close() does not wait.
bool is_sealed_memory(int fd) {
  return ::fcntl(fd, F_GET_SEALS) >= 0;
}

uid_t user_at(int connected) {
  ucred who{};
  socklen_t length = sizeof(who);
  constexpr auto kNobody = static_cast<uid_t>(-1);
  return ::getsockopt(connected, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0 ? who.uid : kNobody;
}

}  // namespace

PeerSocket::PeerSocket(Fd connected) noexcept {
  const uid_t user = user_at(connected.get());
  fd_ = PeerFd(std::move(connected), user);
}

void PeerSocket::end() noexcept {
  if (fd_)
    ::shutdown(fd_.get(), SHUT_RDWR);
}

void close_elsewhere(Fd fd, uid_t sender) noexcept {
  if (!fd || is_sealed_memory(fd.get()))
    return;
  try {
    if (Janitor* const j = janitor())
      j->take(std::move(fd), sender);
  } catch (const std::exception& e) {
    base::log_error("shm: a peer's descriptor is closed on the spot, which may block: %s",
                    e.what());
  }
}

Backlog janitor_backlog(uid_t sender) noexcept {
  Janitor* const j = janitor();
  return j == nullptr ? Backlog::kFine : j->backlog(sender);
}

bool janitor_is_full() noexcept {
  Janitor* const j = janitor();
  return j != nullptr && j->full();
}

}  // namespace rrdk::shm
