// The connection engine implements RPC-over-RDMA versions 1 and 2, requester and responder halves,
// for one connection. It is sans-I/O: events go in and work requests come out. It owns no thread,
// socket or clock.
//
// Forward calls go from the end that connected to the end that accepted. Where both ends allow it,
// backward calls go the other way (RFC 8167). Each direction has its own credits and XIDs; both
// share the Receives.
//
// All functions must be called on one thread, that of the poll core. Upcalls are made from within
// the event functions. An upcall may submit, reply and cancel, but must not destroy the Connection.
//
//                    on_established, on_completions, on_disconnected, on_tick
//     runtime  ---------------------------------------------------------------->  Connection
//              <----------------------------------------------------------------
//                    sends() and receives() to post;  Upcalls: call arrived, call ended
//
// How a call from the peer lives (responder.h; its record is a ServedCall, and its states are in
// CallState):
//
//     1. Its Receive completes: on_completions() -> dispatch() -> on_receive(). The requester takes
//        the message if it answers a call of ours; otherwise Responder::on_receive() takes it.
//     2. Responder::take() decodes the transport header and gets a ServedCall from the core's
//        CallPool. A bad header is answered with an RPC-over-RDMA error (call_errors_datapath.cc).
//        If no ServedCall is available, the message stays in its Receive, "parked", until one is.
//     3. accept() starts the call, or queues it (kWaitingTurn) if its connection or its client has
//        used up its allowance on the core (credits.h), or if calls in progress have too many
//        bytes in chunks. Its Receive is posted again before the reply (return_receive()) or, if
//        the handler keeps the call, with a fresh buffer when the handler returns
//        (refill_receive()), so that a posted Receive backs every credit granted.
//     4. If the call has Read chunks, fetch() gets buffers (kWaitingBuffers) and reads them from
//        the peer (kReading), and assemble() puts the chunks in their places
//        (read_chunks_datapath.cc).
//     5. deliver() passes the whole call to Upcalls::on_call() (kAbove). The upper layer answers it
//        now or later with reply(), or ends it with drop().
//     6. plan_reply() decides which results are written to the peer's Write chunks and whether the
//        rest goes inline or into the Reply chunk (reply_plan_datapath.cc). The reply grants
//        credits (grant_credits()). emit() appends the Writes and the Send to sends(), or the
//        fabric sends a short reply at once (kReplying).
//     7. When the Send has completed, on_reply_completed() -> finish() returns the buffers and the
//        record.
//
// How a call of ours lives (requester.h; its record is an OutgoingCall, and its states are in
// CallStage):
//
//     1. submit() queues the call (kQueued), or starts it at once if there are credits, Receives,
//        keys and buffers for it.
//     2. take_slot() gives it a slot. The XID contains the slot's number, so a reply is matched by
//        an array access.
//     3. plan_call() decides what moves in chunks, offers memory to the peer under remote keys, and
//        writes the header (call_plan_datapath.cc). emit_call() appends the Binds and the Send to
//        sends() (kInFlight).
//     4. The reply's Receive completes: Requester::on_receive() matches it, checks what it says
//        about each chunk (reply_datapath.cc) and takes the granted credits.
//     5. conclude() sets the call's status. Keys that the peer has not invalidated are invalidated
//        first (kRevoking), so that the peer cannot access the memory after the call has ended.
//     6. advance() ends the call when its Send and the invalidations have completed:
//        Upcalls::on_call_ended(), exactly once per submit(). A call that is cancelled or timed
//        out, or that loses its connection, ends in the same place; requester.cc says how its
//        memory is lent to the peer meanwhile.
//
// Plain calls of version 1 can bypass steps 1 to 4 through the driver's lane (fabric/lane.h,
// service/plain_calls.h and calls/plain_calls.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/assert.h"
#include "engine/common.h"
#include "engine/options.h"
#include "engine/outgoing_call.h"
#include "engine/requester.h"
#include "engine/responder.h"
#include "engine/rfc5666/read_read.h"
#include "engine/served_call.h"
#include "engine/upcalls.h"
#include "engine/version2/properties.h"
#include "fabric/device.h"
#include "fabric/work.h"
#include "proto/negotiation.h"
#include "rrdk/connection.h"
#include "rrdk/memory.h"

namespace rrdk::engine {

// What the ends have agreed on so far, and how much is in use, for forward calls.
struct Agreed {
  uint32_t version = 0;  // responder: that of the last call; 0: there was no call
  uint32_t send_size = 0, receive_size = 0;  // inline, in that version; 0: not established yet
  uint32_t credits = 0;                      // in the last grant
  uint32_t in_progress = 0;                  // calls
};

class alignas(64) Connection {
 public:
  // `keys` is the queue pair. `pool` is shared by the connections of one poll core and must outlive
  // them. All buffers are taken from `memory`.
  Connection(const SharedOptions& options, const PerConnection& own, Memory& memory, CallPool& pool,
             fabric::RemoteKeys& keys, Upcalls& upcalls);
  ~Connection();  // must be idle()
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Sets the queue pair (or its tap) to which the engine may post directly, past sends(), whatever
  // is complete once it is posted. Takes effect only once established; null, the initial value,
  // disables it.
  void set_port(fabric::QueuePair* port) noexcept {
    common_.port = common_.up() ? port : nullptr;
    common_.plain_limit = 0;
  }

