// The connections of a server, present ones by their ids and past ones as sums. Cores write it when
// connections come and go; everybody reads it, and no reader of the table holds anything that a
// core waits for.
#pragma once

#include "base/rcu.h"
// Behind liburcu's flavour:
#include <urcu/rculfhash.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "rrdk/counters.h"

namespace rrdk::server {

class ServerLink;

// A connection's place in the table.
struct LinkNode : cds_lfht_node {
  explicit LinkNode(ServerLink& its_link) noexcept : cds_lfht_node{}, link(its_link) {}

  ServerLink& link;
  // How many connections of its core had gone when it had, itself included; 0: it is present.
  std::atomic<uint64_t> gone_as = 0;
};

class LinkTable {
 public:
  explicit LinkTable(size_t cores);
  ~LinkTable();  // it is empty by then, and has no readers
  LinkTable(const LinkTable&) = delete;
  LinkTable& operator=(const LinkTable&) = delete;

  // On the link's core, in a pass.
  void add(ServerLink& link) noexcept;
  // The link's counters change no more. It is destroyed after a grace period (base::retire()).
  void remove(ServerLink& link);

  // Any thread, within a read section, in which what is found is valid. find() returns null if the
  // table has no such connection.
  ServerLink* find(uint64_t id) const noexcept;
  void for_each(const std::function<void(ServerLink&)>& visitor) const;  // in no order

  // Any thread. In their order.
  std::vector<uint64_t> ids() const;
  // Of all connections, present and past, each counted once.
  Stats sums() const;

 private:
  // Connections of one core that are gone. Replaced when another one goes.
  struct Past final : base::Retired {
    uint64_t links = 0;
    Stats sums{CounterOwner::kServer};
  };

  cds_lfht* const table_;
  std::vector<std::atomic<Past*>> past_;  // of each core, which alone writes it
};

}  // namespace rrdk::server
