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

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/count.h"
#include "fabric/device.h"
#include "fabric/work.h"
#include "proto/header.h"
#include "proto/negotiation.h"
#include "rrdk/call_status.h"
#include "rrdk/connection.h"
#include "rrdk/counters.h"
#include "rrdk/extensions.h"
#include "rrdk/memory.h"
#include "rrdk/xdr.h"
#include "xprt/credits.h"
#include "xprt/options.h"
#include "xprt/send_queue.h"
#include "xprt/stage_log_datapath.h"

namespace rrdk::xprt {

class CallPool;     // xprt/served_call.h: one per poll core
struct ServedCall;  // a call that the peer made
class Requester;    // xprt/requester.h

// A count for each reason.
struct Refusals {
  std::array<base::Count, kRefusals> counts;

  base::Count& operator[](Refusal reason) noexcept { return counts[static_cast<size_t>(reason)]; }
  const base::Count& operator[](Refusal reason) const noexcept {
    return counts[static_cast<size_t>(reason)];
  }
};

// What a connection counts. The connection's core writes it.
struct Counters {
#define RRDK_CONNECTION_COUNTER(id, enumerator, name, text) base::Count name;
#include "rrdk/counter_table.h"
  Refusals refusals;

  uint64_t breaches() const noexcept;
  void add_to(Stats& sum) const noexcept;
};

class Connection;

constexpr uint32_t kMaxResultRooms = 16;  // of one call: its Write chunks

// Room that the requester offers for one DDP-eligible result: one Write chunk. One span is one
// segment.
struct ResultRoom {
  std::span<const MemorySpan> spans;
};

// A message of a registered type that takes the place of an RPC call: its OutgoingCall has no
// message of its own.
struct Optional {
  // In, until the call has ended. The payload's XID is filled in.
  uint32_t type = 0;
  std::span<const std::byte> info = {};
  std::span<const std::byte> payload = {};
  // For a copy of the answer, so that nobody changes what was checked: kMostOptionInfo +
  // kMostOptionPayload bytes.
  std::span<std::byte> room = {};

  // Out, with kOk.
  uint32_t answer_type = 0;
  std::span<const std::byte> answer_info = {};
  std::span<const std::byte> answer_payload = {};
};

// One call that we make. The upper layer's object, reused from call to call; it belongs to the
// engine from submit() to Upcalls::on_call_ended.
struct OutgoingCall {
  // In. The RPC call message; its first word (the XID) is filled in by submit().
  Message message;
  std::span<const ResultRoom> results;  // for the reply's eligible results, in stream order
  uint64_t max_reply = 1024;            // bound of the reply stream without the placed results
  uint64_t deadline_ns = 0;             // on on_tick's clock; 0: none
  bool force_long = false;              // send as RDMA_NOMSG though it would fit (V1-LONG-14)
  bool only_short = false;              // never as RDMA_NOMSG: the binding forbids it (EXP-33)
  bool no_ddp = false;                  // no item in a chunk of its own (SEC-04); no `results`
  // Send under the XID of its last submit(). This engine has as many credits as the one of that
  // submit() and continues its XIDs (continue_xids()). Calls that are sent again are submitted
  // before all others.
  bool resend = false;
  // Running it twice does no harm: it is sent again when the peer names the room that its reply
  // needs.
  bool repeatable = false;
  Optional* option = nullptr;
  void* user = nullptr;
  // When the upper layer was asked to submit the call, if earlier than the engine's submit(); 0: at
  // the engine's submit().
  uint64_t submitted_ticks = 0;

  // A call that is given up ends at once, although the peer may still use its memory, if the engine
  // can keep all of that memory: the buffers of `message`, and those of `results`, where rooms[k]
  // is the buffer of the one span of results[k]. Memory of the caller's own is left to the peer
  // only if `released` is set: the engine then takes `released` over and calls it once, when the
  // peer is done with the memory. If `released` is still set when the call ends, nothing is left to
  // the peer.
  std::array<Buffer, kMaxResultRooms> rooms;
  void (*released)(void* argument) = nullptr;
  void* released_argument = nullptr;

  // Out, valid until release(): how it ended, whether the peer may have seen it, and with kOk the
  // reduced reply and what was placed. The message is as it was before submit(), but for its XID.
  CallStatus status = CallStatus::kOk;
  bool sent = false;
  std::span<const Fragment> reply;
  std::span<const ItemView> placed;
  // With kChunkError, kVersionError and kRemoteError: what the peer said.
  proto::ErrorBody error = {};
  uint32_t error_version = 0;

  // Null: it is not sampled. Whoever is told of the call's end completes it, or the destructor.
  StageRecord* stages = nullptr;

  // The engine's own part (its header buffer, keys, reply buffers, list links).
  struct State;
  std::unique_ptr<State> state;

