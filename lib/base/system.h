// Wrappers of system resources: file descriptors, errors, and signals.
#pragma once

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <new>
#include <string>
#include <utility>

#include "rrdk/error.h"

namespace rrdk::base {

// Owns a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) noexcept : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  explicit operator bool() const noexcept { return fd_ >= 0; }
  int get() const noexcept { return fd_; }
  int release() noexcept { return std::exchange(fd_, -1); }
  void reset() noexcept {
    if (fd_ >= 0)
      ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

// Memory with pages of its own, which the system allocates when they are touched: for what may
// become large and mostly stays small. Throws std::bad_alloc.
class LazyPages {
 public:
  explicit LazyPages(size_t bytes)
      : bytes_(bytes),
        data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (data_ == MAP_FAILED)
      throw std::bad_alloc();
    // Touching a transparent hugepage would allocate all its memory.
    (void)::madvise(data_, bytes_, MADV_NOHUGEPAGE);
  }
  LazyPages(const LazyPages&) = delete;
  LazyPages& operator=(const LazyPages&) = delete;
  ~LazyPages() { ::munmap(data_, bytes_); }

  void* data() const noexcept { return data_; }

 private:
  const size_t bytes_;
  void* const data_;
};

// The system's text for an errno value, thread-safe. Errors that are common with many connections
// include the remedy.
inline std::string system_message(int error) {
  const char* remedy = error == EMFILE ? " (RLIMIT_NOFILE: raise it, by ulimit -n say)" : "";
  char text[128];
  // The GNU version, which returns it.
  return std::string(::strerror_r(error, text, sizeof(text))) + remedy;
}

// Returns the error of a call that has just failed, by errno: "eventfd: Too many open files".
inline tl::unexpected<Error> system_failure(const char* call) {
  const int error = errno;
  return fail(error == ENOMEM ? Errc::kNoMemory : Errc::kSystem,
              std::string(call) + ": " + system_message(error));
}

// The application's signals are for the application's threads.
//
// While it exists, the calling thread takes no signals, and threads that it starts never do.
// Exceptions are signals that a thread causes by its own fault (if these were blocked, the process
// would die without the application's crash handler) and the profiler's.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t all;
    sigfillset(&all);
    for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF})
      sigdelset(&all, signal);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace rrdk::base
