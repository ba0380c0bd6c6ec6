// Who is served next: the connections of one poll core take turns, there and at the workers.
#pragma once

#include <cstdint>

#include "base/list.h"
#include "runtime/link.h"
#include "runtime/work.h"

namespace rrdk::runtime {

// Turns of the connections of one poll core. A server's connection starts calls as they arrive
// while its allowance lasts (xprt/credits.h). What it has beyond that waits in its engine, and the
// connection here, for its next turn: so each of them waits for no more than one turn of every
// other.
//
// A round gives every connection that waits one turn. Who does not wait is owed a turn for each
// round all the same, and takes it as calls arrive: those of a modest client are started at once.
// When nobody waits, nobody owes anything.
class Turns {
 public:
  bool empty() const noexcept { return links_.empty(); }
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
  base::Queue<Link, &Link::next_turn_> links_;
};

// What poll cores have for the workers, by connection: one item of each in turn, so that the calls
// of one do not fill the workers' ring before those of others.
class WorkerTurns {
 public:
  bool empty() const noexcept { return queues_.empty(); }
  void push(WorkerQueue& queue, WorkItem& item) noexcept {
    bool waits = !queue.items.empty();
    queue.items.push(item);
    if (!waits)
      queues_.push(queue);
  }
  // Not when empty().
  WorkItem& pop() noexcept {
    WorkerQueue& queue = queues_.pop();
    WorkItem& item = queue.items.pop();
    if (!queue.items.empty())
      queues_.push(queue);
    return item;
  }

 private:
  base::Queue<WorkerQueue, &WorkerQueue::next> queues_;
};

}  // namespace rrdk::runtime
