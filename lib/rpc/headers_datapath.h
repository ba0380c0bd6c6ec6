// The headers of RPC calls and replies (RFC 5531 section 9): everything before arguments and
// results; credentials in wire form; and the constant words of both kinds of header.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "rrdk/call_status.h"
#include "rrdk/rpc.h"
#include "rrdk/xdr.h"

namespace rrdk::gss {
class Initiator;  // gss/initiator.h
}

namespace rrdk::rpc {

constexpr uint32_t kRpcVersion = 2;
constexpr uint32_t kCallTargetBytes = 24;  // of a call's header, up to the procedure

struct CallHeader {
  uint32_t xid = 0;
  uint32_t program = 0;
  uint32_t version = 0;
  uint32_t procedure = 0;
  Credential credential;
  Credential verifier;
};

// The result of decoding a call's header, which determines the answer.
enum class CallVerdict : uint8_t {
  kOk,             // the decoder is at the arguments
  kNotACall,       // no XID, or not a call: it cannot be answered
  kRpcMismatch,    // another RPC version: RPC_MISMATCH, 2 to 2
  kGarbage,        // ends inside the header: GARBAGE_ARGS, so that the caller need not wait
  kBadCredential,  // longer than 400 bytes: AUTH_BADCRED
  kBadVerifier,    // longer than 400 bytes: AUTH_BADVERF
};

const char* to_string(CallVerdict verdict) noexcept;

// Decodes from the message's first byte. With any verdict except kNotACall, `header.xid` is the
// call's. Credentials are views into the message; the contents of their bodies are not checked
// here.
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
// The same without a verifier of its own: `rest` is what follows the procedure.
void encode_signed_call(Encoder& out, uint32_t xid, const CallTarget& target,
                        std::span<const std::byte> rest) noexcept;

// Constant words of headers in wire form, so that they are compared and copied at once.
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
  // The calls of a security context, which gives each its credential and verifier.
  // datapath-allow: made when the context is, and only moved here
  explicit PreparedAuth(std::shared_ptr<gss::Initiator> initiator) noexcept
      : initiator_(std::move(initiator)) {}
  explicit PreparedAuth(const AuthSys& identity) noexcept;
  // Any flavour. Returns nothing if the body is longer than kMaxAuthBody.
  static std::optional<PreparedAuth> opaque(AuthFlavor flavor,
                                            std::span<const std::byte> body) noexcept;

  std::span<const std::byte> bytes() const noexcept { return {bytes_.data(), length_}; }
  // Null: the credential is the same for all calls.
  // datapath-allow: calls share the PreparedAuth, and only read this
  const std::shared_ptr<gss::Initiator>& initiator() const noexcept { return initiator_; }

 private:
  void put_u32(uint32_t value) noexcept;
  void put_padded(std::span<const std::byte> bytes) noexcept;

  std::array<std::byte, 8 + kMaxAuthBody> bytes_ = {};
  uint32_t length_ = 0;
  // datapath-allow: calls share the PreparedAuth, and only read this
  std::shared_ptr<gss::Initiator> initiator_;
};

// The caller that a credential names, as bytes that are the same however often that caller repeats
// a call. What a client may change each time is left out: the stamp of AUTH_SYS. A body that cannot
// be parsed as its flavour requires is taken as it is.
class Principal {
 public:
  explicit Principal(const Credential& credential) noexcept;
  // The name that RPCSEC_GSS has verified: at most kMaxAuthBody bytes.
  explicit Principal(std::string_view name) noexcept;

  std::span<const std::byte> bytes() const noexcept { return {bytes_.data(), length_}; }

 private:
  static constexpr size_t kHead = 8;  // flavour, and whether the body is taken as it is

  std::array<std::byte, kHead + kMaxAuthBody> bytes_;
  size_t length_ = kHead;
};

// Whether a body with this credential is transformed as a whole: RPCSEC_GSS with integrity or
// privacy (RFC 2203 section 5.3.1). No item of such a body can be moved separately (SEC-04).
bool transforms_body(const Credential& credential) noexcept;

// The header of a reply: everything before the results.
//
// The three statuses determine which fields are meaningful, as on the wire.

// Which fields mean something follows from the three statuses, as on the wire.
struct ReplyHeader {
  uint32_t xid = 0;
  ReplyStat reply_stat = ReplyStat::kAccepted;
  AcceptStat accept_stat = AcceptStat::kSuccess;      // if accepted
  Credential verifier;                                // if accepted
  RejectStat reject_stat = RejectStat::kRpcMismatch;  // if denied
  AuthStat auth_stat = AuthStat::kOk;                 // if denied with AUTH_ERROR
  uint32_t mismatch_low = 0;                          // with PROG_MISMATCH or RPC_MISMATCH
  uint32_t mismatch_high = 0;
};

// Decodes from the message's first byte; with SUCCESS the decoder is then at the results. Returns
// false if it is not a complete reply, or has a status that RFC 5531 does not define. An unknown
// auth_stat is taken as it is, since security flavours add their own.
bool decode_reply(Decoder& in, ReplyHeader& header) noexcept;

// Returns what a well-formed reply means to the caller.
CallStatus call_status(const ReplyHeader& header) noexcept;
CallStatus call_status(AcceptStat status) noexcept;

// Each writes a whole reply header, with an AUTH_NONE verifier if the header has one.
void encode_success(Encoder& out, uint32_t xid) noexcept;  // the results follow
// Any accept_stat; `low` and `high` are written with PROG_MISMATCH only.
void encode_accepted(Encoder& out, uint32_t xid, AcceptStat status, uint32_t low = 0,
                     uint32_t high = 0) noexcept;
void encode_rpc_mismatch(Encoder& out, uint32_t xid) noexcept;
void encode_auth_error(Encoder& out, uint32_t xid, AuthStat reason) noexcept;

// Writes the answer to a call whose header was refused. Returns false, and writes nothing, if the
// call cannot be answered (kNotACall) or was not refused.
bool encode_refusal(Encoder& out, uint32_t xid, CallVerdict verdict) noexcept;

}  // namespace rrdk::rpc
