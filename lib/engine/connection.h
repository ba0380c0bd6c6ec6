// The connection engine: RPC-over-RDMA versions 1 and 2, requester and responder halves, for one
// connection. Sans-I/O: events go in, work requests come out; it owns no thread, socket or clock.
//
// Calls go forward, from the end that connected to the one that accepted, and, where both ends
// allow it, backward (RFC 8167): credits and XIDs of either direction are apart, Receives are
// shared.
//
// Everything here belongs to one thread, the poll core's. Upcalls are made from within the event
// functions; an upcall may submit, reply and cancel, and never destroys the Connection.
//
//                    on_established, on_completions, on_disconnected, on_tick
//     runtime  ---------------------------------------------------------------->  Connection
//              <----------------------------------------------------------------
//                    sends() and receives() to post;  Upcalls: call arrived, call ended
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

// What the ends have agreed on so far, and how much of it is in use, of forward calls.
struct Agreed {
  uint32_t version = 0;                      // a responder's: of the last call; 0: there was none
  uint32_t send_size = 0, receive_size = 0;  // inline, of that version; 0: not established yet
  uint32_t credits = 0;                      // of the last grant
  uint32_t in_progress = 0;                  // calls
};

class alignas(64) Connection {
 public:
  // `keys` is the queue pair; `pool` is shared by the connections of one poll core and outlives
  // them. Takes buffers from `memory` only.
  Connection(const SharedOptions& options, const PerConnection& own, Memory& memory, CallPool& pool,
             fabric::RemoteKeys& keys, Upcalls& upcalls);
  ~Connection();  // only when idle()
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Once established: where the engine posts past sends() what is complete once it is posted; the
  // queue pair, or its tap. Null, as at first: nowhere.
  void set_port(fabric::QueuePair* port) noexcept {
    common_.port = common_.up() ? port : nullptr;
    common_.plain_limit = 0;
  }

  // What to put into the connect request or accept.
  proto::PrivateData private_data() const;
  // Before connecting or accepting: fills receives(). False: not enough buffers; give up.
  bool prepare_receives();

  // Events in.
  void on_established(const proto::PrivateData& peer, uint32_t reads_allowed);
  void on_completions(std::span<const fabric::Completion> completions);  // of this connection only
  // From any state, also a failed connect: the queue pair is in error and no access by the peer is
  // in progress. Everything that waits ends with kConnectionLost. What was posted must still be
  // reported by on_completions(), and what is still in sends() and receives() be posted (it is
  // flushed): calls end when nothing of theirs is posted any more. Replies that are reported after
  // this come too late: call it when work_in_flight() is false.
  void on_disconnected();
  // What was taken off sends() has been posted: calls whose Sends were copied may end, and those
  // that waited for them have something to be posted.
  void on_posted();
  void on_tick(uint64_t now_ns);  // deadlines, and calls that wait for buffers; about every ms
  void start_waiting();           // calls that wait for a turn: now there is allowance

  // The two halves, and the transport properties of draft-04, for what each of them tells and does
  // by itself.
  Responder& responder() noexcept { return responder_; }
  const Responder& responder() const noexcept { return responder_; }
  Requester& requester() noexcept { return requester_; }
  const Requester& requester() const noexcept { return requester_; }
  Properties& properties() noexcept { return properties_; }
  const Properties& properties() const noexcept { return properties_; }

