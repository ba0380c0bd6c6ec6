#include "wire.h"

#include <algorithm>

#include "proto/codec.h"

namespace rrdk::sim {

using proto::MessageType;

namespace {
constexpr size_t kRepeatable = 1024;    // bytes of a reply that may come again
constexpr uint32_t kSpareReceives = 3;  // without a credit, if draft-04 is spoken
}  // namespace

Wire::Record* Wire::find(uint32_t xid) {
  for (size_t i = records_.size(); i-- != 0;) {
    if (records_[i].xid == xid)
      return &records_[i];
  }
  return nullptr;
}

// Null if the XID is used twice, other than because a version was refused.
Wire::Record* Wire::begin(uint32_t xid) {
  Record* known = find(xid);
  if (known == nullptr) {
    known = &records_.emplace_back();
  } else if (known->again && known->replied && !known->ended) {
    *known = {};
  } else {
    context_.fail(name_, "xid %08x is used twice", xid);
    return nullptr;
  }
  known->xid = xid;
  return known;
}

Wire::Record* Wire::on_call_posted(std::span<const std::byte> message, bool waited,
                                   KeyTable& keys) {
  proto::Decoded decoded = proto::decode(message, proto::Direction::kCall, limits_, header_);
  if (decoded.verdict != proto::Verdict::kOk) {
    context_.fail(name_, "a call's header is wrong: %s", to_string(decoded.verdict));
    return nullptr;
  }
  Record* begun = begin(header_.xid);
  if (begun == nullptr)
    return nullptr;
  Record& record = *begun;
  uint32_t window = waited ? window_ever_ : window_most_;
  if (++unanswered_ > std::min(window, own_))
    context_.fail(name_, "xid %08x: %u calls without reply, %u are granted", header_.xid,
                  unanswered_, window);
  record.draft04 = header_.wire == proto::Wire::kDraft04;
  const proto::ChunkLists& lists = header_.lists;
  record.has_reply_chunk = lists.has_reply;
  uint32_t first = lists.num_segments;
  for (uint32_t i = 0; i < lists.num_writes; ++i) {
    record.write_chunks.push_back(lists.writes[i].count);
    first = std::min<uint32_t>(first, lists.writes[i].first);
  }
  if (lists.has_reply)
    first = std::min<uint32_t>(first, lists.reply.first);
  record.segments.assign(lists.segments + first, lists.segments + lists.num_segments);
  for (uint32_t i = 0; i < lists.num_segments; ++i) {
    Key* key = keys.find(lists.segments[i].handle);
    if (key == nullptr || key->called || key->state == Key::State::kReleased) {
      context_.fail(name_, "xid %08x: shows key %08x, which is not its own", record.xid,
                    lists.segments[i].handle);
      continue;
    }
    key->called = true;
    key->xid = record.xid;
  }
  return &record;
}

void Wire::on_call_delivered(uint32_t xid, bool knows_draft04) {
  Record* record = find(xid);
  if (record == nullptr || record->delivered) {
    context_.fail(name_, "xid %08x: arrived twice, or was never sent", xid);
    return;
  }
  record->delivered = true;
  record->properties = properties_;
  spares_ |= record->draft04 && knows_draft04;
  record->most_credits = configured_;
  ++in_process_;
}

void Wire::configure(uint32_t credits) {
  configured_ = std::max(1u, credits);
  for (Record& record : records_)
    record.most_credits = std::max(record.most_credits, configured_);
}

void Wire::on_reply_posted(std::span<const std::byte> message, uint32_t receives) {
  proto::Decoded decoded = proto::decode(message, proto::Direction::kReply, limits_, header_);
  if (decoded.verdict != proto::Verdict::kOk) {
    context_.fail(name_, "a reply's header is wrong: %s", to_string(decoded.verdict));
    return;
  }
  Record* record = find(header_.xid);
  if (record == nullptr || !record->delivered || record->answered) {
    context_.fail(name_, "xid %08x: a reply to no call, or the second one", header_.xid);
    return;
  }
  record->answered = true;
  --in_process_;
  uint32_t grant = header_.credits;
  // Spares that are available; messages that came behind this call may have to wait in theirs.
  uint32_t spares = spares_ && !scarce_ ? kSpareReceives : 0;
  spares -= std::min(spares, properties_ - record->properties);
  receives -= std::min(receives, spares);
  if (grant == 0)
    context_.fail(name_, "xid %08x: no credit is granted", header_.xid);
  if (grant > record->most_credits)
    context_.fail(name_, "xid %08x: %u credits are granted, %u are configured", header_.xid, grant,
                  record->most_credits);
  if (grant > std::max(1u, receives + in_process_))
    context_.fail(name_,
                  "xid %08x: %u credits are granted, with %u Receives and %u calls in process",
                  header_.xid, grant, receives, in_process_);
  if (header_.type == MessageType::kMsg || header_.type == MessageType::kNoMsg)
    check_lists(*record, header_);
  bool is_error = header_.type == MessageType::kError;
  bool is_version_error = is_error && header_.error.code == proto::ErrorCode::kVersion;
  if (is_version_error && header_.version == 1)
    context_.fail(name_, "xid %08x: version 1 is refused", header_.xid);
  // An error that an end of the other draft would also send (V2X-03).
  bool is_foreign = is_error && (header_.error.raw == 2 || header_.error.raw == 3);
  bool was_run = header_.wire == proto::Wire::kDraft00 && header_.error.raw == 2;
  bool in_version_1 = !settled_ && (is_version_error || (is_foreign && !was_run));
  // Within the limits that it is told, the requester tries again (V2D4-ERR-08 to 10).
  bool tells_limit = is_error && (header_.error.code == proto::ErrorCode::kReadChunks ||
                                  header_.error.code == proto::ErrorCode::kWriteChunks);
  record->again = header_.version == 2 && (in_version_1 || tells_limit);
  record->granted = !is_version_error;
  settled_ |= !is_error;
  if (message.size() <= kRepeatable && !record->again)
    record->reply.assign(message.begin(), message.end());
}

// Segments come back as they were offered, the same number, at most shorter.
void Wire::check_lists(const Record& record, const proto::Header& header) {
  const proto::ChunkLists& lists = header.lists;
  if (lists.num_reads != 0)
    context_.fail(name_, "xid %08x: a Read list in a reply", record.xid);
  bool same = lists.num_writes == record.write_chunks.size() &&
              lists.has_reply == record.has_reply_chunk &&
              lists.num_segments == record.segments.size();
  for (uint32_t i = 0; same && i < lists.num_writes; ++i)
    same = lists.writes[i].count == record.write_chunks[i];
  for (uint32_t i = 0; same && i < lists.num_segments; ++i) {
    const proto::Segment& offered = record.segments[i];
    const proto::Segment& returned = lists.segments[i];
    same = returned.handle == offered.handle && returned.offset == offered.offset &&
           returned.length <= offered.length;
  }
  if (!same)
    context_.fail(name_, "xid %08x: a list comes back unlike it was offered", record.xid);
}

void Wire::on_reply_delivered(uint32_t xid, uint32_t credits) {
  Record* record = find(xid);
  if (record == nullptr || record->replied) {
    context_.fail(name_, "xid %08x: a reply came twice, or to no call", xid);
    return;
  }
  record->replied = true;
  --unanswered_;
  zombies_ -= record->ended;
  if (!record->granted)
    return;  // says nothing about credits (V1-CREDIT-21)
  take_grant(credits);
}

void Wire::take_grant(uint32_t credits) {
  window_ = std::clamp(credits, 1u, own_);
  window_most_ = std::max(window_most_, window_);
  window_ever_ = std::max(window_ever_, window_);
}

bool Wire::awaits(std::span<const std::byte> message) {
  const Record* record = find(xdr::load_u32(message.data()));
  return xdr::load_u32(message.data() + 12) == static_cast<uint32_t>(MessageType::kError) &&
         record != nullptr && record->delivered && !record->answered;
}

About Wire::about(std::span<const std::byte> message, bool by_requester) {
  proto::decode(message, by_requester ? proto::Direction::kCall : proto::Direction::kReply, limits_,
                header_);
  About plain = header_.direction == proto::Direction::kReply ? About::kAnswer : About::kCall;
  if (header_.wire != proto::Wire::kDraft04)
    return plain;
  if (header_.type >= MessageType::kConnProp) {
    property_xids_[by_requester].push_back(header_.xid);
    return About::kProperties;
  }
  if (header_.type != MessageType::kError)
    return plain;
  const std::vector<uint32_t>& xids = property_xids_[!by_requester];
  if (std::find(xids.begin(), xids.end(), header_.xid) != xids.end())
    return About::kRefusedProperties;
  if (by_requester)
    context_.fail(name_, "xid %08x: an error from the requester, for nothing that it was sent",
                  header_.xid);
  return plain;
}

void Wire::on_properties_delivered(bool to_requester, bool grants, uint32_t credits) {
  properties_ += !to_requester;
  if (!to_requester)
    spares_ = true;
  else if (grants && credits != 0)
    take_grant(credits);
}

void Wire::on_ended(Record& record, bool given_up) {
  record.ended = true;
  record.given_up |= given_up;
  zombies_ += !record.replied;
}

}  // namespace rrdk::sim
