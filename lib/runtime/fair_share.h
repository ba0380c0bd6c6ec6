// Which connection is served next: clients take turns on a poll core and at the workers, and so do
// the connections of each client. A client with many connections gets no more than a client with
// one.
#pragma once

#include <cstdint>
#include <utility>

#include "base/assert.h"
#include "base/list.h"
#include "engine/credits.h"
#include "runtime/link.h"
#include "runtime/work.h"

namespace rrdk::runtime {

// Rounds of turns: in each, every waiting object has one turn.
struct Rounds {
  uint64_t number = 0;
  uint32_t waiting = 0;
  uint32_t left = 0;  // waiting objects that have not had their turn in this round

  void join() noexcept { ++waiting; }
  // Gives the next one its turn; it no longer waits unless it joins again.
  void turn() noexcept {
    RRDK_ASSERT(waiting != 0 && left <= waiting, left, waiting);
    if (left == 0) {
      ++number;
      left = waiting;
    }
    --left;
    --waiting;
  }
};

// One client on one core. Outlives its connections there.
struct CoreClient : engine::ClientShare {
  static constexpr uint32_t kMostLinks = 16;

  // While others wait: takes the turns that it was owed.
  void catch_up(uint64_t this_round) noexcept {
    allowance.refill(this_round - std::exchange(round, this_round));
  }
  // No other client waits: gives it the allowance of one turn in each pass, and cancels its debt.
  void fill(uint64_t this_pass) noexcept {
    if (std::exchange(pass, this_pass) != this_pass || allowance.lifted())
      allowance.fill();
  }
  void push(Link& link) noexcept;
  // The client's turn: gives turns to its connections, in order, as far as its allowance permits.
  // Returns how many connections' turns it was worth.
  uint32_t serve() noexcept;

  base::Queue<Link, &Link::next_turn_> links;  // that wait for turns
  Rounds rounds;                               // of these links
  uint64_t round = 0;                          // the last in which it had its own turn
  uint64_t pass = 0;                           // the last in which it was given an allowance
  CoreClient* next = nullptr;
  WorkerClient for_workers;
};

// Turns on a poll core, by deficit round robin: between clients, and within a client's turn between
// its connections. Calls are started as they arrive while both allowances last (engine/credits.h).
// Further calls of a connection wait in its engine. The connection waits here, for its client's
// turn and then for its own; a client's turn is worth four turns of a connection.
//
// In a round each waiting client or connection gets one turn. One that does not wait is still owed
// a turn for each round, and takes it as calls arrive, so that calls of a modest client start at
// once. While nothing waits, there are no debts.
class Turns {
 public:
  bool empty() const noexcept { return clients_.empty(); }
  // Sets what may be started of the calls that have arrived on the link in that pass of the core.
  void allow(Link& link, Exclusive exclusive, uint64_t pass) noexcept;
  void join(Link& link) noexcept;  // it has a backlog
  // Gives some turns, not all, so that other events are soon handled. Returns how many.
  uint32_t serve(const base::Budget& budget) noexcept;

 private:
  static constexpr uint32_t kTurnsPerPass = 8;

  bool others_wait(const CoreClient& client) const noexcept {
    return rounds_.waiting > (clients_.front() == &client);
  }
  void push(CoreClient& client) noexcept;

  Rounds rounds_;
  base::Queue<CoreClient, &CoreClient::next> clients_;
};

// What poll cores have for the workers: one item of each client in turn, and of each of its
// connections, so that the calls of one client do not fill the workers' ring before those of
// others.
class WorkerTurns {
 public:
  bool empty() const noexcept { return clients_.empty(); }
  void push(WorkerQueue& queue, WorkItem& item) noexcept {
    const bool queue_waits = !queue.items.empty();
    queue.items.push(item);
    if (queue_waits)
      return;
    const bool client_waits = !queue.client.queues.empty();
    queue.client.queues.push(queue);
    if (!client_waits)
      clients_.push(queue.client);
  }
  // Must not be empty().
  WorkItem& pop() noexcept {
    WorkerClient& client = clients_.pop();
    WorkerQueue& queue = client.queues.pop();
    WorkItem& item = queue.items.pop();
    if (!queue.items.empty())
      client.queues.push(queue);
    if (!client.queues.empty())
      clients_.push(client);
    return item;
  }

 private:
  base::Queue<WorkerClient, &WorkerClient::next> clients_;
};

}  // namespace rrdk::runtime
