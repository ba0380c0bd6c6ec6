// Messages of registered types at the responder: checked, served and answered at once, on the spot.
// Each counts as a call until then, against the grant too (V2D0-OPT-06).
#include <algorithm>
#include <array>
#include <cstring>

#include "proto/codec.h"
#include "rrdk/xdr.h"
#include "xprt/optional.h"
#include "xprt/properties.h"
#include "xprt/responder.h"

namespace rrdk::xprt {

using proto::ErrorCode;
using Why = OptionError::Why;

namespace {

// What serve() sets, kept until it is sent.
class Answer final : public OptionAnswer {
 public:
  Answer(const Link& link, uint32_t asked, uint32_t largest)
      : link_(link), asked_(asked), largest_(largest) {}

  bool set(uint32_t type, std::span<const std::byte> info,
           std::span<const std::byte> payload) override {
    const OptionType* known = option_type(link_, type);
    if (known == nullptr || !link_.options.extensions->together(asked_, type) ||
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
  const Link& link_;
  const uint32_t asked_;
  const uint32_t largest_;
  bool is_set_ = false;
  uint32_t type_ = 0;
  size_t info_length_ = 0, payload_length_ = 0;
  std::array<std::byte, kMostOptionInfo> info_;
  std::array<std::byte, kMostOptionPayload> payload_;
};

// A request's bytes, out of reach of whoever may come to the copy that its header was read from
// while it is served.
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

void Responder::refuse_option(Incoming& call, const OptionType& type, Why why, Refusal reason,
                              ErrorCode code) noexcept {
  ++link_.counters.refused_header;
  link_.refused(reason);
  tell(link_, type, why);
  answer_error(call, code);
}

// A whole message of type RDMA2_OPTIONAL that is a request (draft-04 sections 4.1 and 6.2.4).
void Responder::take_option(Incoming& call, std::span<const std::byte> message,
                            uint32_t header_length) noexcept {
  const proto::OptionBody& body = call.header.option;
  const OptionType* type = option_type(link_, body.type);
  if (type == nullptr)
    return refuse_type(call);
  // A client serves none: Requester ignores them. But over shm a call in a Receive may have become
  // one since that looked.
  if (type->serve == nullptr || link_.options.role == Role::kRequester)
    return refuse_option(call, *type, Why::kDirection, Refusal::kOptionDirection,
                         ErrorCode::kBadHeader);
  if (link_.both_ways())
    link_.follow(call.header.wire);
  std::span<const std::byte> info = message.subspan(body.offset, body.length);
  std::span<const std::byte> payload = message.subspan(header_length);
  const OptionFault* fault = fault_of(*type, false, info, payload);
  if (fault != nullptr && fault->why == Why::kTooLong)
    return refuse_option(call, *type, fault->why, fault->reason, ErrorCode::kSystem);
  if (fault != nullptr || !has_xid(payload, call.header.xid))
    return refuse_option(call, *type, Why::kMalformed, Refusal::kBadOption, ErrorCode::kBadHeader);
  turn.charge(Turn::kCallCost);
  serve_option(call, *type, info, payload);
}

void Responder::serve_option(Incoming& call, const OptionType& type,
                             std::span<const std::byte> info,
                             std::span<const std::byte> payload) noexcept {
  Kept kept_info(info), kept_payload(payload);
  Answer answer(link_, type.type, send_threshold(call));
  type.serve({type.type, kept_info.bytes(), kept_payload.bytes(), link_.options.peer}, answer,
             type.context);
  auto room =
      static_cast<uint32_t>(kOptionHeaderRoom + answer.info().size() + answer.payload().size());
  Buffer buffer = answer.is_set() ? link_.memory.get(room) : Buffer();
  if (!buffer)
    return refuse_option(call, type, Why::kNoAnswer, Refusal::kOptionNotServed, ErrorCode::kSystem);
  proto::Header& header = call.header;
  header.direction = proto::Direction::kReply;
  header.option.type = answer.type();
  header.credits = grant.on_answer(link_.receives_for_calls());
  uint32_t length = proto::encode_option(header, answer.info(), {buffer.data(), room});
  if (!answer.payload().empty()) {
    std::ranges::copy(answer.payload(), buffer.data() + length);
    xdr::store_u32(buffer.data() + length, header.xid);
    length += static_cast<uint32_t>(answer.payload().size());
  }
  call.plan.sges[0] = buffer.first(length);
  call.plan.num_sges = 1;
  call.plan.header = std::move(buffer);
  ++link_.counters.options_served;
  bool in_draft04 = header.wire == proto::Wire::kDraft04;
  post(call);
  if (in_draft04)
    link_.properties->announce();
}

}  // namespace rrdk::xprt
