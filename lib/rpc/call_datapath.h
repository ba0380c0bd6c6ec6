// The header of an RPC call (RFC 5531 section 9): everything before the arguments; credentials in
// wire form; and constant words of headers of either kind.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

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

// Whether a body that comes with it is transformed as a whole: RPCSEC_GSS with integrity or privacy
// (RFC 2203 section 5.3.1). No item of such a body can have moved by itself (SEC-04).
bool transforms_body(const Credential& credential) noexcept;

}  // namespace rrdk::rpc
