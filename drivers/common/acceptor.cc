#include "drivers/common/acceptor.h"

#include <sys/epoll.h>

#include <cerrno>

namespace rrdk::drivers {

bool Acceptor::out_of_resources() {
  return errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
}

void Acceptor::pause() {
  constexpr std::chrono::milliseconds kPause{100};
  paused_ = true;
  resume_ = Clock::now() + kPause;
  loop_.change(owner_, listening_, 0);
  loop_.set_ticking(owner_, true);
}

void Acceptor::on_tick(Clock::time_point now) {
  if (now < resume_)
    return;
  paused_ = false;
  loop_.change(owner_, listening_, EPOLLIN);
  loop_.set_ticking(owner_, false);
}

}  // namespace rrdk::drivers
