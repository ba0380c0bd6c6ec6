#include "drivers/shm/janitor.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "base/assert.h"
#include "base/log.h"
#include "base/system.h"

namespace rrdk::shm {

namespace {

using Clock = std::chrono::steady_clock;

// For a socket whose owner asked for a close() that waits until all is sent: disables that wait.
void do_not_linger(int fd) {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  (void)::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

bool is_unix_socket(int fd) {
  int domain = 0;
  socklen_t size = sizeof(domain);
  return ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}

// Descriptors taken from one packet: more than an honest peer sends. The kernel closes any others,
// in this thread, and they never take an entry in the process's table of descriptors.
constexpr size_t kTakenAtOnce = 16;

// The end of a socket looks like an empty packet, unless packets carry their sender.
void tell_packets_from_the_end(int socket) {
  const int on = 1;
  (void)::setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
}
constexpr size_t kSenderSpace = CMSG_SPACE(sizeof(ucred));

// Takes a packet out of a socket, and closes the descriptors in it; returns false if it is empty.
// The peer's reset comes before its packets.
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
  // Each is closed before the next one, and not received again.
  for_each_descriptor(header, [&](Fd fd) { do_not_linger(fd.get()); });
  return bytes > 0 || header.msg_controllen != 0;
}

// Descriptors that wait in a Unix domain socket are closed with it, and may linger, so they are
// taken out first. Nothing is added meanwhile; if there were more packets, the kernel would close
// them.
void close_packets(int socket) {
  ::shutdown(socket, SHUT_RD);
  tell_packets_from_the_end(socket);
  constexpr int kMostPackets = 1 << 20;
  for (int i = 0; i < kMostPackets && close_next_packet(socket); ++i) {
  }
}

// Whether no descriptors wait in a socket of ours that is shut down: then its close() has nothing
// to wait for. Does not block. A few packets are taken out; returns false also if there are more.
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

// Threads cost little while they are stuck.
constexpr uint32_t kMostThreadsOfAUser = 4;
constexpr uint32_t kMostThreadsForUsers = 32;
constexpr uint32_t kMostThreadsForHarmless = 2;  // for closes that do not block
// One waits, and another is there so that not every single close starts and ends a thread.
constexpr uint32_t kMostIdle = 2;
// Honest descriptors are closed at once, however many there are.
constexpr std::chrono::seconds kLongClose{1};
constexpr size_t kManyOfAUser = 64;
// A quarter of the descriptors that the process may have, within these limits.
constexpr size_t kLeastOfAll = 256;
constexpr size_t kMostOfAll = 65536;

size_t many_of_all() {
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0)
    return kLeastOfAll;
  return std::clamp<size_t>(descriptors.rlim_cur / 4, kLeastOfAll, kMostOfAll);
}

// Something to be closed, or unmapped.
struct Item {
  Item* next = nullptr;
  Fd fd;
  Mapping mapping;
  std::optional<uid_t> sender;  // empty: it cannot block, and only takes long
};

class Queue {
 public:
  bool empty() const noexcept { return first_ == nullptr; }
  size_t length() const noexcept { return length_; }
  void push(Item* item) noexcept {
    item->next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = item;
    last_ = item;
    ++length_;
  }
  std::unique_ptr<Item> pop() noexcept {
    RRDK_ASSERT(length_ != 0 && first_ != nullptr, length_);
    --length_;
    return std::unique_ptr<Item>(std::exchange(first_, first_->next));
  }

 private:
  Item* first_ = nullptr;
  Item* last_ = nullptr;
  size_t length_ = 0;
};

// Exists as long as the process: its threads may be in a close() that never returns.
//
// A polling thread hands items over without the lock, since a janitor thread that holds it may have
// lost its CPU. The items go onto a stack, and a janitor thread that is in no close() sorts them by
// sender. There is always such a thread: the last one starts another before it closes something.
class Janitor {
 public:
  void take(std::unique_ptr<Item> item) noexcept {
    waiting_.fetch_add(1, std::memory_order_relaxed);
    Item* const mine = item.release();
    mine->next = arrived_.load(std::memory_order_relaxed);
    while (!arrived_.compare_exchange_weak(mine->next, mine, std::memory_order_release,
                                           std::memory_order_relaxed)) {
    }
    wake();
    have_a_thread();
  }

  // Without a lock, unless the total is so large that one user may have many.
  Backlog backlog(uid_t sender) {
    have_a_thread();
    if (waiting_.load(std::memory_order_relaxed) < kManyOfAUser)
      return Backlog::kFine;
    const std::lock_guard lock(mutex_);
    sort_in();
    const auto user = users_.find(sender);
    if (user == users_.end() || user->second.waiting.length() < kManyOfAUser)
      return Backlog::kFine;
    const Clock::time_point now = Clock::now();
    const bool stuck =
        (user->second.closing == kMostThreadsOfAUser &&
         now - user->second.last_start > kLongClose) ||
        (closing_of_users_ == kMostThreadsForUsers && now - last_start_ > kLongClose);
    return stuck ? Backlog::kStuck : Backlog::kMany;
  }

  bool full() noexcept {
    have_a_thread();
    return waiting_.load(std::memory_order_relaxed) >= many_of_all();
  }

 private:
  struct User {
    Queue waiting;
    uint32_t closing = 0;            // threads in close()
    Clock::time_point last_start{};  // of a close
  };
  using Users = std::map<uid_t, User>;

  void wake() noexcept {
    arrivals_.fetch_add(1, std::memory_order_release);
    arrivals_.notify_one();
  }

