// The schedule of an open loop: when each call is due, and on which connection.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "arrivals.h"

namespace rrdk::testrpc {

// Calls are assigned to the connections in turn, so that each of n connections gets every n-th
// call. A call that is due on a connection whose window is full waits there, in order, and delays
// no other connection. Each step takes constant time, whatever the number of connections or calls.
// The class has no clock: times are nanoseconds since the schedule began, and the caller passes the
// current time.
class Schedule {
 public:
  static constexpr uint64_t kNever = UINT64_MAX;
  // The number of calls that may wait on connections with a full window. At this limit no further
  // calls are taken from the schedule until a waiting one is made, which changes no due time.
  static constexpr uint32_t kMostWaiting = 1u << 20;

  struct Turn {
    uint32_t connection;
    uint64_t due_ns;
    uint64_t behind_since_ns;  // since when calls were made late; at most due_ns
  };

  // Begins a schedule of at most `calls` calls, due before `end_ns`, with at most `window` at a
  // time on each connection. This is the only function that allocates.
  void begin(const Arrivals& arrivals, uint32_t connections, uint32_t window, uint64_t calls,
             uint64_t end_ns);
  // Takes the next call that is due by now and whose connection's window is not full.
  std::optional<Turn> next(uint64_t now_ns);
  // Called when a call on the connection has ended.
  void ended(uint32_t connection);
  // Called when no more calls can be made on the connection; its waiting calls are dropped. Its
  // share of the schedule counts as assigned.
  void lost(uint32_t connection);

  // Returns whether there are calls still to be made.
  bool has_more() const { return waiting_ != 0 || !dealt_all(); }
  bool all_lost() const { return usable_ == 0; }
  // Returns whether all windows are full: there is nothing to do until a call ended().
  bool full() const { return places_ == 0; }
  // Returns when next() will return a call, if it does not now; kNever: not before a call ended().
  uint64_t wake_ns() const;
  // Returns how many calls are due before `now_ns` and before the end.
  uint64_t due_by(uint64_t now_ns) const;

 private:
  struct Waiting {
    uint64_t due_ns;
    uint32_t next;
  };
  struct Connection {
    uint32_t places = 0;  // free places of its window
    uint32_t first_waiting = 0, last_waiting = 0;
    uint32_t next_ready = 0;
    bool ready = false;  // is in the list of connections with a free place and a waiting call
    bool lost = false;
    uint64_t behind_since_ns = kNever;
  };
  static constexpr uint32_t kNone = UINT32_MAX;

  bool dealt_all() const { return dealt_ >= calls_ || next_due_ns_ >= end_ns_; }
  Turn take_waiting();
  void put_aside(Connection& connection, uint64_t due_ns);
  void make_ready(uint32_t number);
  void settle(uint32_t number);
  void drop_first(Connection& connection);

  Arrivals arrivals_;
  uint64_t next_due_ns_ = 0;
  uint64_t calls_ = 0;
  uint64_t dealt_ = 0;
  uint64_t end_ns_ = 0;
  uint32_t turn_ = 0;    // the connection that gets the next call
  uint64_t places_ = 0;  // of all connections
  uint32_t usable_ = 0;  // connections that are not lost
  uint64_t behind_since_ns_ = kNever;
  std::vector<Connection> connections_;
  uint32_t first_ready_ = kNone, last_ready_ = kNone;
  // Waiting calls, a list of unused entries, and entries behind `touched_`, which were never used.
  std::unique_ptr<Waiting[]> pool_;
  uint32_t unused_ = kNone;
  uint32_t touched_ = 0;
  uint32_t waiting_ = 0;
};

}  // namespace rrdk::testrpc
