#include "drivers/shm/janitor.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
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
#include "base/system.h"

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

// The end of a socket looks as an empty packet does, unless packets say who sent them.
void tell_packets_from_the_end(int socket) {
  const int on = 1;
  (void)::setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
}
constexpr size_t kSenderSpace = CMSG_SPACE(sizeof(ucred));

// Takes a packet out of a socket, and closes the descriptors in it; false: there is none. The
// peer's reset comes before its packets.
bool close_next_packet(int socket) {
  std::array<char, 4096> data;
  union {
    cmsghdr align;
    std::array<char, kSenderSpace + CMSG_SPACE(kTakenAtOnce * sizeof(int))> bytes;
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
  // Each is closed before the next is; none of them is received again.
  for_each_descriptor(header, [&](Fd fd) { do_not_linger(fd.get()); });
  return bytes > 0 || header.msg_controllen != 0;
}

// Descriptors that wait in a socket of the Unix domain are closed with it, and may linger: they are
// taken out first. Nothing is added meanwhile; were there more packets, the kernel would close
// them.
void close_packets(int socket) {
  ::shutdown(socket, SHUT_RD);
  tell_packets_from_the_end(socket);
  constexpr int kMostPackets = 1 << 20;
  for (int i = 0; i < kMostPackets && close_next_packet(socket); ++i) {
  }
}

// Whether no descriptors wait in a socket of our own that is shut down: then its close() has
// nothing to wait for. Does not block. A few packets are taken out; false also if there are more.
bool is_harmless(int socket) {
  tell_packets_from_the_end(socket);
  constexpr int kMostPackets = 8;
  for (int i = 0; i < kMostPackets; ++i) {
    std::array<char, 1> data;
    union {
      cmsghdr align;
      std::array<char, kSenderSpace> bytes;
    } control;
    iovec piece{data.data(), data.size()};
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    header.msg_control = control.bytes.data();
    header.msg_controllen = control.bytes.size();
    const ssize_t bytes = ::recvmsg(socket, &header, MSG_DONTWAIT | MSG_PEEK);
    if (bytes < 0 && errno != ECONNRESET)
      return errno == EAGAIN || errno == ENOTCONN;
    if (bytes == 0 && header.msg_controllen == 0)
      return true;
    if (bytes >= 0 && ((header.msg_flags & MSG_CTRUNC) != 0 ||
                       ::recv(socket, data.data(), data.size(), MSG_DONTWAIT) < 0))
      return false;
  }
  return false;
}

// They cost little while they are stuck.
constexpr uint32_t kMostThreadsOfAUser = 4;
constexpr uint32_t kMostThreadsForUsers = 32;
constexpr uint32_t kMostThreadsForHarmless = 2;  // what does not block
// Honest descriptors are closed in no time, however many there are at once.
constexpr std::chrono::seconds kLongClose{1};
constexpr size_t kManyOfAUser = 64;
// A quarter of the descriptors that the process may have, within these.
constexpr size_t kLeastOfAll = 256;
constexpr size_t kMostOfAll = 65536;

size_t many_of_all() {
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0)
    return kLeastOfAll;
  return std::clamp<size_t>(descriptors.rlim_cur / 4, kLeastOfAll, kMostOfAll);
}

// What can not block, and takes its time.
struct Harmless {
  Fd fd;
  Mapping mapping;
};

// Lives as long as the process: its threads may be in a close() that never returns.
class Janitor {
 public:
  void take(Fd fd, uid_t sender) {
    const std::lock_guard lock(mutex_);
    users_[sender].waiting.push_back(std::move(fd));
    ++waiting_;
    see_to_it();
  }

  void take_harmless(Harmless what) {
    const std::lock_guard lock(mutex_);
    harmless_.push_back(std::move(what));
    see_to_it();
  }

  Backlog backlog(uid_t sender) {
    const std::lock_guard lock(mutex_);
    see_to_it();
    const auto user = users_.find(sender);
    if (user == users_.end() || user->second.waiting.size() < kManyOfAUser)
      return Backlog::kFine;
    const Clock::time_point now = Clock::now();
    const bool stuck =
        (user->second.closing == kMostThreadsOfAUser &&
         now - user->second.last_start > kLongClose) ||
        (closing_of_users_ == kMostThreadsForUsers && now - last_start_ > kLongClose);
    return stuck ? Backlog::kStuck : Backlog::kMany;
  }

  bool full() {
    const std::lock_guard lock(mutex_);
    see_to_it();
    return waiting_ + harmless_.size() >= many_of_all();
  }

 private:
  struct User {
    std::deque<Fd> waiting;
    uint32_t closing = 0;            // threads in close()
    Clock::time_point last_start{};  // of a close
  };
  using Users = std::map<uid_t, User>;

