#include "rpc/headers_datapath.h"

#include <algorithm>
#include <cstring>

#include "rrdk/xdr.h"

namespace rrdk::rpc {

namespace {

// xid, CALL, 2, program, version, procedure, an empty credential, an AUTH_NONE verifier.
constexpr uint32_t kShortestCall = 40;
constexpr auto kCallVersion2 = words(MsgType::kCall, kRpcVersion);
constexpr auto kNoAuth = words(AuthFlavor::kNone, 0);

// Nearly all calls: version 2, any credential, no verifier, in one run.
bool decode_plain(Decoder& in, CallHeader& header) noexcept {
  const std::byte* p = in.peek_run(kShortestCall);
  if (p == nullptr || std::memcmp(p + 4, kCallVersion2.data(), kCallVersion2.size()) != 0)
    return false;
  const uint32_t flavor = xdr::load_u32(p + 24);
  const uint32_t length = xdr::load_u32(p + 28);
  if (length > kMaxAuthBody)
    return false;
  const uint32_t verifier_at = 32 + length + xdr_pad(length);
  if (in.peek_run(verifier_at + 8) == nullptr ||
      std::memcmp(p + verifier_at, kNoAuth.data(), kNoAuth.size()) != 0)
    return false;
  header.xid = xdr::load_u32(p);
  header.program = xdr::load_u32(p + 12);
  header.version = xdr::load_u32(p + 16);
  header.procedure = xdr::load_u32(p + 20);
  header.verifier = {};
  in.skip_run(32);
  header.credential.flavor = static_cast<AuthFlavor>(flavor);
  header.credential.body = length == 0 ? ItemView() : in.get_fixed(length);
  in.skip_run(8);
  return true;
}

// Returns false if its length is above RFC 5531's limit; otherwise ok() tells whether it is
// complete.
bool decode_auth(Decoder& in, Credential& auth) noexcept {
  auth.flavor = static_cast<AuthFlavor>(in.get_u32());
  uint32_t length = in.get_u32();
  if (length > kMaxAuthBody)
    return false;
  auth.body = in.get_fixed(length);
  return true;
}

}  // namespace

CallVerdict decode_call(Decoder& in, CallHeader& header) noexcept {
  if (decode_plain(in, header)) [[likely]]
    return CallVerdict::kOk;
  header.xid = in.get_u32();
  MsgType type = static_cast<MsgType>(in.get_u32());
  if (!in.ok() || type != MsgType::kCall)
    return CallVerdict::kNotACall;
  uint32_t rpc_version = in.get_u32();
  if (!in.ok())
    return CallVerdict::kGarbage;
  if (rpc_version != kRpcVersion)
    return CallVerdict::kRpcMismatch;
  header.program = in.get_u32();
  header.version = in.get_u32();
  header.procedure = in.get_u32();
  if (!decode_auth(in, header.credential))
    return CallVerdict::kBadCredential;
  if (!decode_auth(in, header.verifier))
    return CallVerdict::kBadVerifier;
  return in.ok() ? CallVerdict::kOk : CallVerdict::kGarbage;
}

void encode_call(Encoder& out, uint32_t xid, const CallTarget& target,
                 std::span<const std::byte> credential) noexcept {
  if (credential.empty())
    credential = kNoAuth;
  const auto length = static_cast<uint32_t>(credential.size());
  if (std::byte* p = out.put_run(kCallTargetBytes + length + kNoAuth.size()); p != nullptr)
      [[likely]] {
    xdr::store_u32(p, xid);
    std::memcpy(p + 4, kCallVersion2.data(), kCallVersion2.size());
    xdr::store_u32(p + 12, target.program);
    xdr::store_u32(p + 16, target.version);
    xdr::store_u32(p + 20, target.procedure);
    std::memcpy(p + kCallTargetBytes, credential.data(), length);
    std::memcpy(p + kCallTargetBytes + length, kNoAuth.data(), kNoAuth.size());
    return;
  }
  encode_signed_call(out, xid, target, credential);
  out.put_fixed(kNoAuth);
}

void encode_signed_call(Encoder& out, uint32_t xid, const CallTarget& target,
                        std::span<const std::byte> rest) noexcept {
  out.put_u32(xid);
  out.put_fixed(kCallVersion2);
  out.put_u32(target.program);
  out.put_u32(target.version);
  out.put_u32(target.procedure);
  out.put_fixed(rest);
}

}  // namespace rrdk::rpc

// Writes credentials in wire form, once for a connection, and reads them, for each call.

