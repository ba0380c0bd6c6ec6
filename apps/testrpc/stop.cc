#include "stop.h"

#include <csignal>

namespace rrdk::testrpc {
namespace {

volatile std::sig_atomic_t stopped = 0;

void on_signal(int number) {
  if (stopped != 0) {
    std::signal(number, SIG_DFL);
    std::raise(number);
  }
  stopped = 1;
}

}  // namespace

void catch_stop_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool stop_requested() noexcept {
  return stopped != 0;
}

}  // namespace rrdk::testrpc
