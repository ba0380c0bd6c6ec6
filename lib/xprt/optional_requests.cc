// Messages of registered types at the requester: one is sent in a call's place, and ends as one.
#include <algorithm>
#include <cstring>

#include "proto/codec.h"
#include "rrdk/xdr.h"
#include "xprt/optional.h"
#include "xprt/refusals.h"
#include "xprt/requester.h"

namespace rrdk::xprt {

using proto::ErrorCode;
using Why = OptionError::Why;

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

// Direction CALL, an XID and a request for credits as every call has them (draft-04 section 6.2.2).
Requester::Plan Requester::plan_option(State& call) noexcept {
  const Optional& option = *call.call->option;
  if (link_.wire == proto::Wire::kVersion1)
    return Plan::kNoOptions;
  const OptionType* type = option_type(link_, option.type);
  if (type == nullptr || fault_of(*type, false, option.info, option.payload) != nullptr)
    return Plan::kTooLarge;
  auto room = static_cast<uint32_t>(kOptionHeaderRoom + option.info.size() + option.payload.size());
  SendPlan& plan = call.plan;
  plan.header = link_.memory.get(room);
  if (!plan.header)
    return Plan::kWait;
  std::byte* out = plan.header.data();
  proto::Header& header = link_.pool.scratch();
  header.xid = call.xid;
  header.wire = link_.wire;
  header.direction = proto::Direction::kCall;
  header.credits = asked;
  header.option.type = option.type;
  uint32_t length = proto::encode_option(header, option.info, {out, room});
  if (!option.payload.empty()) {
    std::memcpy(out + length, option.payload.data(), option.payload.size());
    xdr::store_u32(out + length, call.xid);
    length += static_cast<uint32_t>(option.payload.size());
  }
  if (length > link_.calls.send)
    return Plan::kTooLarge;
  plan.sges[0] = plan.header.first(length);
  plan.num_sges = 1;
  call.num_offers = 0;
  call.num_results = 0;
  call.reply_first = 0;
  call.inline_reply = link_.calls.receive;
  ++link_.counters.options_sent;
  return Plan::kReady;
}

// The slot that it answers: one of a request, or one that was given up on, whose credit it gives
// back. None: `reason` says why.
Requester::Slot* Requester::slot_of_option(const proto::Header& header, Refusal& reason) noexcept {
  const OptionType* type = option_type(link_, header.option.type);
  bool is_answer = header.direction == proto::Direction::kReply;
  Slot* slot = is_answer ? match(header.xid) : nullptr;
  if (slot != nullptr &&
      (slot->call != nullptr ? slot->call->call->option != nullptr : type != nullptr))
    return slot;
  reason = Refusal::kUnknownOption;
  if (type != nullptr) {
    reason = is_answer ? Refusal::kUnsolicitedOption : Refusal::kOptionDirection;
    tell(link_, *type, is_answer ? Why::kUnsolicited : Why::kDirection);
  }
  return nullptr;
}

CallStatus Requester::bad_option(const State& call, Refusal reason) noexcept {
  if (const OptionType* asked_for = option_type(link_, call.call->option->type))
    tell(link_, *asked_for, Why::kBadAnswer);
  return malformed(reason);
}

// Taken over as a copy: the Receive is posted again.
CallStatus Requester::read_option(State& call, const proto::Header& header,
                                  std::span<const std::byte> message,
                                  uint32_t header_length) noexcept {
  ++link_.counters.replies_received;
  Optional& option = *call.call->option;
  if (header.type != proto::MessageType::kOptional)
    return bad_option(call, Refusal::kNotTheReply);
  const OptionType* type = option_type(link_, header.option.type);
  if (type == nullptr || !link_.options.extensions->together(option.type, header.option.type))
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

void Requester::tell_refused(const State& call) noexcept {
  const OptionType* type = option_type(link_, call.call->option->type);
  const proto::ErrorBody& error = call.call->error;
  bool unknown = error.code == ErrorCode::kBadOption || error.code == ErrorCode::kBadProc ||
                 error.code == ErrorCode::kVersion;
  if (type != nullptr)
    tell(link_, *type, unknown ? Why::kUnsupported : Why::kRefused, error.raw);
}

// What came under the XID of a request, whatever it is.
CallStatus Requester::end_option(State& call, const proto::Header& header,
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
  link_.counters.malformed_replies += status == CallStatus::kMalformedReply;
  return status;
}

}  // namespace rrdk::xprt
