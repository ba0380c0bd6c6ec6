// Entries in this host's rpcbind.
#include "base/clock.h"
#include "rpcbind/caller.h"
#include "rrdk/rpcbind.h"

namespace rrdk {

namespace {

using rpcbind::Arguments;
using rpcbind::Caller;
using rpcbind::Procedure;

constexpr uint64_t kPatienceNs = 5'000'000'000;
constexpr uint32_t kVersion = 4;

// struct rpcb (RFC 1833 section 2.1). The owner is not taken from here.
Arguments entry(const RpcService& service, const std::string& host, const std::string& address) {
  Arguments out;
  out.put_u32(service.program);
  out.put_u32(service.version);
  out.put_string(rpcbind_netid(host));
  out.put_string(address);
  out.put_string("");
  return out;
}

// Whether rpcbind did it.
Result<bool> change(Caller& caller, Procedure procedure, const Arguments& arguments) {
  Result<rpcbind::Reply> reply = caller.call(kVersion, procedure, arguments);
  if (!reply)
    return tl::unexpected(reply.error());
  if (rpc::call_status(reply->header) != CallStatus::kOk)
    return false;
  bool done = reply->results.get_bool();
  if (!reply->results.at_end())
    return tl::unexpected(caller.not_rpcbind());
  return done;
}

Error denied(const char* what, const RpcService& service, const std::string& host) {
  return {Errc::kPermission, std::string("rpcbind refuses to ") + what + " program " +
                                 std::to_string(service.program) + " version " +
                                 std::to_string(service.version) + " under " + rpcbind_netid(host) +
                                 ": the entry is another user's, or only root may have one"};
}

}  // namespace

Result<void> rpcbind_set(const RpcService& service, const std::string& host, uint16_t port) {
  Result<std::string> address = to_universal_address(host, port);
  if (!address)
    return tl::unexpected(address.error());
  Result<Caller> caller = Caller::connect_local(base::Tsc::now_ns() + kPatienceNs);
  if (!caller)
    return tl::unexpected(caller.error());
  Result<bool> gone = change(*caller, Procedure::kUnset, entry(service, host, ""));
  if (!gone)
    return tl::unexpected(gone.error());
  Result<bool> listed = change(*caller, Procedure::kSet, entry(service, host, *address));
  if (!listed)
    return tl::unexpected(listed.error());
  if (!*listed)
    return tl::unexpected(denied("list", service, host));
  return {};
}

Result<void> rpcbind_unset(const RpcService& service, const std::string& host) {
  if (Result<std::string> address = to_universal_address(host, 0); !address)
    return tl::unexpected(address.error());
  Result<Caller> caller = Caller::connect_local(base::Tsc::now_ns() + kPatienceNs);
  if (!caller)
    return tl::unexpected(caller.error());
  Result<bool> gone = change(*caller, Procedure::kUnset, entry(service, host, ""));
  if (!gone)
    return tl::unexpected(gone.error());
  if (!*gone)
    return tl::unexpected(denied("forget", service, host));
  return {};
}

}  // namespace rrdk
