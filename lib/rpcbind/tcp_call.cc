#include "rrdk/tcp_call.h"

#include <unistd.h>

#include <array>

#include "base/clock.h"
#include "rpcbind/caller.h"

namespace rrdk {

namespace {

rpc::PreparedAuth own_credential() {
  AuthSys identity;
  identity.uid = ::geteuid();
  identity.gid = ::getegid();
  std::array<char, AuthSys::kMaxMachineName + 1> name{};
  if (::gethostname(name.data(), AuthSys::kMaxMachineName) == 0)
    identity.set_machine_name(name.data());
  return rpc::PreparedAuth(identity);
}

Error refusal(const rpcbind::Caller& caller, const rpc::ReplyHeader& header) {
  const CallStatus status = rpc::call_status(header);
  const std::string why = caller.peer() + ": it refuses the call: " + to_string(status);
  switch (status) {
    case CallStatus::kAuthError:
      return {Errc::kPermission, why + " (" + to_string(header.auth_stat) + ")"};
    case CallStatus::kProgUnavail:
    case CallStatus::kProgMismatch:
    case CallStatus::kProcUnavail:
    case CallStatus::kRpcMismatch:
      return {Errc::kUnsupported, why};
    default:
      return {Errc::kRefused, why};
  }
}

}  // namespace

void TcpArguments::put_u32(uint32_t value) {
  bytes_.resize(bytes_.size() + sizeof(value));
  xdr::store_u32(&bytes_[bytes_.size() - sizeof(value)], value);
}

void TcpArguments::put_string(std::string_view text) {
  put_u32(static_cast<uint32_t>(text.size()));
  auto bytes = std::as_bytes(std::span(text));
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  bytes_.resize(bytes_.size() + xdr_pad(text.size()));
}

Result<std::vector<std::byte>> call_over_tcp(const TcpCall& call) {
  std::vector<std::byte> results;
  const auto ask = [&](rpcbind::Caller& caller) -> Result<void> {
    Result<rpcbind::Reply> reply =
        caller.call({call.program, call.version, call.procedure}, call.args);
    if (!reply)
      return tl::unexpected(reply.error());
    if (rpc::call_status(reply->header) != CallStatus::kOk)
      return tl::unexpected(refusal(caller, reply->header));
    results.assign(reply->message.end() - static_cast<ptrdiff_t>(reply->results.remaining()),
                   reply->message.end());
    return {};
  };
  return rpcbind::Caller::ask_host(
             "program " + std::to_string(call.program), call.host, call.port,
             {.deadline_ns = base::Tsc::now_ns() + uint64_t{call.timeout_ms} * 1'000'000,
              .longest_reply = call.longest_reply,
              .credential = own_credential()},
             ask)
      .map([&] { return std::move(results); });
}

}  // namespace rrdk
