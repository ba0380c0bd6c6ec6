// Simulated time: a queue of events, each for an actor. Events of one instant come in the order in
// which they were scheduled.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace rrdk::sim {

class Actor {
 public:
  virtual void on_event(uint32_t what, uint64_t argument) = 0;

 protected:
  ~Actor() = default;
};

class Schedule {
 public:
  uint64_t now() const noexcept { return now_; }  // nanoseconds
  uint64_t steps() const noexcept { return steps_; }
  bool empty() const noexcept { return events_.empty(); }

  // `actor` lives until the simulation ends.
  void after(uint64_t delay, Actor& actor, uint32_t what, uint64_t argument = 0) {
    events_.push_back({now_ + delay, scheduled_++, &actor, what, argument});
    std::push_heap(events_.begin(), events_.end(), later);
  }
  // Runs the next event. Returns false if there is no event.
  bool step() {
    if (events_.empty())
      return false;
    std::pop_heap(events_.begin(), events_.end(), later);
    Event event = events_.back();
    events_.pop_back();
    now_ = event.at;
    ++steps_;
    event.actor->on_event(event.what, event.argument);
    return true;
  }

 private:
  struct Event {
    uint64_t at;
    uint64_t order;
    Actor* actor;
    uint32_t what;
    uint64_t argument;
  };
  static bool later(const Event& a, const Event& b) noexcept {
    return a.at != b.at ? a.at > b.at : a.order > b.order;
  }

  uint64_t now_ = 0;
  uint64_t steps_ = 0;
  uint64_t scheduled_ = 0;
  std::vector<Event> events_;
};

}  // namespace rrdk::sim