namespace rrdk {

bool AuthSys::set_machine_name(std::string_view name) noexcept {
  if (name.size() > kMaxMachineName)
    return false;
  std::ranges::copy(name, name_.begin());
  name_length_ = static_cast<uint32_t>(name.size());
  return true;
}

bool AuthSys::set_gids(std::span<const uint32_t> gids) noexcept {
  if (gids.size() > kMaxGids)
    return false;
  std::ranges::copy(gids, gids_.begin());
  num_gids_ = static_cast<uint32_t>(gids.size());
  return true;
}

bool decode(const Credential& credential, AuthSys& to) noexcept {
  if (credential.flavor != AuthFlavor::kSys || credential.body.size() > kMaxAuthBody)
    return false;
  std::byte body[kMaxAuthBody];
  credential.body.copy_to(body);
  const Fragment whole[] = {{body, credential.body.size()}};
  Decoder in(whole);

  AuthSys auth;
  auth.stamp = in.get_u32();
  char name[AuthSys::kMaxMachineName];
  std::string_view machine = in.get_string(name);
  auth.uid = in.get_u32();
  auth.gid = in.get_u32();
  uint32_t gids[AuthSys::kMaxGids] = {};
  uint32_t num_gids = in.get_u32();
  if (num_gids > AuthSys::kMaxGids)
    return false;
  for (uint32_t i = 0; i != num_gids; ++i)
    gids[i] = in.get_u32();
  if (!in.at_end())
    return false;
  auth.set_machine_name(machine);
  auth.set_gids({gids, num_gids});
  to = auth;
  return true;
}

}  // namespace rrdk

namespace rrdk::rpc {

void PreparedAuth::put_u32(uint32_t value) noexcept {
  xdr::store_u32(bytes_.data() + length_, value);
  length_ += 4;
}

void PreparedAuth::put_padded(std::span<const std::byte> bytes) noexcept {
  std::ranges::copy(bytes, bytes_.begin() + length_);
  length_ += static_cast<uint32_t>(bytes.size()) + xdr_pad(bytes.size());
}

PreparedAuth::PreparedAuth(const AuthSys& identity) noexcept {
  put_u32(static_cast<uint32_t>(AuthFlavor::kSys));
  put_u32(0);  // the body's length, set at the end
  put_u32(identity.stamp);
  std::string_view name = identity.machine_name();
  put_u32(static_cast<uint32_t>(name.size()));
  put_padded(std::as_bytes(std::span(name)));
  put_u32(identity.uid);
  put_u32(identity.gid);
  put_u32(static_cast<uint32_t>(identity.gids().size()));
  for (uint32_t gid : identity.gids())
    put_u32(gid);
  xdr::store_u32(bytes_.data() + 4, length_ - 8);
}

std::optional<PreparedAuth> PreparedAuth::opaque(AuthFlavor flavor,
                                                 std::span<const std::byte> body) noexcept {
  if (body.size() > kMaxAuthBody)
    return std::nullopt;
  PreparedAuth auth;
  auth.put_u32(static_cast<uint32_t>(flavor));
  auth.put_u32(static_cast<uint32_t>(body.size()));
  auth.put_padded(body);
  return auth;
}

// decode_call() accepts no body that is longer than kMaxAuthBody.
Principal::Principal(const Credential& credential) noexcept {
  constexpr uint32_t kStamp = 4;
  AuthSys sys;
  const bool is_sys = decode(credential, sys);
  xdr::store_u32(bytes_.data(), static_cast<uint32_t>(credential.flavor));
  xdr::store_u32(bytes_.data() + 4, is_sys ? 0 : 1);
  const auto size = std::min<uint32_t>(credential.body.size(), kMaxAuthBody);
  credential.body.first(size).copy_to(bytes_.data() + kHead);
  length_ = kHead + size;
  if (is_sys) {
    std::memmove(bytes_.data() + kHead, bytes_.data() + kHead + kStamp, size - kStamp);
    length_ -= kStamp;
  }
}

Principal::Principal(std::string_view name) noexcept {
  xdr::store_u32(bytes_.data(), static_cast<uint32_t>(AuthFlavor::kRpcsecGss));
  xdr::store_u32(bytes_.data() + 4, 0);
  const auto size = std::min<size_t>(name.size(), kMaxAuthBody);
  std::memcpy(bytes_.data() + kHead, name.data(), size);
  length_ = kHead + size;
}

bool transforms_body(const Credential& credential) noexcept {
  if (credential.flavor != AuthFlavor::kRpcsecGss) [[likely]]
    return false;
  if (credential.body.size() > kMaxAuthBody)
    return true;
  std::byte body[kMaxAuthBody];
  credential.body.copy_to(body);
  const Fragment whole[] = {{body, credential.body.size()}};
  Decoder in(whole);
  in.get_u32();  // version
  in.get_u32();  // gss_proc
  in.get_u32();  // sequence number
  constexpr uint32_t kServiceNone = 1;
  uint32_t service = in.get_u32();
  return !in.ok() || service != kServiceNone;
}

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
  return call_status(header.accept_stat);
}

CallStatus call_status(AcceptStat status) noexcept {
  switch (status) {
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