  OutgoingCall();
  ~OutgoingCall();
  // Returns the reply's buffers and those of the message. submit() ends the reply too, and keeps
  // one buffer for the next.
  void release();
};

// Why the engine ends the connection. Unlike an Ending it can be made on the data path.
struct EndReason {
  EndedBy by = EndedBy::kNobody;
  std::optional<Refusal> refusal = {};
  Errc code = Errc::kConnectionLost;
  const char* text = "";  // outlives the engine, or is part of it
};

constexpr EndReason kCallDropped = {
    EndedBy::kProgram, {}, Errc::kShutdown, "one of its calls was dropped"};

class Upcalls {
 public:
  virtual void on_call(ServedCall& call) = 0;          // a whole call is here
  virtual void on_call_ended(OutgoingCall& call) = 0;  // exactly once per submit()

  // Responder: the peer did not allow an RDMA Read or Write by which the call of this XID was to be
  // served, or we could not do it. The connection is lost by that.
  virtual void on_access_failed(uint32_t /*xid*/) {}
  // Responder: whether that happened to a call of this XID on an earlier connection of the peer.
  // It is then answered ERR_CHUNK at once (V1-ERR-19). Asked for calls with chunks only.
  virtual bool failed_before(uint32_t /*xid*/) { return false; }
  // Responder: its client has said that it takes backward calls with chunks, as we make them.
  virtual void on_chunks_taken() {}
  // Whether our Receives, so many, may become that large: they take other buffers then.
  virtual bool may_grow(uint32_t /*bytes*/, uint32_t /*receives*/) { return true; }
  // Requester with Speaks::kAuto: the peer does not know version 2; 1 is spoken from now on.
  virtual void on_version_refused() {}

 protected:
  ~Upcalls() = default;
};

// Posts past the list of work requests, for requests that are complete once they are posted.
class Sender {
 public:
  // As fabric::QueuePair's. The implementation calls post_send() later, with nothing if need be:
  // that wakes a peer that sleeps.
  virtual bool send_now(std::span<const MemorySpan> spans, uint32_t invalidate_key) noexcept = 0;
  virtual bool bind_now(uint32_t key, const MemorySpan& span, fabric::Rights rights) noexcept = 0;
  virtual bool read_now(const MemorySpan& to, uint32_t key, uint64_t remote_address) noexcept = 0;
  // Posts what is in the list, as far as the queue takes it, before something that takes long.
  // Connection::on_posted() is not called from here but later, and once more if it is running now.
  virtual void post_listed() noexcept = 0;

 protected:
  ~Sender() = default;
};

// What the ends have agreed on so far, and how much of it is in use, of forward calls.
struct Agreed {
  uint32_t version = 0;                      // a responder's: of the last call; 0: there was none
  uint32_t send_size = 0, receive_size = 0;  // inline, of that version; 0: not established yet
  uint32_t credits = 0;                      // of the last grant
  uint32_t in_progress = 0;                  // calls
};

class Connection {
 public:
  // `keys` is the queue pair; `pool` is shared by the connections of one poll core and outlives
  // them. Takes buffers from `memory` only.
  Connection(const SharedOptions& options, const PerConnection& own, Memory& memory, CallPool& pool,
             fabric::RemoteKeys& keys, Upcalls& upcalls);
  ~Connection();  // only when idle()
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Null, as at first: there is none.
  void set_sender(Sender* sender) noexcept;

  // What to put into the connect request or accept.
  proto::PrivateData private_data() const;
  // Before connecting or accepting: fills receives(). False: not enough buffers; give up.
  bool prepare_receives();
  // Requester: the XID that each slot used last, and, before on_established(), to go on from those
  // of an earlier connection: a responder may know calls by their XIDs beyond a connection's end.
  std::vector<uint32_t> last_xids() const;
  void continue_xids(std::span<const uint32_t> last);

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
  void on_tick(uint64_t now_ns);  // deadlines, and whoever waits for buffers; about every ms

  // A responder's share of its core (credits.h). It starts calls while this and its client's last,
  // and the others wait. Whoever never refills it has no limit.
  Allowance<kQuantum>& allowance() noexcept { return turn_.allowance; }
  void start_waiting();  // now that there is allowance
  // Calls wait for nothing but allowance.
  bool backlogged() const noexcept { return turn_.waits && wants_turn(); }

  // The upper layer's requests.
  void submit(OutgoingCall& call);  // always ends in on_call_ended, possibly before it returns
  // For calls that take the lane (calls/plain_calls.h).
  Requester& requester() noexcept { return requester_; }
  // A lane has gone, or come.
  void forget_plain_limit() noexcept;
  void cancel(OutgoingCall& call);  // ends it with kCancelled unless it has ended (requester.cc)
  void reply(ServedCall& call);     // sends call.reply(); on a lost connection just ends the call
  // Answers that the binding does not allow the chunks of this call, or its being long.
  void refuse(ServedCall& call, uint32_t max_reads, uint32_t max_writes);
  // Ends it unanswered; the connection ends too (V1-ERR-20).
  void drop(ServedCall& call, const EndReason& why = kCallDropped);