  // Returns the private data for the connect request or the accept.
  proto::PrivateData private_data() const;
  // Fills receives(). Must be called before connecting or accepting. Returns false if there are not
  // enough buffers; the connection must then be given up.
  bool prepare_receives();

  // Events in.
  void on_established(const proto::PrivateData& peer, uint32_t reads_allowed);
  void on_completions(std::span<const fabric::Completion> completions);  // of this connection only
  // Called in any state, also after a failed connect, once the queue pair is in error and no access
  // by the peer is in progress. Everything that waits ends with kConnectionLost. Work requests that
  // were posted must still be reported by on_completions(), and those still in sends() and
  // receives() must be posted (they are flushed): a call ends when none of its requests is posted
  // any more. Replies that are reported after this come too late, so call it when work_in_flight()
  // is false.
  void on_disconnected();
  // Called when what was taken off sends() has been posted. Calls whose Sends were copied may end,
  // and calls that waited for them have something to post.
  void on_posted();
  // Checks deadlines and retries calls that wait for buffers; about every ms.
  void on_tick(uint64_t now_ns);
  void start_waiting();  // starts calls that wait for a turn, now that there is allowance

  // The two halves, and the transport properties of draft-04, for what callers may ask each
  // directly.
  Responder& responder() noexcept { return responder_; }
  const Responder& responder() const noexcept { return responder_; }
  Requester& requester() noexcept { return requester_; }
  const Requester& requester() const noexcept { return requester_; }
  Properties& properties() noexcept { return properties_; }
  const Properties& properties() const noexcept { return properties_; }

  // Requests of the upper layer.
  void submit(OutgoingCall& call) {  // always ends in on_call_ended(), possibly before it returns
    RRDK_ON_CORE(common_.pool);
    RRDK_ASSERT(call.stage == CallStage::kIdle, call.stage);
    requester_.submit(call);
    common_.plain_limit = 0;
  }
  void cancel(OutgoingCall& call) {  // ends it with kCancelled unless it has ended (requester.cc)
    RRDK_ON_CORE(common_.pool);
    requester_.cancel(call);
    common_.plain_limit = 0;
  }
  void reply(ServedCall& call) {  // sends call.reply(); on a lost connection it just ends the call
    RRDK_ON_CORE(common_.pool);
    RRDK_ASSERT(call.state == CallState::kAbove, call.state);
    responder_.reply(call);
    common_.plain_limit = 0;
  }
  // Answers that the binding does not allow this call's chunks, or does not allow it to be long.
  void refuse(ServedCall& call, uint32_t max_reads, uint32_t max_writes) {
    RRDK_ON_CORE(common_.pool);
    RRDK_ASSERT(call.state == CallState::kAbove, call.state);
    responder_.refuse(call, max_reads, max_writes);
    common_.plain_limit = 0;
  }
  // Ends the call without an answer; the connection ends too (V1-ERR-20).
  void drop(ServedCall& call, const EndReason& why = kCallDropped);
  // Ends the call without an answer; the connection goes on. For a call that must look as if it had
  // never come (RFC 2203 section 5.3.3.1). The credit that its client used for it is lost to it.
  void leave_unanswered(ServedCall& call);
  // Responder: leaves further calls unanswered. wants_disconnect() becomes true when the last
  // reply's Send has completed.
  void drain();
  // Ends the connection because the upper layer found the peer at fault. The first reason counts.
  // `text` must be a literal.
  void end(Refusal reason, const char* text) { common_.end(reason, text); }
  // Called when the owner disconnects: nothing more is sent.
  void fail() noexcept;
  // Called when the connection has ended because the peer refused a Write in the lane, and a reply
  // with this XID was behind that Write.
  void on_write_refused(uint32_t xid) noexcept;
  // Returns true if the engine wants to disconnect because it has drained.
  bool has_drained() const noexcept;
  const ConnectionOptions& options() const noexcept { return common_.options; }

