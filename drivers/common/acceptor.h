// Takes connections from a listening socket, a few at a time. When the system has nothing left for
// another one it asks for room, and where there is none to make it pauses: the epoll set would
// report the socket again and again, and a whole core would do nothing else.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <utility>

#include "drivers/common/control_loop.h"

namespace rrdk::drivers {

class Acceptor {
 public:
  // `owner` is watched with `listening`, and passes its ticks on.
  Acceptor(ControlLoop& loop, Endpoint& owner, int listening)
      : loop_(loop), owner_(owner), listening_(listening) {}

  // Calls take(base::Fd) for each connection that waits, and make_room() when there is none left
  // for it: true if something was closed.
  template <typename Take, typename MakeRoom>
  void accept(Take take, MakeRoom make_room) {
    constexpr int kAtOnce = 16;  // the epoll set reports the rest again
    for (int i = 0; i < kAtOnce && !paused_; ++i) {
      base::Fd socket(::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (socket)
        take(std::move(socket));
      else if (!out_of_resources())
        return;
      else if (!make_room())
        return pause();
    }
  }
  // For a while nothing is accepted; connections wait in the backlog.
  void pause();
  void on_tick(Clock::time_point now);

 private:
  static bool out_of_resources();  // by errno

  ControlLoop& loop_;
  Endpoint& owner_;
  const int listening_;
  bool paused_ = false;
  Clock::time_point resume_{};
};

}  // namespace rrdk::drivers