  // Has a thread for what waits. If the system has none left, those that are there go on, and it is
  // tried again whenever somebody asks.
  void see_to_it() noexcept {
    if (!harmless_next() && next() == users_.end())
      return;
    if (closing_of_users_ + closing_harmless_ == threads_)
      start();
    else
      arrived_.notify_one();
  }

  void start() noexcept {
    try {
      const base::SignalsBlocked blocked;
      std::thread([this] {
        pthread_setname_np(pthread_self(), "rrdk-shm-close");
        run();
      }).detach();
      ++threads_;
    } catch (const std::exception& e) {
      if (!std::exchange(told_, true))
        base::log_error("shm: peers' descriptors are closed late, by %u of our threads: %s",
                        threads_, e.what());
    }
  }

  bool harmless_next() const {
    return !harmless_.empty() && closing_harmless_ < kMostThreadsForHarmless;
  }

  // Whose turn it is; end: nobody's.
  Users::iterator next() {
    if (closing_of_users_ == kMostThreadsForUsers)
      return users_.end();
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
      if (harmless_next()) {
        close_harmless(lock);
        continue;
      }
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

  void close_harmless(std::unique_lock<std::mutex>& lock) {
    {
      const Harmless one = std::move(harmless_.front());
      harmless_.pop_front();
      ++closing_harmless_;
      see_to_it();
      lock.unlock();
    }
    lock.lock();
    --closing_harmless_;
  }

  void close_one(Users::iterator of, std::unique_lock<std::mutex>& lock) {
    User& user = of->second;
    last_ = of->first;
    Fd fd = std::move(user.waiting.front());
    user.waiting.pop_front();
    --waiting_;
    ++user.closing;
    ++closing_of_users_;
    user.last_start = last_start_ = Clock::now();
    see_to_it();  // while this one is in close() another can see to the rest
    lock.unlock();
    do_not_linger(fd.get());  // may wait: for whoever has the socket locked
    if (is_unix_socket(fd.get()))
      close_packets(fd.get());
    fd.reset();
    lock.lock();
    --closing_of_users_;
    if (--user.closing == 0 && user.waiting.empty())
      users_.erase(of);
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  bool told_ = false;
  std::deque<Harmless> harmless_;
  Users users_;
  uid_t last_ = 0;      // who had the last turn
  size_t waiting_ = 0;  // of all users
  uint32_t threads_ = 0;
  uint32_t closing_of_users_ = 0;   // of them, in close()
  uint32_t closing_harmless_ = 0;   // and these
  Clock::time_point last_start_{};  // of a close for a user
  uint32_t idle_ = 0;               // of them, waiting
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

// So many pages are not given back in passing.
constexpr off_t kLargeMemory = off_t{16} << 20;

bool is_large(int fd) {
  struct stat st{};
  return ::fstat(fd, &st) != 0 || st.st_size > kLargeMemory;
}

// take(janitor), which has the descriptor; without memory for that it ends here.
template <typename Take>
void hand_over(Take take) noexcept {
  try {
    if (Janitor* const j = janitor())
      take(*j);
  } catch (const std::exception& e) {
    base::log_error("shm: a peer's descriptor is closed on the spot, which may block: %s",
                    e.what());
  }
}

void close_harmless(Fd fd) noexcept {
  hand_over([&](Janitor& j) { j.take_harmless({.fd = std::move(fd), .mapping = {}}); });
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

// Once it is shut down nothing is added to its queue.
void PeerSocket::end() noexcept {
  if (!fd_)
    return;
  ::shutdown(fd_.get(), SHUT_RDWR);
  if (is_harmless(fd_.get()))
    close_harmless(fd_.release());
  else
    fd_ = {};
}

void close_elsewhere(Fd fd, uid_t sender) noexcept {
  if (!fd)
    return;
  if (!is_sealed_memory(fd.get()))
    hand_over([&](Janitor& j) { j.take(std::move(fd), sender); });
  else if (is_large(fd.get()))
    close_harmless(std::move(fd));
}

void unmap_elsewhere(Mapping mapping) noexcept {
  if (mapping.length() > kLargeMemory && !janitor_is_full())
    hand_over([&](Janitor& j) { j.take_harmless({.fd = {}, .mapping = std::move(mapping)}); });
}

// When it is shut down nobody connects to it any more; and when nobody waits in it, it is closed
// here, so that its address is free for another.
void close_listening(Fd listening) noexcept {
  ::shutdown(listening.get(), SHUT_RDWR);
  while (Fd waiting{::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)})
    const PeerSocket visitor(std::move(waiting));
  if (errno != EINVAL && errno != EAGAIN)
    close_elsewhere(std::move(listening), ::geteuid());
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
