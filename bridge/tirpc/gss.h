// AUTH of rrdk_authgss_create(): a security context of RRDK's. Its operations do nothing, since a
// CLIENT of ours gives the context to the library, and no other CLIENT can use it.
#pragma once

#include <rpc/rpc.h>

#include <cstdint>

#include "rrdk/call.h"

namespace rrdk::tirpc {

class GssAuth {
 public:
  explicit GssAuth(SharedCredential context);
  GssAuth(const GssAuth&) = delete;
  GssAuth& operator=(const GssAuth&) = delete;
  AUTH* auth() noexcept { return &auth_; }
  const SharedCredential& context() const noexcept { return context_; }
  // No other of this process has it, not even one at the same address later. Not 0.
  uint64_t number() const noexcept { return number_; }

  // Returns null for an AUTH that is not one of these. `auth` may be null.
  static const GssAuth* of(const AUTH* auth) noexcept;

 private:
  static AUTH::auth_ops ops;

  AUTH auth_ = {};
  const SharedCredential context_;
  const uint64_t number_;
};

// Whether libtirpc's authgss_create() is about to make it, by calls on a CLIENT of ours: it has no
// flavour yet, but would change arguments and results. It cannot be used, since its checksums cover
// the XID of a call, which only the library knows. `auth` may be null.
bool is_unfinished(const AUTH* auth) noexcept;

}  // namespace rrdk::tirpc
