// Which call of an open loop is due when, and on which connection.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "arrivals.h"

namespace rrdk::testrpc {

// Calls are dealt out to the connections in turn, so that each of n connections gets every n-th
// one. A call that is due on a connection whose window is full waits there, in order, and holds up
// no other connection. Each step takes a time that does not depend on the number of connections or
// calls. There is no clock in here: times are nanoseconds since the schedule began, and the caller
// says how late it is.
class Schedule {
 public:
  static constexpr uint64_t kNever = UINT64_MAX;
  // Calls that may wait on connections with a full window. Where there are more the schedule is not
  // read on until one of them is made, which changes no due time.
  static constexpr uint32_t kMostWaiting = 1u << 20;

  struct Turn {
    uint32_t connection;
    uint64_t due_ns;
    uint64_t behind_since_ns;  // since when such calls were made late; at most due_ns
  };

  // `calls` at most, all of them due before `end_ns`, with at most `window` at a time on each of
  // the connections. Allocates, which nothing else here does.
  void begin(const Arrivals& arrivals, uint32_t connections, uint32_t window, uint64_t calls,
             uint64_t end_ns);
  // Takes the next call that is due by now and whose connection has a place in its window.
  std::optional<Turn> next(uint64_t now_ns);
  // A call on it is over.
  void ended(uint32_t connection);
  // No more calls can be made on it, and those that wait there never will be. Its share of the
  // schedule counts as dealt.
  void lost(uint32_t connection);

  // Whether there are calls still to be made.
  bool has_more() const { return waiting_ != 0 || !dealt_all(); }
  bool all_lost() const { return usable_ == 0; }
  // No connection has a place for a call: until one ended() there is nothing to do.
  bool full() const { return places_ == 0; }
  // When next() has something to give, unless it does so now; kNever: not before a call ended().
  uint64_t wake_ns() const;
  // How many calls are due before `now_ns` and the end.
  uint64_t due_by(uint64_t now_ns) const;

 private:
  struct Waiting {
    uint64_t due_ns;
    uint32_t next;
  };
  struct Connection {
    uint32_t places = 0;  // that its window has left
    uint32_t first_waiting = 0, last_waiting = 0;
    uint32_t next_ready = 0;
    bool ready = false;  // is in the list of those that have a place and a waiting call
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
  // Calls that wait; a list of unused ones, and those behind `touched_`, which were never used.
  std::unique_ptr<Waiting[]> pool_;
  uint32_t unused_ = kNone;
  uint32_t touched_ = 0;
  uint32_t waiting_ = 0;
};

}  // namespace rrdk::testrpc
