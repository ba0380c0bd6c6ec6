// The connections of a server: present ones by their ids, and sums over past ones. Cores write the
// table when connections come and go; any thread reads it, and a reader holds nothing that a core
// waits for.
#pragma once

#include "base/rcu.h"
// Must follow the header of liburcu's flavour:
#include <urcu/rculfhash.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "rrdk/counters.h"

namespace rrdk::server {

class ServerLink;

// A connection's entry in the table.
struct LinkNode : cds_lfht_node {
  explicit LinkNode(ServerLink& its_link) noexcept : cds_lfht_node{}, link(its_link) {}

  ServerLink& link;
  // How many connections of its core had ended when it ended, including itself; 0: it is present.
  std::atomic<uint64_t> gone_as = 0;
};

class LinkTable {
 public:
  explicit LinkTable(size_t cores);
  ~LinkTable();  // must be empty, without readers
  LinkTable(const LinkTable&) = delete;
  LinkTable& operator=(const LinkTable&) = delete;

  // On the link's core, in a pass.
  void add(ServerLink& link) noexcept;
  // The link's counters must not change any more. It is destroyed after a grace period
  // (base::retire()).
  void remove(ServerLink& link);

  // Any thread, within a read section, in which the result is valid. find() returns null if the
  // table has no such connection.
  ServerLink* find(uint64_t id) const noexcept;
  void for_each(const std::function<void(ServerLink&)>& visitor) const;  // in no particular order

  // Any thread. In ascending order.
  std::vector<uint64_t> ids() const;
  // Sums over all connections, present and past, each counted once.
  Stats sums() const;

 private:
  // Connections of one core that have ended. Replaced when another one ends.
  struct Past final : base::Retired {
    uint64_t links = 0;
    Stats sums{CounterOwner::kServer};
  };

  cds_lfht* const table_;
  std::vector<std::atomic<Past*>> past_;  // for each core, written only by that core
};

}  // namespace rrdk::server
