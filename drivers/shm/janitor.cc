#include "drivers/shm/janitor.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <thread>

#include "base/log.h"

namespace rrdk::shm {

namespace {

// Lives as long as the process: its thread may be in a close() that never returns.
class Janitor {
 public:
  void take(Fd fd) {
    const std::lock_guard lock(mutex_);
    if (!running_) {
      std::thread([this] { run(); }).detach();
      running_ = true;
    }
    waiting_.push_back(std::move(fd));
    arrived_.notify_one();
  }

 private:
  void run() {
    for (;;) {
      std::unique_lock lock(mutex_);
      arrived_.wait(lock, [this] { return !waiting_.empty(); });
      Fd next = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      next.reset();
    }
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Fd> waiting_;
  bool running_ = false;
};

// Sealed memory is a file of the kernel's own, whose close() does not wait.
bool is_sealed_memory(int fd) {
  return ::fcntl(fd, F_GET_SEALS) >= 0;
}

}  // namespace

void PeerSocket::end() noexcept {
  if (fd_)
    ::shutdown(fd_.get(), SHUT_RDWR);
}

void close_elsewhere(Fd fd) noexcept {
  if (!fd || is_sealed_memory(fd.get()))
    return;
  static Janitor* const janitor = new (std::nothrow) Janitor;
  try {
    if (janitor != nullptr)
      janitor->take(std::move(fd));
  } catch (const std::exception& e) {
    base::log_error("shm: a peer's descriptor is closed on the spot, which may block: %s",
                    e.what());
  }
}

}  // namespace rrdk::shm
