#include "rpc/reply_datapath.h"

#include <cstring>

#include "rpc/call_datapath.h"

namespace rrdk::rpc {

namespace {

// What follows the XID of a reply that carries results and no verifier.
constexpr auto kSuccess =
    words(MsgType::kReply, ReplyStat::kAccepted, AuthFlavor::kNone, 0, AcceptStat::kSuccess);
constexpr uint32_t kSuccessBytes = 4 + kSuccess.size();

bool decode_plain_success(Decoder& in, ReplyHeader& header) noexcept {
  const std::byte* p = in.peek_run(kSuccessBytes);
  if (p == nullptr || std::memcmp(p + 4, kSuccess.data(), kSuccess.size()) != 0)
    return false;
  header = {};
  header.xid = xdr::load_u32(p);
  in.skip_run(kSuccessBytes);
  return true;
}

void decode_mismatch(Decoder& in, ReplyHeader& header) noexcept {
  header.mismatch_low = in.get_u32();
  header.mismatch_high = in.get_u32();
}

bool decode_accepted(Decoder& in, ReplyHeader& header) noexcept {
  header.verifier.flavor = static_cast<AuthFlavor>(in.get_u32());
  header.verifier.body = in.get_opaque(kMaxAuthBody);
  header.accept_stat = static_cast<AcceptStat>(in.get_u32());
  if (header.accept_stat > AcceptStat::kSystemErr)
    return false;
  if (header.accept_stat == AcceptStat::kProgMismatch)
    decode_mismatch(in, header);
  return in.ok();
}

bool decode_denied(Decoder& in, ReplyHeader& header) noexcept {
  header.reject_stat = static_cast<RejectStat>(in.get_u32());
  switch (header.reject_stat) {
    case RejectStat::kRpcMismatch:
      decode_mismatch(in, header);
      return in.ok();
    case RejectStat::kAuthError:
      header.auth_stat = static_cast<AuthStat>(in.get_u32());
      return in.ok();
  }
  return false;
}

}  // namespace

bool decode_reply(Decoder& in, ReplyHeader& header) noexcept {
  if (decode_plain_success(in, header)) [[likely]]
    return true;
  header = {};
  header.xid = in.get_u32();
  MsgType type = static_cast<MsgType>(in.get_u32());
  header.reply_stat = static_cast<ReplyStat>(in.get_u32());
  if (!in.ok() || type != MsgType::kReply)
    return false;
  switch (header.reply_stat) {
    case ReplyStat::kAccepted:
      return decode_accepted(in, header);
    case ReplyStat::kDenied:
      return decode_denied(in, header);
  }
  return false;
}

CallStatus call_status(const ReplyHeader& header) noexcept {
  if (header.reply_stat == ReplyStat::kDenied)
    return header.reject_stat == RejectStat::kRpcMismatch ? CallStatus::kRpcMismatch
                                                          : CallStatus::kAuthError;
  switch (header.accept_stat) {
    case AcceptStat::kSuccess:
      return CallStatus::kOk;
    case AcceptStat::kProgUnavail:
      return CallStatus::kProgUnavail;
    case AcceptStat::kProgMismatch:
      return CallStatus::kProgMismatch;
    case AcceptStat::kProcUnavail:
      return CallStatus::kProcUnavail;
    case AcceptStat::kGarbageArgs:
      return CallStatus::kGarbageArgs;
    case AcceptStat::kSystemErr:
      return CallStatus::kSystemErr;
  }
  return CallStatus::kMalformedReply;
}

void encode_success(Encoder& out, uint32_t xid) noexcept {
  if (std::byte* p = out.put_run(kSuccessBytes); p != nullptr) [[likely]] {
    xdr::store_u32(p, xid);
    std::memcpy(p + 4, kSuccess.data(), kSuccess.size());
    return;
  }
  out.put_u32(xid);
  out.put_fixed(kSuccess);
}

void encode_accepted(Encoder& out, uint32_t xid, AcceptStat status, uint32_t low,
                     uint32_t high) noexcept {
  out.put_u32(xid);
  out.put_fixed(std::span(kSuccess).first(kSuccess.size() - 4));
  out.put_u32(static_cast<uint32_t>(status));
  if (status == AcceptStat::kProgMismatch) {
    out.put_u32(low);
    out.put_u32(high);
  }
}

void encode_rpc_mismatch(Encoder& out, uint32_t xid) noexcept {
  out.put_u32(xid);
  out.put_fixed(words(MsgType::kReply, ReplyStat::kDenied, RejectStat::kRpcMismatch, kRpcVersion,
                      kRpcVersion));
}

void encode_auth_error(Encoder& out, uint32_t xid, AuthStat reason) noexcept {
  out.put_u32(xid);
  out.put_fixed(words(MsgType::kReply, ReplyStat::kDenied, RejectStat::kAuthError, reason));
}

bool encode_refusal(Encoder& out, uint32_t xid, CallVerdict verdict) noexcept {
  switch (verdict) {
    case CallVerdict::kOk:
    case CallVerdict::kNotACall:
      return false;
    case CallVerdict::kRpcMismatch:
      encode_rpc_mismatch(out, xid);
      return true;
    case CallVerdict::kGarbage:
      encode_accepted(out, xid, AcceptStat::kGarbageArgs);
      return true;
    case CallVerdict::kBadCredential:
      encode_auth_error(out, xid, AuthStat::kBadCred);
      return true;
    case CallVerdict::kBadVerifier:
      encode_auth_error(out, xid, AuthStat::kBadVerf);
      return true;
  }
  return false;
}

}  // namespace rrdk::rpc