  // Work requests out. They must be posted in order and then taken off the front, receives() before
  // sends(), since a reply may promise the Receive. There are never more than send_wrs. Any
  // function above may add some.
  WorkList<fabric::SendWr>& sends() noexcept { return common_.sends.list(); }
  WorkList<fabric::ReceiveWr>& receives() noexcept { return common_.receives.list(); }
  // Post them as far as they fit. Return false if something is left.
  bool post_receives(fabric::QueuePair& queue_pair) noexcept {
    return common_.receives.post(queue_pair);
  }
  bool post_sends(fabric::QueuePair& queue_pair) noexcept { return common_.sends.post(queue_pair); }
  // Returns whether something was posted past sends() since the last call. The owner must then call
  // on_posted(), and post_send(), if need be with nothing, to wake a peer that sleeps.
  bool take_sent_now() noexcept { return std::exchange(common_.sent_now, false); }
  void note_sent_now() noexcept { common_.sent_now = true; }
  // True if messages of this connection wait in all the shared Receives that it was promised. The
  // fabric must then hold back further ones.
  bool holds_back() const noexcept { return common_.share.full(); }
  // Called when the contents of sends() are about to be posted.
  void before_posting() noexcept { common_.unposted.stamp(); }
  // Called while the fabric holds messages back: `begun` is true if one has begun to arrive, and
  // false when that is over.
  void count_begun(bool begun) noexcept;
  // True if the owner must disconnect.
  bool wants_disconnect() const noexcept {
    return common_.phase == Phase::kEnding || common_.phase == Phase::kFailing;
  }
  // Why the engine ends the connection: the peer broke the rules, or the upper layer dropped a call
  // or drained. Otherwise nothing has ended it, or only the fabric knows the reason.
  Ending ending() const;

  // Whether the options allow plain calls through the driver's lane.
  bool may_have_plain() const noexcept {
    return !common_.options.rfc5666.enabled && common_.options.limits.versions.one;
  }
  bool established() const noexcept { return common_.up(); }
  // Whether work requests have not been reported yet: any at all, or those of the send queue.
  bool work_in_flight() const noexcept {
    return common_.own_receives_posted() != 0 || sends_pending();
  }
  bool sends_pending() const noexcept { return !common_.sends.drained(); }
  // Counts the reported requests of the send queue; wraps.
  uint32_t sends_done() const noexcept { return common_.sends.done(); }
  bool idle() const noexcept;  // dead, nothing posted, no call above: may be destroyed
  bool busy() const noexcept;  // while calls are in flight or wait: needs on_tick()
  // For a busy() connection: on_tick() has nothing to do before this time unless something else
  // happens first. 0: on_tick() may have something to do at any time.
  uint64_t quiet_until() const noexcept;
  const Counters& counters() const noexcept { return common_.counters; }
  void count_ended(EndedBy by);
  void count_refusal(Refusal reason) {  // the upper layer's, besides the engine's
    RRDK_ON_CORE(common_.pool);
    common_.refused(reason);
  }
  // Whether messages wait for a call object. They are not counted as calls.
  bool has_parked() const noexcept { return common_.share.parked() != nullptr; }
  // Asks the peer for Receives of that size (version2/properties.h).
  bool request_receive_size(uint32_t bytes);
  // Responder: whether the client can be called now. It can once it has shown which version it
  // speaks (BIDIR-12), unless it has said that it takes no calls. Calls that are submitted earlier
  // wait; calls to a client that takes none end with kRemoteError.
  bool may_call_back() const noexcept;
  // Requester: the version of its calls, and whether the peer has answered in that version.
  uint32_t version() const noexcept { return proto::version_of(common_.wire); }
  bool version_settled() const noexcept { return common_.settled; }
  Agreed agreed() const;
  // Brings what on_completions() will touch into the caches.
  void prefetch() const noexcept;

  // RFC 5666's Connection Configuration Protocol (rfc5666/config.cc): what a requester states, how
  // it takes the answer, and what a responder answers. A responder heeds only what is stated before
  // all other calls, so it counts the calls of that program.
  proto::ccp::Request config_request() const;
  void take_config(const proto::ccp::Reply& reply);
  void count_config_call() { ++common_.rfc5666.config_calls; }
  proto::ccp::Reply configure(const proto::ccp::Request& request);

 private:
  void begin_rfc5666();  // rfc5666/config.cc

  // connection_datapath.cc
  void foresee(const fabric::Completion& completion) const noexcept;
  void dispatch(const fabric::Completion& completion) noexcept;
  void on_receive(ReceiveSlot& slot, const fabric::Completion& completion) noexcept;
  bool answers_us(const ReceiveSlot& slot, const fabric::Completion& completion) noexcept;
  void on_failure(const fabric::Completion& completion) noexcept;
  void note_access(const fabric::Completion& completion) noexcept;
  void pump() noexcept;
  void pump_sends() noexcept;

  Common common_;
  Responder responder_;
  Requester requester_;
  Properties properties_;
  std::unique_ptr<ReplyExposer> exposer_;  // Common::rfc5666 points to them
  std::unique_ptr<ReplyReader> reader_;
  bool write_failed_ = false;  // the failed reply is reported next
};

}  // namespace rrdk::engine
