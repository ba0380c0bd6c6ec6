// Calls that are authenticated by RPCSEC_GSS (RFC 2203). Dispatcher::open_secured() stands between
// the RPC header and the service table, and Dispatcher::seal() between the finished reply and the
// engine; all between them see a call like any other.
#pragma once

#include <memory>
#include <vector>

#include "engine/served_call.h"
#include "gss/contexts.h"
#include "rrdk/xdr.h"

namespace rrdk::service {

using engine::ServedCall;

// What a call has in addition. Made when its header has been verified; freed when it is answered.
struct SecuredCall {
  std::unique_ptr<gss::Establishment> establishment;  // of a new context; the rest is empty then
  gss::ContextRef context;
  gss::Token checksum;  // the reply's verifier: of the call's sequence number
  gss::CredentialBody credential;
  // The arguments in clear, if they came protected as a whole. They lie in the message, or in one
  // of these.
  Fragment clear = {};
  gss::Token unwrapped;
  std::vector<std::byte> joined;

  bool transforms_body() const noexcept { return credential.protection != gss::Protection::kNone; }
};

// Whether the call's procedure takes its caller.
bool accepts(const ServedCall& call) noexcept;
// Starts the reply to such a call.
void open_secured_reply(ServedCall& call) noexcept;

}  // namespace rrdk::service
