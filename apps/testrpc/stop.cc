#include "stop.h"

#include <csignal>
#include <initializer_list>

namespace rrdk::testrpc {
namespace {

volatile std::sig_atomic_t asked_by = 0;  // a signal's number
volatile std::sig_atomic_t interrupted = 0;
volatile std::sig_atomic_t prompt_has_interrupts = 0;

void on_signal(int number) {
  if (number == SIGINT && prompt_has_interrupts != 0) {
    interrupted = 1;
    return;
  }
  if (asked_by != 0 && asked_by != SIGPIPE && number != SIGPIPE) {
    std::signal(number, SIG_DFL);
    std::raise(number);
  }
  if (asked_by == 0)
    asked_by = number;
}

}  // namespace

void catch_stop_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  for (int number : {SIGINT, SIGTERM, SIGPIPE})
    sigaction(number, &action, nullptr);
  // nohup(1) has it ignored.
  struct sigaction before = {};
  if (sigaction(SIGHUP, nullptr, &before) == 0 && before.sa_handler != SIG_IGN)
    sigaction(SIGHUP, &action, nullptr);
}

bool stop_requested() noexcept {
  return asked_by != 0;
}

void leave_interrupts_to_prompt() {
  prompt_has_interrupts = 1;
}

bool take_interrupt() noexcept {
  if (interrupted == 0)
    return false;
  interrupted = 0;
  return true;
}

void die_as_asked() {
  if (asked_by != SIGHUP && asked_by != SIGPIPE)
    return;
  std::signal(asked_by, SIG_DFL);
  std::raise(asked_by);
}

}  // namespace rrdk::testrpc
