// Turns of the connections of one poll core. A server's connection starts calls as they arrive
// while its allowance lasts (xprt/turn.h). What it has beyond that waits in its engine, and the
// connection here, for its next turn: so each of them waits for no more than one turn of every
// other.
//
// A round gives every connection that waits one turn. Who does not wait is owed a turn for each
// round all the same, and takes it as calls arrive: those of a modest client are started at once.
// When nobody waits, nobody owes anything.
#pragma once

#include <cstdint>

namespace rrdk::runtime {

class Link;

class Turns {
 public:
  bool empty() const noexcept { return first_ == nullptr; }
  uint64_t round() const noexcept { return round_; }
  void join(Link& link) noexcept;  // it has a backlog
  // Some turns, so that what others have done meanwhile is soon looked at. Returns how many.
  uint32_t serve() noexcept;

 private:
  static constexpr uint32_t kTurnsPerPass = 8;

  Link& pop() noexcept;

  uint64_t round_ = 0;
  uint32_t waiting_ = 0;
  uint32_t left_ = 0;  // of those waiting, who have not had their turn in this round
  Link* first_ = nullptr;
  Link* last_ = nullptr;
};

}  // namespace rrdk::runtime
