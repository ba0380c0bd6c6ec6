#include "schedule.h"

#include <algorithm>

namespace rrdk::testrpc {

void Schedule::begin(const Arrivals& arrivals, uint32_t connections, uint32_t window,
                     uint64_t calls, uint64_t end_ns) {
  arrivals_ = arrivals;
  next_due_ns_ = static_cast<uint64_t>(arrivals_.next_ns());
  calls_ = calls;
  dealt_ = 0;
  end_ns_ = end_ns;
  turn_ = 0;
  places_ = uint64_t{connections} * window;
  usable_ = connections;
  behind_since_ns_ = kNever;
  connections_.assign(connections,
                      {.places = window, .first_waiting = kNone, .last_waiting = kNone});
  first_ready_ = last_ready_ = kNone;
  if (pool_ == nullptr)  // pages without waiting calls are never touched
    pool_ = std::make_unique_for_overwrite<Waiting[]>(kMostWaiting);
  unused_ = kNone;
  touched_ = waiting_ = 0;
}

std::optional<Schedule::Turn> Schedule::next(uint64_t now_ns) {
  if (first_ready_ != kNone)
    return take_waiting();
  while (places_ != 0 && !dealt_all()) {
    const uint64_t due_ns = next_due_ns_;
    if (due_ns > now_ns) {
      behind_since_ns_ = kNever;
      return std::nullopt;
    }
    Connection& connection = connections_[turn_];
    const bool waits = connection.places == 0 && !connection.lost;
    if (waits && waiting_ == kMostWaiting)
      return std::nullopt;
    behind_since_ns_ = std::min(behind_since_ns_, due_ns);
    const uint32_t number = turn_;
    turn_ = turn_ + 1 == connections_.size() ? 0 : turn_ + 1;
    ++dealt_;
    arrivals_.take();
    next_due_ns_ = static_cast<uint64_t>(arrivals_.next_ns());
    if (waits) {
      put_aside(connection, due_ns);
    } else if (!connection.lost) {
      --connection.places;
      --places_;
      return Turn{number, due_ns, behind_since_ns_};
    }
  }
  return std::nullopt;
}

// Takes one call of each ready connection, then the next one of each, so roughly in the order in
// which they were due.
Schedule::Turn Schedule::take_waiting() {
  const uint32_t number = first_ready_;
  Connection& connection = connections_[number];
  first_ready_ = connection.next_ready;
  connection.ready = false;
  const uint64_t due_ns = pool_[connection.first_waiting].due_ns;
  const uint64_t behind_since_ns = std::min({behind_since_ns_, connection.behind_since_ns, due_ns});
  drop_first(connection);
  --connection.places;
  --places_;
  if (connection.places != 0)
    settle(number);
  return {number, due_ns, behind_since_ns};
}

void Schedule::put_aside(Connection& connection, uint64_t due_ns) {
  uint32_t place = unused_;
  if (place != kNone)
    unused_ = pool_[place].next;
  else
    place = touched_++;
  ++waiting_;
  pool_[place] = {due_ns, kNone};
  if (connection.first_waiting == kNone)
    connection.first_waiting = place;
  else
    pool_[connection.last_waiting].next = place;
  connection.last_waiting = place;
  connection.behind_since_ns = std::min(connection.behind_since_ns, behind_since_ns_);
}

void Schedule::drop_first(Connection& connection) {
  const uint32_t place = connection.first_waiting;
  connection.first_waiting = pool_[place].next;
  pool_[place].next = unused_;
  unused_ = place;
  --waiting_;
}

void Schedule::make_ready(uint32_t number) {
  Connection& connection = connections_[number];
  connection.ready = true;
  connection.next_ready = kNone;
  if (first_ready_ == kNone)
    first_ready_ = number;
  else
    connections_[last_ready_].next_ready = number;
  last_ready_ = number;
}

void Schedule::ended(uint32_t number) {
  Connection& connection = connections_[number];
  if (connection.lost)
    return;
  ++connection.places;
  ++places_;
  settle(number);
}

// For a connection with a free place: makes it ready, or notes that it keeps the schedule.
void Schedule::settle(uint32_t number) {
  Connection& connection = connections_[number];
  if (connection.first_waiting == kNone)
    connection.behind_since_ns = kNever;
  else if (!connection.ready)
    make_ready(number);
}

// Rare, and at most once for each connection, so it may search the list.
void Schedule::lost(uint32_t number) {
  Connection& connection = connections_[number];
  if (connection.lost)
    return;
  connection.lost = true;
  --usable_;
  places_ -= connection.places;
  while (connection.first_waiting != kNone)
    drop_first(connection);
  if (!connection.ready)
    return;
  uint32_t before = kNone;
  for (uint32_t at = first_ready_; at != number; at = connections_[at].next_ready)
    before = at;
  (before == kNone ? first_ready_ : connections_[before].next_ready) = connection.next_ready;
  if (last_ready_ == number)
    last_ready_ = before;
}

uint64_t Schedule::wake_ns() const {
  return full() || dealt_all() ? kNever : next_due_ns_;
}

uint64_t Schedule::due_by(uint64_t now_ns) const {
  return std::min(calls_, arrivals_.due_before(static_cast<double>(std::min(now_ns, end_ns_))));
}

}  // namespace rrdk::testrpc
