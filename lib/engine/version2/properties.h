// Transport properties of draft-04 (section 5), one end's half: what it announces, what it has
// received from the peer, what it asks for and answers.
//
// Property messages take no credits. Each end has Receives for them beyond those that back its
// grants (kPropertyReceives in engine/common.h), and at most one message of each kind below is in
// flight (V2D4-POP-29).
//
// A Receive Buffer Size increases only when no smaller Receive is posted any more, and decreases
// only when the peer asks for it (section 5.2.1). Calls that were sent without a Reply chunk rely
// on the old size, and a request for a smaller size can cross them on the wire. So the request is
// rejected while a reply to such a call may be larger. Until the answer comes, the end that asked
// holds back replies that are larger than what it asked for.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "base/prefetch_datapath.h"
#include "engine/send_queue.h"
#include "proto/properties.h"
#include "rrdk/extensions.h"
#include "rrdk/memory.h"

namespace rrdk::engine {

struct Common;
class Requester;
class Responder;

// The two properties of draft-04 section 5.2, as values: what is known about an end, initially the
// defaults for an end that says nothing.
struct PropertyValues {
  uint32_t receive_size = proto::kInlineThreshold2;
  proto::BackwardSupport backward = proto::BackwardSupport::kInline;
};

// What a set says about them. If there are several entries, the last one counts (V2D4-PROP-15).
struct PropertyChange {
  std::optional<uint32_t> receive_size;
  std::optional<proto::BackwardSupport> backward;
  uint32_t size_index = 0;  // of the entry
  uint32_t backward_index = 0;
};

// Reads the known properties of a set; others are skipped. Returns false if one has invalid data
// (V2D4-PROP-09, V2D4-PROP-13), which makes the whole set faulty.
bool read_change(const proto::PropertySet& set, PropertyChange& change) noexcept;

class Properties {
 public:
  // A message of ours, from when it is written until its Send has completed.
  struct Outgoing {
    Job job;
    MemorySpan room;
    uint32_t length = 0;
    bool busy = false;
  };

  Properties(Common& common, Requester& requester, Responder& responder) noexcept;

  // Called when draft-04 is spoken and the peer has sent something in it: announces our properties,
  // once (V2D4-NEG-08).
  void announce() noexcept {
    if (!announced_) [[unlikely]]
      announce_all(0);
  }
  // Handles one of the four types, at the end that it is for.
  void on_message(const proto::Header& header, std::span<const std::byte> message) noexcept;
  // Handles an error that answers no call. Returns false if it does not answer a message of ours
  // either.
  bool on_error(const proto::Header& header) noexcept;

  // Asks the peer for Receives of that size. Returns false if the peer has not said that its size
  // may change, has not answered the last request, or does not know requests.
  bool request(uint32_t receive_size) noexcept;
  bool requested() const noexcept { return request_waits_; }
  // Posts larger Receives from now on; the peer is told when no others are left. Returns false if
  // they are not larger, or larger than ConnectionOptions::max_receive_size.
  bool raise(uint32_t receive_size) noexcept;

  // Whether a Send of that many bytes only has to wait for the answer to request().
  bool may_fit(uint64_t bytes) const noexcept {
    return request_waits_ && bytes <= std::min(peer_.receive_size, largest_);
  }

  // Brings what every call reads into the caches.
  void prefetch() const noexcept { base::prefetch_lines(this, &room_); }
  const PropertyValues& peer() const noexcept { return peer_; }
  uint32_t receive_size() const noexcept { return size_; }  // as the peer knows it

  bool emit(Outgoing& message) noexcept;  // false: the send queue is full
  void on_sent(Outgoing& message) noexcept { message.busy = !message.job.settled(); }
  bool waiting() const noexcept;
  void pump() noexcept;
  void on_tick(uint64_t now_ns) noexcept;
  void on_dead() noexcept {
    if (request_waits_)
      end_request(true);
  }

 private:
  proto::BackwardSupport own_backward_support() const noexcept;
  bool take_room() noexcept;
  Outgoing* idle(std::span<Outgoing> kind) noexcept;  // null: none is free, or there is no memory
  void announce_all(uint32_t xid) noexcept;
  void announce_size() noexcept;
  uint32_t next_xid() noexcept;
  void send(Outgoing& message, proto::PropertyMessage content) noexcept;
  void post(Outgoing& message, uint32_t length) noexcept;
  void refuse(const proto::Header& header, proto::ErrorCode code) noexcept;
  void on_connprop(const proto::Header& header, const PropertyChange& change,
                   const proto::PropertyBody& body) noexcept;
  void on_updprop(const PropertyChange& change) noexcept;
  void on_reqprop(const proto::Header& header, const proto::PropertyBody& body) noexcept;
  void on_resprop(const proto::Header& header, const PropertyChange& change,
                  const proto::PropertyBody& body) noexcept;
  bool grant(uint32_t wanted) noexcept;
  void end_request(bool refused) noexcept;
  void give_up_on_peer() noexcept;
  // extensions.cc, the next four: properties that are registered (rrdk/extensions.h)
  std::span<const TransportProperty> registered() const noexcept;
  uint32_t add_registered(std::span<proto::Property> set, uint32_t count) const noexcept;
  bool are_values(const proto::PropertySet& set) const noexcept;
  void hear_registered(const proto::PropertySet& set, const proto::PropertySubset* stays) noexcept;
  void set_peer_size(uint32_t size) noexcept;
  void apply() noexcept;

  Common& common_;
  // Read by every call.
  bool announced_;        // or they are switched off
  bool delayed_ = false;  // CONNPROP waits for a buffer
  bool request_waits_ = false;
  bool request_late_ = false;                    // it ended without an answer
  bool peer_said_ = false;                       // in CONNPROP
  bool peer_size_moves_ = false;                 // it was in CONNPROP, and not in rdma_nochg
  bool peer_refuses_ = false;                    // it does not know property messages
  uint32_t size_ = proto::kInlineThreshold2;     // of our Receives, as the peer knows it
  uint32_t largest_ = proto::kInlineThreshold2;  // of our Sends
  PropertyValues peer_;
  uint32_t moving_ = 0;  // registered properties that the peer may change; a bit mask
  uint32_t counter_ = 0;
  uint32_t announcement_xid_ = 0;
  uint32_t request_xid_ = 0;
  uint32_t wanted_ = 0;
  uint64_t waits_since_ns_ = 0;
  Requester& requester_;
  Responder& responder_;
  Buffer room_;  // for the three kinds of messages
  Outgoing announcement_;
  // One of each kind is in flight at a time, but the peer may have reacted before its Send is
  // reported.
  static constexpr uint32_t kOfAKind = 4;
  std::array<Outgoing, kOfAKind> requests_, answers_;
};

}  // namespace rrdk::engine