  // Plain calls of version 1 that are served where they lie, by the user of the fabric's lane
  // (service/plain_calls.h). The credits that each reply grants; 0: calls must come the general
  // way, since something waits, or is not settled. It holds until something else is asked of us.
  uint32_t plain_credits() const;
  // Whether that is still so behind a handler, which may have answered other calls or have decided
  // that the connection ends.
  bool plain_goes_on(uint32_t credits) const;
  bool may_have_plain() const;         // its options allow plain calls
  uint32_t receive_bytes() const;      // of each Receive: longer messages are a breach
  uint32_t plain_turn() const;         // how many calls its turn allows
  uint32_t asked() const;              // credits, by the last call that came
  void begin_plain(ServedCall& call);  // a record for such calls
  void end_plain(ServedCall& call);    // gives back what the record has
  void count_plain(uint32_t calls);    // that were answered
  // It has not been answered there: the engine has it from now on, until reply() or drop().
  void adopt_plain(ServedCall& call);
  // Responder: further calls are left unanswered, and when the last reply's Send has completed
  // wants_disconnect() is true.
  void drain();
  // The peer has done what ends the connection, as the upper layer sees it; the first reason
  // counts. `text` is a literal.
  void end(Refusal reason, const char* text);
  // The owner disconnects: nothing more is sent.
  void fail();

  // Work requests out: to be posted in order, then taken off the front; receives() before sends(),
  // since a reply may promise the Receive. send_wrs is never exceeded. In any function above.
  WorkList<fabric::SendWr>& sends() { return sends_; }
  WorkList<fabric::ReceiveWr>& receives() { return receives_; }
  // Of shared Receives this connection has all that it was promised, in messages that wait: the
  // fabric is to hold back further ones.
  bool holds_back() const noexcept { return holds_back_; }
  // What sends() has is about to be posted.
  void before_posting() noexcept { unposted_.stamp(); }
  // The fabric holds messages back, and one has `begun` to arrive; false: that is over.
  void count_begun(bool begun) noexcept;
  // The owner is to disconnect.
  bool wants_disconnect() const;
  // Why, if it is the engine that ends the connection: the peer broke the rules, or the upper layer
  // dropped a call or drained. Else nothing has ended it, or only the fabric can say what did.
  Ending ending() const;

  bool established() const;
  bool work_in_flight() const;  // work requests have not been reported yet
  bool idle() const;            // dead, nothing posted, no call above: may be destroyed
  bool busy() const;            // calls in flight or waiters: needs on_tick
  // busy(): on_tick() has nothing to do before that time, unless something else happens first; 0:
  // it may have any time.
  uint64_t quiet_until() const;
  const Counters& counters() const;
  void count_ended(EndedBy by);
  void count_refusal(Refusal reason);  // of the upper layer, beside our own
  uint32_t calls() const;              // responder: calls that have not ended
  bool has_parked() const;             // and messages that wait for a call object, uncounted
  bool sends_pending() const;          // work requests of the send queue that were not yet reported
  uint32_t sends_done() const;         // counts up whenever one of them is; wraps
  uint32_t granted() const;            // responder: the last grant
  uint32_t most_granted() const;       // what it could be, at most, until now
  // Transport properties of draft-04 (version2/properties.h). Sizes in bytes; version 2's default
  // until an end has announced another.
  bool request_receive_size(uint32_t bytes);  // of the peer's Receives
  bool receive_size_requested() const;        // and not answered yet
  bool raise_receives(uint32_t bytes);
  uint32_t announced_receive_size() const;
  uint32_t peer_receive_size() const;
  // Responder: whether the client can be called now: it has shown which version it speaks
  // (BIDIR-12), and has not said that it takes no calls. Calls that are submitted before wait; to a
  // client that has said so they end with kRemoteError.
  bool may_call_back() const;
  // Requester: the version of its calls, and whether the peer has answered in it.
  uint32_t version() const;
  bool version_settled() const;
  Agreed agreed() const;
  // Brings what on_completions() will touch into the caches.
  void prefetch() const noexcept;

  uint32_t window() const;     // requester: how many calls may be in flight now
  uint32_t in_flight() const;  // requester: Sends without reply
  bool may_send() const;       // requester: a call submitted now would not queue
  // Responder: grants fewer, as it does by itself while Receives are scarce (RFC 5666 section 3.3).
  // At most options.credits.
  void set_granted_credits(uint32_t credits);

  // RFC 5666's Connection Configuration Protocol (rfc5666/config.cc). What a requester states, and
  // what becomes of the answer. What a responder answers: only what is stated before all other
  // calls has an effect, so it counts the calls of that program.
  proto::ccp::Request config_request() const;
  void take_config(const proto::ccp::Reply& reply);
  void count_config_call();
  proto::ccp::Reply configure(const proto::ccp::Request& request);

  struct Impl;

 private:
  bool wants_turn() const noexcept;

  std::unique_ptr<Impl> impl_;
  Turn& turn_;  // of the Impl, like these
  Requester& requester_;
  WorkList<fabric::SendWr>& sends_;
  WorkList<fabric::ReceiveWr>& receives_;
  const bool& holds_back_;
  Unposted& unposted_;
};

}  // namespace rrdk::xprt
