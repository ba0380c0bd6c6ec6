// The invariants that are visible on the wire of one connection: credits, XIDs, one answer to each
// call, and lists that come back as they were offered. Independent of the engine's own counting.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "context.h"
#include "keys.h"
#include "proto/header.h"
#include "queue_pair.h"

namespace rrdk::sim {

class Wire {
 public:
  // The state of one call.
  struct Record {
    uint32_t xid = 0;
    uint32_t serial = 0;
    uint64_t deadline_ns = 0;
    uint32_t most_credits = 0;  // that an answer may grant
    bool delivered = false;     // to the responder's engine
    bool above = false;         // to its upper layer
    bool answered = false;      // the reply's Send was posted
    bool replied = false;       // to the requester's engine
    bool ended = false;
    bool given_up = false;  // cancelled, timed out or lost
    bool lent = false;      // and what it offered was left to the responder, until
    uint64_t lent_until_ns = 0;
    bool again = false;  // refused in a way that lets the requester send it again
    bool draft04 = false;
    uint32_t properties = 0;  // messages about them that had come to the responder before it
    bool granted = false;     // the answer carries credits
    bool has_reply_chunk = false;
    std::vector<uint16_t> write_chunks;    // segments of each
    std::vector<proto::Segment> segments;  // of the Write chunks, then of the Reply chunk
    std::vector<std::byte> reply;          // of a few, to be repeated
  };

  Wire(Context& context, std::string name, const proto::Versions& versions,
       uint32_t requester_credits, uint32_t responder_credits, bool scarce)
      : context_(context),
        name_(std::move(name)),
        limits_({.versions = versions}),
        own_(requester_credits),
        configured_(responder_credits),
        scarce_(scarce) {}

  // The requester posts a call. If `waited`, calls were held back by its send queue, so that this
  // one may have been released under an earlier grant. Returns null if the header is wrong.
  Record* on_call_posted(std::span<const std::byte> message, bool waited, KeyTable& keys);
  void on_call_delivered(uint32_t xid, bool knows_draft04);
  // The responder posts an answer, when this many Receives are available for calls.
  void on_reply_posted(std::span<const std::byte> message, uint32_t receives);
  void on_reply_delivered(uint32_t xid, uint32_t credits);
  // All requests of the requester were posted.
  void on_requester_posted() { window_most_ = window_; }
  void on_ended(Record& record, bool given_up);
  void configure(uint32_t credits);

  // A message that an end posts, and that does not answer a call according to awaits().
  About about(std::span<const std::byte> message, bool by_requester);
  // Whether the message is an error that answers a call.
  bool awaits(std::span<const std::byte> message);
  // An error that answers no call; such an error carries no credits.
  void on_properties_delivered(bool to_requester, bool grants, uint32_t credits);

  Record* find(uint32_t xid);
  const std::vector<Record>& records() const { return records_; }
  // Calls that were given up and not answered: each holds a credit.
  uint32_t zombies() const { return zombies_; }
  uint32_t window() const { return window_; }
  uint32_t unanswered() const { return unanswered_; }

 private:
  void check_lists(const Record& record, const proto::Header& header);
  Record* begin(uint32_t xid);
  void take_grant(uint32_t credits);

  Context& context_;
  std::string name_;
  proto::Limits limits_;
  uint32_t own_;
  uint32_t configured_;
  bool scarce_;          // the responder's memory: not all of its Receives may be there
  uint32_t window_ = 1;  // before the first reply (V1-CREDIT-11)
  uint32_t window_most_ = 1;
  uint32_t window_ever_ = 1;
  uint32_t unanswered_ = 0;  // of the requester
  uint32_t in_process_ = 0;  // at the responder
  uint32_t zombies_ = 0;
  uint32_t properties_ = 0;  // messages about them that came to the responder
  bool spares_ = false;      // the responder knows that draft-04 is spoken
  // XIDs of property messages, by their senders; earlier calls may have had the same XIDs.
  std::vector<uint32_t> property_xids_[2];
  bool settled_ = false;  // there was a reply, in the version of the calls
  std::vector<Record> records_;
  proto::Header header_;
};

}  // namespace rrdk::sim
