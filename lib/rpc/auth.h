// Credentials in wire form, built once per connection and copied into each call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "rrdk/rpc.h"

namespace rrdk::rpc {

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
