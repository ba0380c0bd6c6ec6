// The responder half: calls in, replies out.
#pragma once

#include <cstdint>
#include <span>

#include "proto/header.h"
#include "xprt/credits.h"
#include "xprt/incoming_call.h"
#include "xprt/link.h"
#include "xprt/turn.h"

namespace rrdk::xprt {

// Calls that wait, in the order in which they came. Linked through Incoming::next.
class CallQueue {
 public:
  bool empty() const noexcept { return first_ == nullptr; }
  Incoming* front() const noexcept { return first_; }  // null: none
  void push(Incoming& call) noexcept {
    call.next = nullptr;
    if (first_ == nullptr)
      first_ = &call;
    else
      last_->next = &call;
    last_ = &call;
  }
  Incoming& pop() noexcept {
    Incoming& call = *first_;
    first_ = call.next;
    return call;
  }
  void clear() noexcept { first_ = nullptr; }

 private:
  Incoming* first_ = nullptr;
  Incoming* last_ = nullptr;
};

class Responder {
 public:
  explicit Responder(Link& link) : grant(link.options.credits), link_(link) {}

  // Events. None of them leaves work undone that could be done: see pump().
  void on_receive(ReceiveSlot& slot, uint32_t length) noexcept;
  void on_read_completed(Incoming& call) noexcept;
  void on_reply_completed(Incoming& call) noexcept;
  void on_dead() noexcept;
  // Refuses calls that have waited too long for buffers.
  void on_tick(uint64_t now_ns) noexcept;
  // Whoever waits for a turn, a buffer, a call object or an RDMA Read tries again. Sends are the
  // connection's to pump.
  void pump() noexcept;

  void reply(Incoming& call) noexcept;
  void refuse(Incoming& call, uint32_t max_reads, uint32_t max_writes) noexcept;
  void drop(Incoming& call) noexcept;
  // Posts what it can of the call's Writes and Send. False: the send queue is full.
  bool emit(Incoming& call) noexcept;

  uint32_t calls() const noexcept { return calls_; }
  bool waiting() const noexcept {
    return turn.waits || !wait_buffers_.empty() || !wait_reads_.empty() || !wait_room_.empty() ||
           link_.receives.parked() != nullptr || link_.receives.has_bare();
  }

  // Whether more allowance would start a call that waits.
  bool backlogged() const noexcept {
    return !wait_turn_.empty() && has_room(*wait_turn_.front()) && link_.up();
  }

  uint32_t send_threshold(const Incoming& call) const noexcept {
    return link_.thresholds(call.header.wire).send;
  }
  uint64_t max_reply() const noexcept { return link_.options.max_reply; }
  Connection& connection() const noexcept { return link_.connection; }

  Grant grant;
  Turn turn;

 private:
  enum class Plan : uint8_t { kReady, kNoRoom, kWait };

  // responder_datapath.cc: the life of a call
  bool take(ReceiveSlot& slot, uint32_t length) noexcept;
  void refuse_message(ReceiveSlot& slot, Refusal reason) noexcept;
  bool ignore(const proto::Header& header, proto::Verdict verdict, ReceiveSlot& slot) noexcept;
  void admit(Incoming& call) noexcept;
  void accept(Incoming& call, ReceiveSlot& slot, uint32_t header_length, uint32_t length) noexcept;
  void refuse(Incoming& call, proto::Verdict verdict) noexcept;
  void refuse_type(Incoming& call) noexcept;
  void answer_error(Incoming& call, const proto::ErrorBody& error) noexcept;
  void answer_error(Incoming& call, proto::ErrorCode code) noexcept;
  void deliver(Incoming& call) noexcept;
  void refuse_overdue(CallQueue& queue, uint64_t now_ns) noexcept;
  void answer(Incoming& call, Plan plan, const proto::ErrorBody& error) noexcept;
  void post(Incoming& call) noexcept;
  static void release_sinks(Incoming& call) noexcept;
  static void release_memory(Incoming& call) noexcept;
  void finish(Incoming& call) noexcept;

  // start_datapath.cc
  void begin(Incoming& call) noexcept;
  void start(Incoming& call) noexcept;
  void start_waiting() noexcept;
  void note_held_up() noexcept;
  bool has_room(const Incoming& call) const noexcept {
    return chunk_bytes_ + call.chunk_bytes <= link_.options.max_chunk_bytes;
  }

  // read_chunks_datapath.cc
  bool fits_sinks(const Incoming& call) const noexcept;
  void fetch(Incoming& call) noexcept;
  bool take_sinks(Incoming& call) noexcept;
  void start_reads(Incoming& call) noexcept;
  bool post_read(Incoming& call) noexcept;
  void pump_reads() noexcept;
  void on_fetched(Incoming& call) noexcept;

  // reply_plan_datapath.cc
  uint32_t key_to_invalidate(const proto::Header& call) noexcept;
  // kNoRoom: `error` says what is missing.
  Plan plan_reply(Incoming& call, proto::ErrorBody& error) noexcept;

  Link& link_;
  uint32_t calls_ = 0;        // of this connection, in any state
  uint64_t chunk_bytes_ = 0;  // of those that were started
  Incoming* newest_ = nullptr;
  const Incoming* held_up_ = nullptr;  // the front of wait_turn_, if max_chunk_bytes holds it up
  CallQueue wait_turn_;
  CallQueue wait_buffers_;
  CallQueue wait_reads_;
  CallQueue wait_room_;
};

// assemble_datapath.cc: puts the chunks back in their places: fills `message`.
void assemble(Incoming& call) noexcept;

}  // namespace rrdk::xprt