  // The upper layer's requests.
  void submit(OutgoingCall& call) {  // always ends in on_call_ended, possibly before it returns
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
  void reply(ServedCall& call) {  // sends call.reply(); on a lost connection just ends the call
    RRDK_ON_CORE(common_.pool);
    RRDK_ASSERT(call.state == CallState::kAbove, call.state);
    responder_.reply(call);
    common_.plain_limit = 0;
  }
  // Answers that the binding does not allow the chunks of this call, or its being long.
  void refuse(ServedCall& call, uint32_t max_reads, uint32_t max_writes) {
    RRDK_ON_CORE(common_.pool);
    RRDK_ASSERT(call.state == CallState::kAbove, call.state);
    responder_.refuse(call, max_reads, max_writes);
    common_.plain_limit = 0;
  }
  // Ends it unanswered; the connection ends too (V1-ERR-20).
  void drop(ServedCall& call, const EndReason& why = kCallDropped);
  // Responder: further calls are left unanswered, and when the last reply's Send has completed
  // wants_disconnect() is true.
  void drain();
  // The peer has done what ends the connection, as the upper layer sees it; the first reason
  // counts. `text` is a literal.
  void end(Refusal reason, const char* text) { common_.end(reason, text); }
  // The owner disconnects: nothing more is sent.
  void fail() noexcept;
  // It has ended because the peer refused a Write in the lane, behind which a reply of this XID
  // was.
  void on_write_refused(uint32_t xid) noexcept;
  // It wants to disconnect because it has drained.
  bool has_drained() const noexcept;
  const ConnectionOptions& options() const noexcept { return common_.options; }

  // Work requests out: to be posted in order, then taken off the front; receives() before sends(),
  // since a reply may promise the Receive. send_wrs is never exceeded. In any function above.
  WorkList<fabric::SendWr>& sends() noexcept { return common_.sends.list(); }
  WorkList<fabric::ReceiveWr>& receives() noexcept { return common_.receives.list(); }
  // Post them, as far as they fit. False: something is left.
  bool post_receives(fabric::QueuePair& queue_pair) noexcept {
    return common_.receives.post(queue_pair);
  }
  bool post_sends(fabric::QueuePair& queue_pair) noexcept { return common_.sends.post(queue_pair); }
  // Whether something was posted past sends() since it was last asked: on_posted() is to be called,
  // and post_send(), with nothing if need be, which wakes a peer that sleeps.
  bool take_sent_now() noexcept { return std::exchange(common_.sent_now, false); }
  void note_sent_now() noexcept { common_.sent_now = true; }
  // Of shared Receives this connection has all that it was promised, in messages that wait: the
  // fabric is to hold back further ones.
  bool holds_back() const noexcept { return common_.share.full(); }
  // What sends() has is about to be posted.
  void before_posting() noexcept { common_.unposted.stamp(); }
  // The fabric holds messages back, and one has `begun` to arrive; false: that is over.
  void count_begun(bool begun) noexcept;
  // The owner is to disconnect.
  bool wants_disconnect() const noexcept {
    return common_.phase == Phase::kEnding || common_.phase == Phase::kFailing;
  }
  // Why, if it is the engine that ends the connection: the peer broke the rules, or the upper layer
  // dropped a call or drained. Else nothing has ended it, or only the fabric can say what did.
  Ending ending() const;

  // Whether its options allow plain calls, by the driver's lane.
  bool may_have_plain() const noexcept {
    return !common_.options.rfc5666.enabled && common_.options.limits.versions.one;
  }
  bool established() const noexcept { return common_.up(); }
  // Work requests have not been reported yet: any, or of the send queue.
  bool work_in_flight() const noexcept {
    return common_.own_receives_posted() != 0 || sends_pending();
  }
  bool sends_pending() const noexcept { return !common_.sends.drained(); }
  // Counts up whenever one of the send queue is reported; wraps.
  uint32_t sends_done() const noexcept { return common_.sends.done(); }
  bool idle() const noexcept;  // dead, nothing posted, no call above: may be destroyed
  bool busy() const noexcept;  // calls in flight or waiters: needs on_tick
  // busy(): on_tick() has nothing to do before that time, unless something else happens first; 0:
  // it may have any time.
  uint64_t quiet_until() const noexcept;
  const Counters& counters() const noexcept { return common_.counters; }
  void count_ended(EndedBy by);
  void count_refusal(Refusal reason) {  // of the upper layer, beside our own
    RRDK_ON_CORE(common_.pool);
    common_.refused(reason);
  }
  // Messages wait for a call object, and are not counted as calls.
  bool has_parked() const noexcept { return common_.share.parked() != nullptr; }
  // Asks for Receives of that size at the peer (version2/properties.h).
  bool request_receive_size(uint32_t bytes);
  // Responder: whether the client can be called now: it has shown which version it speaks
  // (BIDIR-12), and has not said that it takes no calls. Calls that are submitted before wait; to a
  // client that has said so they end with kRemoteError.
  bool may_call_back() const noexcept;
  // Requester: the version of its calls, and whether the peer has answered in it.
  uint32_t version() const noexcept { return proto::version_of(common_.wire); }
  bool version_settled() const noexcept { return common_.settled; }
  Agreed agreed() const;
  // Brings what on_completions() will touch into the caches.
  void prefetch() const noexcept;

  // RFC 5666's Connection Configuration Protocol (rfc5666/config.cc). What a requester states, and
  // what becomes of the answer. What a responder answers: only what is stated before all other
  // calls has an effect, so it counts the calls of that program.
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
  bool write_failed_ = false;  // the reply that it belongs to is reported next
};

}  // namespace rrdk::engine
