// The application's signals are for the application's threads.
#pragma once

#include <pthread.h>

#include <csignal>
#include <initializer_list>

namespace rrdk::base {

// While it lives, the calling thread takes no signals; threads that it starts never do. Excepted
// are signals that a thread raises by its own fault (if these were blocked, the process would die
// without the application's crash handler) and the profiler's.
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
