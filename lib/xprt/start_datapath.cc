// When a call that has arrived is started: its chunks fetched, or the call delivered. Its Receive
// has gone back by then, so a peer may always use what it was granted; what it has beyond its share
// of the core, or of memory, waits here in order.
#include <algorithm>

#include "xprt/responder.h"

namespace rrdk::xprt {

namespace {

// Memory that the call can come to hold: its chunks, and for its reply as much as fits the room
// that was offered. What it sends and gets inline is bounded by the credits.
uint64_t chunk_bytes_of(const proto::ChunkLists& lists, const ConnectionOptions& options) {
  uint64_t offered = lists.has_reply ? lists.reply.length : 0;
  for (uint32_t i = 0; i < lists.num_writes; ++i)
    offered += lists.writes[i].length;
  return std::min(lists.read_length + std::min(offered, options.max_reply),
                  options.max_chunk_bytes);
}

}  // namespace

void Responder::begin(Incoming& call) noexcept {
  if (call.header.lists.num_segments != 0)
    call.chunk_bytes = chunk_bytes_of(call.header.lists, link_.options);
  if (turn.open() && !turn.waits && has_room(call)) [[likely]] {
    start(call);
    return;
  }
  if (!turn.open())
    ++link_.counters.waits_turn;
  call.state = CallState::kWaitingTurn;
  wait_turn_.push(call);
  turn.waits = true;
  note_held_up();
}

void Responder::start(Incoming& call) noexcept {
  chunk_bytes_ += call.chunk_bytes;
  turn.charge(Turn::kCallCost);
  if (call.header.lists.num_reads == 0) [[likely]] {
    deliver(call);
    return;
  }
  turn.charge(call.header.lists.read_length);
  fetch(call);
}

void Responder::start_waiting() noexcept {
  while (!wait_turn_.empty() && turn.open() && has_room(*wait_turn_.front())) {
    held_up_ = nullptr;
    start(wait_turn_.pop());
  }
  turn.waits = !wait_turn_.empty();
  note_held_up();
}

void Responder::note_held_up() noexcept {
  const Incoming* first = wait_turn_.front();
  if (first == nullptr || first == held_up_ || has_room(*first))
    return;
  held_up_ = first;
  ++(link_.borrower.exceeded() ? link_.counters.waits_share : link_.counters.waits_chunk_bytes);
}

}  // namespace rrdk::xprt
