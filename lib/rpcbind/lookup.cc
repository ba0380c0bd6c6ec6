// Asks another host's rpcbind. Of its procedures DUMP is the one that tells of netids other than
// that of the connection it is asked over: common implementations of GETADDR answer for that alone,
// whatever netid they are asked for.
#include <sys/socket.h>

#include <array>
#include <optional>

#include "base/clock.h"
#include "rpcbind/caller.h"
#include "rrdk/rpcbind.h"

namespace rrdk {

namespace {

constexpr uint32_t kVersions[] = {4, 3};
constexpr uint32_t kLongestName = 256;  // of netids, addresses and owners

struct Wanted {
  RpcService service;
  std::string_view netid;
};

// Goes through a list of rpcb (RFC 1833 section 2.1). Whether it was one is in.ok().
std::optional<uint16_t> find_port(Decoder& in, const Wanted& wanted) {
  std::optional<uint16_t> port;
  std::array<char, kLongestName> netid_store;
  std::array<char, kLongestName> address_store;
  while (in.get_bool()) {
    uint32_t program = in.get_u32();
    uint32_t version = in.get_u32();
    std::string_view netid = in.get_string(netid_store);
    std::string_view address = in.get_string(address_store);
    in.get_opaque(kLongestName);  // the owner
    if (program != wanted.service.program || version != wanted.service.version ||
        netid != wanted.netid)
      continue;
    if (Result<HostAndPort> parsed = parse_universal_address(std::string(address)); parsed)
      port = parsed->port;
  }
  if (!in.at_end())
    in.fail();
  return port;
}

std::string name_of(const Wanted& wanted) {
  return "program " + std::to_string(wanted.service.program) + " version " +
         std::to_string(wanted.service.version) + " under " + std::string(wanted.netid);
}

}  // namespace

Result<uint16_t> rpcbind_lookup(const RpcService& service, const RpcbindQuery& query) {
  uint64_t deadline_ns = base::Tsc::now_ns() + uint64_t{query.timeout_ms} * 1'000'000;
  Result<rpcbind::Caller> caller = rpcbind::Caller::connect(query.host, query.port, deadline_ns);
  if (!caller)
    return tl::unexpected(caller.error());
  const Wanted wanted = {service, caller->family() == AF_INET6 ? "rdma6" : "rdma"};
  for (uint32_t version : kVersions) {
    Result<rpcbind::Reply> reply = caller->call(version, rpcbind::Procedure::kDump, {});
    if (!reply)
      return tl::unexpected(reply.error());
    CallStatus status = rpc::call_status(reply->header);
    if (status == CallStatus::kProgMismatch)
      continue;  // an older one
    if (status != CallStatus::kOk)
      return fail(Errc::kRefused,
                  caller->peer() + ": it does not tell what it lists (" + to_string(status) + ")");
    std::optional<uint16_t> port = find_port(reply->results, wanted);
    if (!reply->results.ok())
      return tl::unexpected(caller->not_rpcbind());
    if (!port)
      return fail(Errc::kNotFound, caller->peer() + ": it does not list " + name_of(wanted));
    return *port;
  }
  return fail(Errc::kRefused, caller->peer() + ": it knows neither version 4 nor 3 of rpcbind");
}

}  // namespace rrdk
