// The headers of RPC calls and replies (RFC 5531 section 9): everything before arguments and
// results; credentials in wire form; and constant words of headers of either kind.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "rrdk/call_status.h"
#include "rrdk/rpc.h"
#include "rrdk/xdr.h"

namespace rrdk::rpc {

constexpr uint32_t kRpcVersion = 2;

struct CallHeader {
  uint32_t xid = 0;
  uint32_t program = 0;
  uint32_t version = 0;
  uint32_t procedure = 0;
  Credential credential;
  Credential verifier;
};

// What became of a header, and so what to answer.
enum class CallVerdict : uint8_t {
  kOk,             // the decoder stands at the arguments
  kNotACall,       // no XID, or no call: there is nothing that could be answered
  kRpcMismatch,    // another RPC version: RPC_MISMATCH, 2 to 2
  kGarbage,        // ends inside the header: GARBAGE_ARGS, so that the caller need not wait
  kBadCredential,  // longer than 400 bytes: AUTH_BADCRED
  kBadVerifier,    // longer than 400 bytes: AUTH_BADVERF
};

const char* to_string(CallVerdict verdict) noexcept;

// From the message's first byte. With any verdict but kNotACall `header.xid` is the call's.
// Credentials are views into the message; what is in their bodies is not judged here.
CallVerdict decode_call(Decoder& in, CallHeader& header) noexcept;

struct CallTarget {
  uint32_t program;
  uint32_t version;
  uint32_t procedure;
};

// `credential` is flavour, length, body and pad (PreparedAuth); empty: AUTH_NONE. The verifier is
// AUTH_NONE. Arguments follow.
void encode_call(Encoder& out, uint32_t xid, const CallTarget& target,
                 std::span<const std::byte> credential) noexcept;

// Headers' constant words in wire form, so that they are compared and copied at once.
template <typename... Values>
constexpr std::array<std::byte, 4 * sizeof...(Values)> words(Values... values) {
  std::array<std::byte, 4 * sizeof...(Values)> bytes = {};
  size_t i = 0;
  for (uint32_t value : {static_cast<uint32_t>(values)...}) {
    for (int shift = 24; shift >= 0; shift -= 8)
      bytes[i++] = static_cast<std::byte>(value >> shift);
  }
  return bytes;
}

// A credential in wire form, built once per connection and copied into each call.
//
// Flavour, length, body and pad; empty: AUTH_NONE.
class PreparedAuth {
 public:
  PreparedAuth() = default;
  explicit PreparedAuth(const AuthSys& identity) noexcept;
  // Any flavour. Empty optional when the body is longer than kMaxAuthBody.
  static std::optional<PreparedAuth> opaque(AuthFlavor flavor,
                                            std::span<const std::byte> body) noexcept;

  std::span<const std::byte> bytes() const noexcept { return {bytes_.data(), length_}; }

 private:
  void put_u32(uint32_t value) noexcept;
  void put_padded(std::span<const std::byte> bytes) noexcept;

  std::array<std::byte, 8 + kMaxAuthBody> bytes_ = {};
  uint32_t length_ = 0;
};

// The caller that a credential names, as bytes that are the same however often that caller repeats
// a call. What a client may write anew each time is left out: the stamp of AUTH_SYS. A body that
// cannot be read as its flavour says is taken as it is. RPCSEC_GSS belongs here once calls are
// authenticated by it: the principal of its context, and not its sequence number.
class Principal {
 public:
  explicit Principal(const Credential& credential) noexcept;

  std::span<const std::byte> bytes() const noexcept { return {bytes_.data(), length_}; }

 private:
  static constexpr size_t kHead = 8;  // flavour, and whether the body is taken as it is

  std::array<std::byte, kHead + kMaxAuthBody> bytes_;
  size_t length_ = kHead;
};

// Whether a body that comes with it is transformed as a whole: RPCSEC_GSS with integrity or privacy
// (RFC 2203 section 5.3.1). No item of such a body can have moved by itself (SEC-04).
bool transforms_body(const Credential& credential) noexcept;

// The header of a reply: everything before the results.

// Which fields mean something follows from the three statuses, as on the wire.
struct ReplyHeader {
  uint32_t xid = 0;
  ReplyStat reply_stat = ReplyStat::kAccepted;
  AcceptStat accept_stat = AcceptStat::kSuccess;      // accepted
  Credential verifier;                                // accepted
  RejectStat reject_stat = RejectStat::kRpcMismatch;  // denied
  AuthStat auth_stat = AuthStat::kOk;                 // denied, AUTH_ERROR
  uint32_t mismatch_low = 0;                          // PROG_MISMATCH or RPC_MISMATCH
  uint32_t mismatch_high = 0;
};

// From the message's first byte; with SUCCESS the decoder then stands at the results. False when it
// is no reply or not a whole one, or has a status that RFC 5531 does not define. An unknown
// auth_stat is taken as it is: security flavours add their own.
bool decode_reply(Decoder& in, ReplyHeader& header) noexcept;

// What a well-formed reply means to the caller.
CallStatus call_status(const ReplyHeader& header) noexcept;

// Each writes a whole reply header, with an AUTH_NONE verifier where there is one.
void encode_success(Encoder& out, uint32_t xid) noexcept;  // the results follow
// Any accept_stat; `low` and `high` are written with PROG_MISMATCH only.
void encode_accepted(Encoder& out, uint32_t xid, AcceptStat status, uint32_t low = 0,
                     uint32_t high = 0) noexcept;
void encode_rpc_mismatch(Encoder& out, uint32_t xid) noexcept;
void encode_auth_error(Encoder& out, uint32_t xid, AuthStat reason) noexcept;

// The answer to a call whose header was refused. False, and nothing is written, when it cannot be
// answered (kNotACall) or was not refused.
bool encode_refusal(Encoder& out, uint32_t xid, CallVerdict verdict) noexcept;

}  // namespace rrdk::rpc
