#include "engine/version2/optional.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/assert.h"
#include "engine/common.h"
#include "engine/requester.h"
#include "engine/responder.h"
#include "engine/version2/properties.h"
#include "proto/codec.h"
#include "rrdk/xdr.h"

namespace rrdk::engine {

using proto::ErrorCode;
using Why = OptionError::Why;

namespace {

// What serve() sets, kept until it is sent.
class Answer final : public OptionAnswer {
 public:
  Answer(const Common& common, uint32_t asked, uint32_t largest)
      : common_(common), asked_(asked), largest_(largest) {}

  bool set(uint32_t type, std::span<const std::byte> info,
           std::span<const std::byte> payload) override {
    const OptionType* known = option_type(common_, type);
    if (known == nullptr || !common_.options.extensions->together(asked_, type) ||
        fault_of(*known, true, info, payload) != nullptr ||
        kOptionHeaderRoom + info.size() + payload.size() > largest_)
      return false;
    std::ranges::copy(info, info_.begin());
    std::ranges::copy(payload, payload_.begin());
    info_length_ = info.size();
    payload_length_ = payload.size();
    type_ = type;
    is_set_ = true;
    return true;
  }

  bool is_set() const noexcept { return is_set_; }
  uint32_t type() const noexcept { return type_; }
  std::span<const std::byte> info() const noexcept { return {info_.data(), info_length_}; }
  std::span<const std::byte> payload() const noexcept { return {payload_.data(), payload_length_}; }

 private:
  const Common& common_;
  const uint32_t asked_;
  const uint32_t largest_;
  bool is_set_ = false;
  uint32_t type_ = 0;
  size_t info_length_ = 0, payload_length_ = 0;
  std::array<std::byte, kMostOptionInfo> info_;
  std::array<std::byte, kMostOptionPayload> payload_;
};

// A copy of a request's bytes for the time that it is served: the Receive with its header may be
// used again meanwhile.
class Kept {
 public:
  explicit Kept(std::span<const std::byte> bytes) : length_(bytes.size()) {
    std::ranges::copy(bytes, bytes_.begin());
  }
  std::span<const std::byte> bytes() const noexcept { return {bytes_.data(), length_}; }

