#include "size_changer.h"

#include "rrdk/runtime.h"

namespace rrdk::testrpc {

namespace {
constexpr uint32_t kSmallest = 4096;
constexpr uint64_t kPatienceNs = 60'000'000'000;  // for one change
}  // namespace

void SizeChanger::begin(std::span<const std::unique_ptr<ClientConnection>> connections,
                        uint32_t changes, uint32_t largest) {
  all_.clear();
  changes_ = changes;
  largest_ = largest;
  left_ = changes == 0 ? 0 : connections.size();
  for (const std::unique_ptr<ClientConnection>& connection : connections)
    all_.push_back({.connection = connection.get(), .before = receive_sizes(*connection)});
}

void SizeChanger::step() {
  for (One& one : all_) {
    if (!one.done)
      step(one);
  }
}

void SizeChanger::step(One& one) {
  ReceiveSizes now = receive_sizes(*one.connection);
  uint64_t at = Runtime::now_ns();
  if (one.changes != now.peer_changes || one.since_ns == 0) {
    one.changes = now.peer_changes;
    one.since_ns = at;
  }
  bool over = at - one.since_ns > kPatienceNs || one.connection->error().has_value() ||
              now.refused != one.before.refused ||
              now.peer_changes - one.before.peer_changes >= changes_;
  if (over) {
    one.done = true;
    --left_;
    return;
  }
  // The server sends its properties right after its first reply: after two replies they have
  // arrived.
  bool arrived = one.wanted == 0 || now.peer == one.wanted;
  if (now.asked != now.ended || !arrived || one.connection->stats()[Counter::kCallsOk] < 2)
    return;
  one.wanted = now.peer == largest_ ? kSmallest : largest_;
  request_receive_size(*one.connection, one.wanted);
  raise_receive_size(*one.connection, largest_);
}

SizeChanges SizeChanger::end() {
  SizeChanges sum;
  for (const One& one : all_) {
    ReceiveSizes now = receive_sizes(*one.connection);
    sum.peer += now.peer_changes - one.before.peer_changes;
    sum.own += now.own_changes - one.before.own_changes;
    sum.refused += now.refused - one.before.refused;
  }
  left_ = 0;
  return sum;
}

}  // namespace rrdk::testrpc
