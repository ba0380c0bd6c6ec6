// A device's control path: sockets in an epoll set, ticks for what has deadlines, and the events
// that wait for poll_events(). Run by whoever polls events; all of it under one lock.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/system.h"
#include "fabric/device.h"

namespace rrdk::drivers {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTick{20};

// Something with a socket in the epoll set, one at a time. Called with the loop's lock held.
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  virtual void on_ready() = 0;
  virtual void on_tick(Clock::time_point now) = 0;

 private:
  friend class ControlLoop;
  uint64_t id_ = 0;          // in the epoll set; 0: it was never there
  uint32_t num_events_ = 0;  // of it, that wait for poll_events()
};

class ControlLoop {
 public:
  Result<void> start();

  // Runs what is ready, then takes events, oldest first.
  std::vector<fabric::Event> poll_events(uint32_t most);
  int event_fd() const { return epoll_.get(); }

  // The lock is recursive, since the end of one endpoint can come of another's call.
  std::recursive_mutex& mutex() { return mutex_; }
  // `interest`: EPOLLIN or EPOLLOUT, or 0 for the end of the socket alone.
  Result<void> watch(Endpoint& endpoint, int socket, uint32_t interest);
  void change(Endpoint& endpoint, int socket, uint32_t interest);
  void unwatch(int socket);
  // Whether on_tick() is called every kTick.
  void set_ticking(Endpoint& endpoint, bool on);
  // The endpoint is going away: its undelivered events go with it.
  void forget(Endpoint& endpoint);
  void emit(Endpoint& source, fabric::Event event);
  // Any thread: makes poll_events() tick `endpoint` soon, and every kTick from then on.
  void nudge(Endpoint& endpoint) noexcept;

  // Endpoints that nobody else owns.
  void adopt(std::unique_ptr<Endpoint> endpoint);
  std::unique_ptr<Endpoint> release(Endpoint& endpoint);
  template <typename Which>
  void release_if(Which which) {
    std::erase_if(adopted_, [&](const auto& entry) { return which(*entry.second); });
  }
  size_t num_adopted() const { return adopted_.size(); }
  // Ends what is left, while the rest of the device is still there.
  void clear();

 private:
  void dispatch();
  void tick();
  void keep_readable();

  base::Fd epoll_;
  base::Fd timer_;   // runs while an endpoint ticks
  base::Fd nudges_;  // eventfd: readable while events wait, or after a nudge

  std::recursive_mutex mutex_;
  // By an id that is never reused: epoll may still report an endpoint that has just gone.
  std::unordered_map<uint64_t, Endpoint*> endpoints_;
  uint64_t next_id_ = kFirstId;
  std::set<Endpoint*> ticking_;
  std::mutex nudged_mutex_;
  std::unordered_set<Endpoint*> nudged_;  // to tick, as other threads asked
  std::unordered_map<const Endpoint*, std::unique_ptr<Endpoint>> adopted_;
  struct PendingEvent {
    Endpoint* source;
    fabric::Event event;
  };
  std::deque<PendingEvent> events_;

  // Ids in the epoll set that are no endpoints'.
  static constexpr uint64_t kTimerId = 0;
  static constexpr uint64_t kNudgeId = 1;
  static constexpr uint64_t kFirstId = 2;
};

// Of `visitors`, who came first in front and of whom there is one at least, the oldest of those who
// most are like, by `whose`: a flood costs its own visitors their places.
template <typename Visitors, typename Whose>
auto oldest_of_most(const Visitors& visitors, Whose whose) {
  using Owner = std::decay_t<std::invoke_result_t<Whose, decltype(visitors.front())>>;
  std::map<Owner, size_t> counts;
  size_t most = 0;
  for (const auto& visitor : visitors)
    most = std::max(most, ++counts[std::invoke(whose, visitor)]);
  return *std::ranges::find(
      visitors, most, [&](const auto& visitor) { return counts.at(std::invoke(whose, visitor)); });
}

// Accepts connections from a listening socket, a few at a time. When the system is out of
// descriptors or memory, it asks its owner to make room. If nothing can be closed, it says so
// (kShortage) and pauses: otherwise the epoll set would keep reporting the socket, and a core would
// do nothing else.
class Acceptor {
 public:
  // `owner` is watched with `listening`, and passes its ticks on; `listener` is whose socket it is.
  Acceptor(ControlLoop& loop, Endpoint& owner, fabric::Listener& listener, int listening)
      : loop_(loop), owner_(owner), listener_(listener), listening_(listening) {}

  // Calls take(base::Fd) for each connection that waits, and make_room() when there is none left
  // for it: true if something was closed.
  template <typename Take, typename MakeRoom>
  void accept(Take take, MakeRoom make_room) {
    constexpr int kAtOnce = 16;  // the epoll set reports the rest again
    for (int i = 0; i < kAtOnce && !paused_; ++i) {
      base::Fd socket(::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (socket)
        take(std::move(socket));
      else if (const int why = errno; !out_of_resources(why))
        return;
      else if (!make_room())
        return lack(why);
    }
  }
  // There is nothing left for a connection, and nothing more that the owner could close.
  void lack(int error);
  // For a while nothing is accepted; connections wait in the backlog.
  void pause();
  void on_tick(Clock::time_point now);

 private:
  static bool out_of_resources(int error);

  ControlLoop& loop_;
  Endpoint& owner_;
  fabric::Listener& listener_;
  const int listening_;
  bool paused_ = false;
  Clock::time_point resume_{};
  base::LogLimit shortages_;
};

}  // namespace rrdk::drivers
