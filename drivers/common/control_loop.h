// A device's control path: sockets in an epoll set, ticks for objects with deadlines, and the
// events that wait for poll_events(). It runs in the thread that polls events, all under one lock.
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

#include "base/budget.h"
#include "base/log.h"
#include "base/system.h"
#include "fabric/device.h"

namespace rrdk::drivers {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTick{20};

// An object with a socket in the epoll set, one at a time. Called with the loop's lock held.
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  virtual void on_ready() = 0;
  virtual void on_tick(Clock::time_point now) = 0;

 private:
  friend class ControlLoop;
  uint64_t id_ = 0;          // in the epoll set; 0: never in it
  uint32_t num_events_ = 0;  // its events that wait for poll_events()
  bool is_due_ = false;      // for a tick, before the next round
};

class ControlLoop {
 public:
  Result<void> start();

  // Returns at most `most` events, oldest first. If fewer wait, first handles what is ready, until
  // the budget is spent: peers could cause events faster than they are taken.
  std::vector<fabric::Event> poll_events(uint32_t most, base::Budget& budget);
  // Called by an endpoint that could do more: whether the rest must wait. Epoll reports it again.
  bool over_budget() noexcept { return !budget_->may_go_on(); }
  int event_fd() const { return epoll_.get(); }

  // The lock is recursive, since a call to one endpoint can end another.
  std::recursive_mutex& mutex() { return mutex_; }
  // `interest`: EPOLLIN or EPOLLOUT, or 0 for only the end of the socket.
  Result<void> watch(Endpoint& endpoint, int socket, uint32_t interest);
  void change(Endpoint& endpoint, int socket, uint32_t interest);
  void unwatch(int socket);
  // Sets whether on_tick() is called every kTick.
  void set_ticking(Endpoint& endpoint, bool on);
  // Called when the endpoint is destroyed: its undelivered events are dropped.
  void forget(Endpoint& endpoint);
  void emit(Endpoint& source, fabric::Event event);
  // Any thread: makes poll_events() tick `endpoint` soon, and every kTick from then on.
  void nudge(Endpoint& endpoint) noexcept;

  // Takes ownership of an endpoint that has no other owner.
  void adopt(std::unique_ptr<Endpoint> endpoint);
  std::unique_ptr<Endpoint> release(Endpoint& endpoint);
  template <typename Which>
  void release_if(Which which) {
    std::erase_if(adopted_, [&](const auto& entry) { return which(*entry.second); });
  }
  size_t num_adopted() const { return adopted_.size(); }
  // Destroys what is left, while the rest of the device still exists.
  void clear();

 private:
  void serve();
  bool serve_ready();
  enum class Served : uint8_t { kNothing, kOwn, kEndpoint };  // kOwn: a nudge, or the timer
  Served serve_one();
  void tick();
  Endpoint* next_due();
  Endpoint* next_in_round();
  void make_due(Endpoint& endpoint);
  void run_timer();
  void keep_readable();

  base::Fd epoll_;
  base::Fd timer_;   // runs while an endpoint ticks
  base::Fd nudges_;  // eventfd: readable while events wait, or after a nudge

  std::recursive_mutex mutex_;
  // By an id that is never reused: epoll may still report an endpoint that is already gone.
  std::unordered_map<uint64_t, Endpoint*> endpoints_;
  uint64_t next_id_ = kFirstId;
  std::set<Endpoint*> ticking_;
  std::deque<Endpoint*> due_;     // were nudged; they may have stopped ticking
  bool round_due_ = false;        // the timer has run out: all that tick have a tick
  bool in_round_ = false;         // some have had it
  Endpoint* round_at_ = nullptr;  // the last of these, which may be gone
  bool round_next_ = false;       // the next tick is one of the round
  bool ticks_first_ = false;      // the last call did not come to them
  bool tick_wanted_ = false;      // a nudge or the timer was noted since the last ones
  bool timer_runs_ = false;
  base::Budget* budget_ = &base::Budget::none();  // of the call of poll_events()
  std::mutex nudged_mutex_;
  std::unordered_set<Endpoint*> nudged_;  // to tick, as requested by other threads
  std::unordered_map<const Endpoint*, std::unique_ptr<Endpoint>> adopted_;
  struct PendingEvent {
    Endpoint* source;
    fabric::Event event;
  };
  std::deque<PendingEvent> events_;

  // Ids in the epoll set that belong to no endpoint.
  static constexpr uint64_t kTimerId = 0;
  static constexpr uint64_t kNudgeId = 1;
  static constexpr uint64_t kFirstId = 2;
};

// `visitors` must not be empty, and is ordered from the oldest. Groups them by `whose`, and returns
// the oldest one of the largest group: a flood costs its own visitors their places.
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
// descriptors or memory, it asks its owner to close something. If nothing can be closed, it reports
// that (kShortage) and pauses: otherwise the epoll set would keep reporting the socket, and a core
// would do nothing else.
class Acceptor {
 public:
  // `owner` is watched with `listening`, and passes its ticks on; `listener` is the one to which
  // the socket belongs.
  Acceptor(ControlLoop& loop, Endpoint& owner, fabric::Listener& listener, int listening)
      : loop_(loop), owner_(owner), listener_(listener), listening_(listening) {}

  // Calls take(base::Fd) for each connection that waits. Calls make_room() when the system has no
  // resources for one; it returns true if something was closed.
  template <typename Take, typename MakeRoom>
  void accept(Take take, MakeRoom make_room) {
    constexpr int kAtOnce = 16;  // the epoll set reports the rest again
    for (int i = 0; i < kAtOnce && !paused_ && !(i != 0 && loop_.over_budget()); ++i) {
      base::Fd socket(::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (socket)
        take(std::move(socket));
      else if (const int why = errno; !out_of_resources(why))
        return;
      else if (!make_room())
        return lack(why);
    }
  }
  // The system has no resources for a connection, and the owner cannot close any more.
  void lack(int error);
  // Accepts nothing for a while; connections wait in the backlog.
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
