#include "stop.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <initializer_list>

namespace rrdk::testrpc {
namespace {

volatile std::sig_atomic_t asked_by = 0;  // a signal's number
volatile std::sig_atomic_t interrupted = 0;
volatile std::sig_atomic_t prompt_has_interrupts = 0;
volatile std::sig_atomic_t figures_asked = 0;

bool has_terminal() {
  const int terminal = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
  if (terminal >= 0)
    close(terminal);
  return terminal >= 0;
}

void on_question(int) {
  figures_asked = 1;
}

// What is going on while stop_requested() is not called; null while it is called.
std::atomic<const char*> goes_on = nullptr;
static_assert(std::atomic<const char*>::is_always_lock_free);

void die_of(int number) {
  std::signal(number, SIG_DFL);
  std::raise(number);
}

// Runs in a signal handler, where only write() may be called.
void say_what_goes_on(int number, const char* what) {
  const char* const name = number == SIGINT ? "SIGINT" : number == SIGTERM ? "SIGTERM" : "SIGHUP";
  for (const char* part : {"testrpc: ended by ", name, " while ", what, "\n"}) {
    if (::write(STDERR_FILENO, part, std::strlen(part)) < 0)
      return;
  }
}

void end_while(const char* what, int number) {
  say_what_goes_on(number, what);
  die_of(number);
}

void on_signal(int number) {
  if (number == SIGINT && prompt_has_interrupts != 0) {
    interrupted = 1;
    return;
  }
  if (const char* what = goes_on; what != nullptr && number != SIGPIPE)
    return end_while(what, number);
  if (asked_by != 0 && asked_by != SIGPIPE && number != SIGPIPE)
    die_of(number);
  if (asked_by == 0)
    asked_by = number;
}

}  // namespace

void catch_stop_signals(HangUp hang_up) {
  struct sigaction action = {}, question = {};
  action.sa_handler = on_signal;
  question.sa_handler = on_question;
  sigaction(SIGUSR1, &question, nullptr);
  for (int number : {SIGINT, SIGTERM, SIGPIPE})
    sigaction(number, &action, nullptr);
  // nohup(1) makes the process ignore it.
  struct sigaction before = {};
  if (sigaction(SIGHUP, nullptr, &before) == 0 && before.sa_handler != SIG_IGN)
    sigaction(SIGHUP, hang_up == HangUp::kEnds || has_terminal() ? &action : &question, nullptr);
}

bool stop_requested() noexcept {
  return asked_by != 0;
}

bool take_figures_request() noexcept {
  if (figures_asked == 0)
    return false;
  figures_asked = 0;
  return true;
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
  std::fflush(nullptr);
  die_of(asked_by);
}

EndsAtOnce::EndsAtOnce(const char* what) : before_(goes_on.exchange(what)) {
  if (asked_by != 0 && asked_by != SIGPIPE)
    end_while(what, asked_by);
  taker_ = std::thread([this] { over_.wait(false); });
}

EndsAtOnce::~EndsAtOnce() {
  goes_on = before_;
  over_ = true;
  over_.notify_one();
  taker_.join();
}

}  // namespace rrdk::testrpc