 private:
  std::array<std::byte, std::max(kMostOptionInfo, kMostOptionPayload)> bytes_;
  size_t length_;
};

}  // namespace

const OptionFault* fault_of(const OptionType& type, bool is_answer, std::span<const std::byte> info,
                            std::span<const std::byte> payload) noexcept {
  constexpr size_t kMessageStart = 8;  // XID and msg_type
  static constexpr OptionFault kLongInfo = {Why::kTooLong, Refusal::kLongOption,
                                            "its data has more than kMostOptionInfo bytes"};
  static constexpr OptionFault kLongPayload = {
      Why::kTooLong, Refusal::kLongOption, "its payload has more than kMostOptionPayload bytes"};
  static constexpr OptionFault kPayload = {Why::kMalformed, Refusal::kBadOption,
                                           "the type has no payload"};
  static constexpr OptionFault kNoPayload = {
      Why::kMalformed, Refusal::kBadOption,
      "the type has a payload, an RPC message of its direction"};
  static constexpr OptionFault kInfo = {Why::kMalformed, Refusal::kBadOption,
                                        "the type's check() refuses its data"};
  if (info.size() > kMostOptionInfo)
    return &kLongInfo;
  if (payload.size() > kMostOptionPayload)
    return &kLongPayload;
  if (type.payload == OptionPayload::kNone && !payload.empty())
    return &kPayload;
  bool wants_message = type.payload == OptionPayload::kMessage;
  if (wants_message &&
      (payload.size() < kMessageStart || xdr::load_u32(payload.data() + 4) != uint32_t{is_answer}))
    return &kNoPayload;
  return type.check(info, is_answer, type.context) ? nullptr : &kInfo;
}

bool has_xid(std::span<const std::byte> payload, uint32_t xid) noexcept {
  return payload.empty() || xdr::load_u32(payload.data()) == xid;
}

// The requester: a message is sent in place of a call, and ends as a call does.

// Direction CALL, an XID and a request for credits as in every call (draft-04 section 6.2.2).
Requester::Plan Requester::plan_option(OutgoingCall& call) noexcept {
  const Optional& option = *call.option;
  if (common_.wire == proto::Wire::kVersion1)
    return Plan::kNoOptions;
  const OptionType* type = option_type(common_, option.type);
  if (type == nullptr || fault_of(*type, false, option.info, option.payload) != nullptr)
    return Plan::kTooLarge;
  auto room = static_cast<uint32_t>(kOptionHeaderRoom + option.info.size() + option.payload.size());
  if (!call.take_chunks())
    return Plan::kNoMemory;
  call.way = CallWay::kPlanned;
  SendPlan& plan = call.chunks->plan;
  plan.header = common_.memory.get(room);
  if (!plan.header)
    return Plan::kWait;
  std::byte* out = plan.header.data();
  proto::Header& header = common_.pool.scratch();
  header.xid = call.xid;
  header.wire = common_.wire;
  header.direction = proto::Direction::kCall;
  header.credits = asked;
  header.option.type = option.type;
  uint32_t length = proto::encode_option(header, option.info, {out, room});
  if (!option.payload.empty()) {
    std::memcpy(out + length, option.payload.data(), option.payload.size());
    xdr::store_u32(out + length, call.xid);
    length += static_cast<uint32_t>(option.payload.size());
  }
  RRDK_ASSERT(length <= room, length, room);
  if (length > common_.calls.send)
    return Plan::kTooLarge;
  plan.sges[0] = plan.header.first(length);
  plan.num_sges = 1;
  call.num_offers = 0;
  call.num_results = 0;
  call.reply_first = 0;
  slots_[call.slot].inline_reply = common_.calls.receive;
  ++common_.counters.options_sent;
  return Plan::kReady;
}

// Returns the slot that the message answers: that of a request, or of one that was given up, whose
// credit the answer returns. If null, `reason` says why.
Requester::Slot* Requester::slot_of_option(const proto::Header& header, Refusal& reason) noexcept {
  const OptionType* type = option_type(common_, header.option.type);
  bool is_answer = header.direction == proto::Direction::kReply;
  Slot* slot = is_answer ? match(header.xid) : nullptr;
  if (slot != nullptr && (slot->call != nullptr ? slot->call->option != nullptr : type != nullptr))
    return slot;
  reason = Refusal::kUnknownOption;
  if (type != nullptr) {
    reason = is_answer ? Refusal::kUnsolicitedOption : Refusal::kOptionDirection;
    tell(common_, *type, is_answer ? Why::kUnsolicited : Why::kDirection);
  }
  return nullptr;
}

CallStatus Requester::bad_option(const OutgoingCall& call, Refusal reason) noexcept {
  if (const OptionType* asked_for = option_type(common_, call.option->type))
    tell(common_, *asked_for, Why::kBadAnswer);
  return malformed(reason);
}

// Takes the answer over as a copy: the Receive is posted again.
CallStatus Requester::read_option(OutgoingCall& call, const proto::Header& header,
                                  std::span<const std::byte> message,
                                  uint32_t header_length) noexcept {
  ++common_.counters.replies_received;
  Optional& option = *call.option;
  if (header.type != proto::MessageType::kOptional)
    return bad_option(call, Refusal::kNotTheReply);
  const OptionType* type = option_type(common_, header.option.type);
  if (type == nullptr || !common_.options.extensions->together(option.type, header.option.type))
    return bad_option(call, Refusal::kUnknownOption);
  std::span<const std::byte> info = message.subspan(header.option.offset, header.option.length);
  std::span<const std::byte> payload = message.subspan(header_length);
  if (const OptionFault* fault = fault_of(*type, true, info, payload))
    return bad_option(call, fault->reason);
  if (!has_xid(payload, call.xid))
    return bad_option(call, Refusal::kBadOption);
  std::ranges::copy(info, option.room.begin());
  std::ranges::copy(payload, option.room.begin() + kMostOptionInfo);
  option.answer_type = header.option.type;
  option.answer_info = option.room.first(info.size());
  option.answer_payload = option.room.subspan(kMostOptionInfo, payload.size());
  return CallStatus::kOk;
}

void Requester::tell_refused(const OutgoingCall& call) noexcept {
  const OptionType* type = option_type(common_, call.option->type);
  const proto::ErrorBody& error = call.error;
  bool unknown = error.code == ErrorCode::kBadOption || error.code == ErrorCode::kBadProc ||
                 error.code == ErrorCode::kVersion;
  if (type != nullptr)
    tell(common_, *type, unknown ? Why::kUnsupported : Why::kRefused, error.raw);
}

// Ends the request whose XID the message has, whatever the message is.
CallStatus Requester::end_option(OutgoingCall& call, const proto::Header& header,
                                 const proto::Decoded& decoded,
                                 std::span<const std::byte> message) noexcept {
  CallStatus status = CallStatus::kMalformedReply;
  if (decoded.verdict != proto::Verdict::kOk) {
    status = bad_option(call, refusal_of(decoded.verdict));
  } else if (header.type == proto::MessageType::kError) {
    status = read_error(call, header);
    tell_refused(call);
  } else if (header.wire != call.wire) {
    status = bad_option(call, Refusal::kBadVersion);
  } else {
    status = read_option(call, header, message, decoded.header_length);
  }
  return status;
}

// The responder: a request is checked, served and answered at once. Until then it counts as a call,
// also against the grant (V2D0-OPT-06).

void Responder::refuse_option(ServedCall& call, const OptionType& type, Why why, Refusal reason,
                              ErrorCode code) noexcept {
  common_.refused(reason);
  tell(common_, type, why);
  answer_error(call, code);
}

// A complete message of type RDMA2_OPTIONAL that is a request (draft-04 sections 4.1 and 6.2.4).
void Responder::take_option(ServedCall& call, std::span<const std::byte> message,
                            uint32_t header_length) noexcept {
  const proto::OptionBody& body = call.part->header.option;
  const OptionType* type = option_type(common_, body.type);
  if (type == nullptr)
    return refuse_type(call);
  // A client serves none: Requester ignores them. But over shm the peer can turn a call in a
  // Receive into a request after the Requester has looked at it.
  if (type->serve == nullptr || common_.options.role == Role::kRequester)
    return refuse_option(call, *type, Why::kDirection, Refusal::kOptionDirection,
                         ErrorCode::kBadHeader);
  common_.follow(call.wire);
  std::span<const std::byte> info = message.subspan(body.offset, body.length);
  std::span<const std::byte> payload = message.subspan(header_length);
  const OptionFault* fault = fault_of(*type, false, info, payload);
  if (fault != nullptr && fault->why == Why::kTooLong)
    return refuse_option(call, *type, fault->why, fault->reason, ErrorCode::kSystem);
  if (fault != nullptr || !has_xid(payload, call.xid))
    return refuse_option(call, *type, Why::kMalformed, Refusal::kBadOption, ErrorCode::kBadHeader);
  turn.charge(kCallCost);
  serve_option(call, *type, info, payload);
}

void Responder::serve_option(ServedCall& call, const OptionType& type,
                             std::span<const std::byte> info,
                             std::span<const std::byte> payload) noexcept {
  Kept kept_info(info), kept_payload(payload);
  Answer answer(common_, type.type, send_threshold(call));
  type.serve({type.type, kept_info.bytes(), kept_payload.bytes(), common_.known_as}, answer,
             type.context);
  auto room =
      static_cast<uint32_t>(kOptionHeaderRoom + answer.info().size() + answer.payload().size());
  Buffer buffer = answer.is_set() ? common_.memory.get(room) : Buffer();
  if (!buffer)
    return refuse_option(call, type, Why::kNoAnswer, Refusal::kOptionNotServed, ErrorCode::kSystem);
  proto::Header& header = call.part->header;
  header.direction = proto::Direction::kReply;
  header.option.type = answer.type();
  header.credits = grant_credits();
  uint32_t length = proto::encode_option(header, answer.info(), {buffer.data(), room});
  if (!answer.payload().empty()) {
    std::ranges::copy(answer.payload(), buffer.data() + length);
    xdr::store_u32(buffer.data() + length, header.xid);
    length += static_cast<uint32_t>(answer.payload().size());
  }
  RRDK_ASSERT(length <= room, length, room);
  SendPlan& plan = call.part->plan;
  plan.sges[0] = buffer.first(length);
  plan.num_sges = 1;
  plan.header = std::move(buffer);
  ++common_.counters.options_served;
  bool in_draft04 = header.wire == proto::Wire::kDraft04;
  post(call);
  if (in_draft04)
    common_.properties->announce();
}

}  // namespace rrdk::engine