  // Moves what has arrived to the queues, in the order of arrival.
  void sort_in() noexcept {
    Item* newest = arrived_.exchange(nullptr, std::memory_order_acquire);
    Item* oldest = nullptr;
    while (newest != nullptr) {
      Item* const item = std::exchange(newest, newest->next);
      item->next = std::exchange(oldest, item);
    }
    while (oldest != nullptr) {
      Item* const item = std::exchange(oldest, oldest->next);
      queue_of(*item).push(item);
    }
  }

  // If there is no memory for its sender's queue, the item waits with the harmless ones, and may
  // delay them.
  Queue& queue_of(const Item& item) noexcept {
    try {
      return item.sender ? users_[*item.sender].waiting : harmless_;
    } catch (const std::bad_alloc&) {
      return harmless_;
    }
  }

  // Starts the first thread, and tries again in each public function if the system had no thread.
  void have_a_thread() noexcept {
    if (!wants_thread_.load(std::memory_order_relaxed) ||
        waiting_.load(std::memory_order_relaxed) == 0)
      return;
    const std::lock_guard lock(mutex_);
    see_to_it();
  }

  // Ensures that a thread is in no close(). If the system has none left, the existing ones
  // continue.
  void see_to_it() noexcept {
    if (all_are_closing())
      start();
    wants_thread_.store(all_are_closing(), std::memory_order_relaxed);
  }

  bool all_are_closing() const noexcept {
    return closing_of_users_ + closing_harmless_ == threads_;
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

  // Returns the user whose turn it is, or the end.
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
      const uint32_t seen = arrivals_.load(std::memory_order_acquire);
      sort_in();
      if (harmless_next()) {
        close_harmless(lock);
        continue;
      }
      const auto user = next();
      if (user != users_.end()) {
        close_one(user, lock);
        continue;
      }
      if (idle_ == kMostIdle)
        break;
      ++idle_;
      lock.unlock();
      arrivals_.wait(seen, std::memory_order_acquire);
      lock.lock();
      --idle_;
    }
    --threads_;
  }

  static void finish(std::unique_ptr<Item> item) {
    if (!item->sender)
      return;
    do_not_linger(item->fd.get());  // may wait for a process that has the socket locked
    if (is_unix_socket(item->fd.get()))
      close_packets(item->fd.get());
  }

  void close_harmless(std::unique_lock<std::mutex>& lock) {
    std::unique_ptr<Item> one = harmless_.pop();
    waiting_.fetch_sub(1, std::memory_order_relaxed);
    ++closing_harmless_;
    see_to_it();
    lock.unlock();
    finish(std::move(one));
    lock.lock();
    --closing_harmless_;
  }

  void close_one(Users::iterator of, std::unique_lock<std::mutex>& lock) {
    User& user = of->second;
    last_ = of->first;
    std::unique_ptr<Item> one = user.waiting.pop();
    waiting_.fetch_sub(1, std::memory_order_relaxed);
    ++user.closing;
    ++closing_of_users_;
    user.last_start = last_start_ = Clock::now();
    see_to_it();
    lock.unlock();
    finish(std::move(one));
    lock.lock();
    --closing_of_users_;
    if (--user.closing == 0 && user.waiting.empty())
      users_.erase(of);
  }

  std::atomic<Item*> arrived_ = nullptr;   // the newest first
  std::atomic<uint32_t> arrivals_ = 0;     // changes when there is something for the idle thread
  std::atomic<size_t> waiting_ = 0;        // of all users
  std::atomic<bool> wants_thread_ = true;  // there is no thread, or the system had none

  std::mutex mutex_;  // protects everything below
  bool told_ = false;
  Queue harmless_;
  Users users_;
  uid_t last_ = 0;  // the user that had the last turn
  uint32_t threads_ = 0;
  uint32_t closing_of_users_ = 0;   // threads in close() for users
  uint32_t closing_harmless_ = 0;   // threads in close() for harmless items
  Clock::time_point last_start_{};  // of a close for a user
  uint32_t idle_ = 0;               // threads that wait for arrivals
};

// Returns null if there is no memory for it.
Janitor* janitor() {
  static Janitor* const one = new (std::nothrow) Janitor;
  return one;
}

// Sealed memory is a file of the kernel's own, whose close() does not wait.
bool is_sealed_memory(int fd) {
  return ::fcntl(fd, F_GET_SEALS) >= 0;
}

// Memory of this size is not given back by the calling thread.
constexpr off_t kLargeMemory = off_t{16} << 20;

bool is_large(int fd) {
  struct stat st{};
  return ::fstat(fd, &st) != 0 || st.st_size > kLargeMemory;
}

// If there is no memory to hand them over, they are closed and unmapped here.
void hand_over(Fd fd, Mapping mapping, std::optional<uid_t> sender) noexcept {
  Janitor* const j = janitor();
  std::unique_ptr<Item> item(j != nullptr ? new (std::nothrow) Item : nullptr);
  if (item == nullptr)
    return base::log_error("shm: no memory: a peer's descriptor is closed on the spot");
  item->fd = std::move(fd);
  item->mapping = std::move(mapping);
  item->sender = sender;
  j->take(std::move(item));
}

void close_harmless(Fd fd) noexcept {
  hand_over(std::move(fd), {}, std::nullopt);
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
    hand_over(std::move(fd), {}, sender);
  else if (is_large(fd.get()))
    close_harmless(std::move(fd));
}

void unmap_elsewhere(Mapping mapping) noexcept {
  if (mapping.length() > kLargeMemory && !janitor_is_full())
    hand_over({}, std::move(mapping), std::nullopt);
}

// Once it is shut down no peer connects to it any more; and if no connection waits in it, it is
// closed here, so that its address is free for another socket.
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
