#include "rrdk/rpcbind.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <array>
#include <charconv>
#include <optional>

#include "base/clock.h"
#include "rpcbind/caller.h"

namespace rrdk {

namespace {

bool is_address(int family, const std::string& host) {
  in6_addr unused;
  return ::inet_pton(family, host.c_str(), &unused) == 1;
}

// Without a scope, which means nothing on another host.
std::string bare(const std::string& host) {
  return host.substr(0, host.find('%'));
}

// Takes ".123" off the end.
std::optional<uint32_t> take_octet(std::string& text) {
  size_t dot = text.rfind('.');
  if (dot == std::string::npos)
    return std::nullopt;
  uint32_t value = 0;
  const char* end = text.data() + text.size();
  auto [stopped, error] = std::from_chars(text.data() + dot + 1, end, value);
  if (error != std::errc() || stopped != end || value > 255)
    return std::nullopt;
  text.resize(dot);
  return value;
}

}  // namespace

const char* rpcbind_netid(const std::string& host) {
  return is_address(AF_INET6, bare(host)) ? "rdma6" : "rdma";
}

Result<std::string> to_universal_address(const std::string& host, uint16_t port) {
  std::string address = bare(host);
  if (!is_address(AF_INET, address) && !is_address(AF_INET6, address))
    return fail(Errc::kInvalidArgument, "\"" + host + "\" is no numeric IPv4 or IPv6 address");
  return address + "." + std::to_string(port >> 8) + "." + std::to_string(port & 0xff);
}

Result<HostAndPort> parse_universal_address(const std::string& address) {
  std::string host = address;
  std::optional<uint32_t> low = take_octet(host);
  std::optional<uint32_t> high = take_octet(host);
  if (!low || !high || (!is_address(AF_INET, host) && !is_address(AF_INET6, host)))
    return fail(Errc::kInvalidArgument, "\"" + address + "\" is no universal address");
  return HostAndPort{host, static_cast<uint16_t>(*high << 8 | *low)};
}

// --- entries in this host's rpcbind ---

namespace {

using rpcbind::Caller;

constexpr uint32_t kProgram = 100000;  // RFC 1833

// Procedures (RFC 1833 section 2.2.1).
enum class Procedure : uint32_t { kSet = 1, kUnset = 2, kDump = 4 };

Result<rpcbind::Reply> call(Caller& caller, uint32_t version, Procedure procedure,
                            const TcpArguments& args) {
  return caller.call({kProgram, version, static_cast<uint32_t>(procedure)}, args);
}

Error not_rpcbind(const Caller& caller) {
  return caller.not_a_peer("what answers does not speak the rpcbind protocol");
}

uint64_t in_ms(uint32_t time) {
  return base::Tsc::now_ns() + uint64_t{time} * 1'000'000;
}

constexpr uint32_t kPatienceMs = 5000;
constexpr uint32_t kEntryVersion = 4;
constexpr size_t kLongestAnswer = 4096;  // it is one bool

// struct rpcb (RFC 1833 section 2.1). The owner is not taken from here.
TcpArguments entry(const RpcService& service, const std::string& host, const std::string& address) {
  TcpArguments out;
  out.put_u32(service.program);
  out.put_u32(service.version);
  out.put_string(rpcbind_netid(host));
  out.put_string(address);
  out.put_string("");
  return out;
}

// Whether rpcbind did it.
Result<bool> change(Caller& caller, Procedure procedure, const TcpArguments& args) {
  Result<rpcbind::Reply> reply = call(caller, kEntryVersion, procedure, args);
  if (!reply)
    return tl::unexpected(reply.error());
  if (rpc::call_status(reply->header) != CallStatus::kOk)
    return false;
  bool done = reply->results.get_bool();
  if (!reply->results.at_end())
    return tl::unexpected(not_rpcbind(caller));
  return done;
}

Result<Caller> connect_local() {
  return Caller::connect_local(
      {.deadline_ns = in_ms(kPatienceMs), .longest_reply = kLongestAnswer});
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
  Result<Caller> caller = connect_local();
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
  Result<Caller> caller = connect_local();
  if (!caller)
    return tl::unexpected(caller.error());
  Result<bool> gone = change(*caller, Procedure::kUnset, entry(service, host, ""));
  if (!gone)
    return tl::unexpected(gone.error());
  if (!*gone)
    return tl::unexpected(denied("forget", service, host));
  return {};
}

// --- asking another host's rpcbind ---
//
// Of its procedures DUMP is the one that tells of netids other than that of the connection it is
// asked over: common implementations of GETADDR answer for that alone, whatever netid they are
// asked for.

namespace {

constexpr uint32_t kListVersions[] = {4, 3};
constexpr size_t kLongestList = 1u << 20;  // a host's whole list is far below this
constexpr uint32_t kLongestName = 256;     // of netids, addresses and owners

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
  Result<Caller> caller =
      Caller::connect("rpcbind", query.host, query.port,
                      {.deadline_ns = in_ms(query.timeout_ms), .longest_reply = kLongestList});
  if (!caller)
    return tl::unexpected(caller.error());
  const Wanted wanted = {service, caller->family() == AF_INET6 ? "rdma6" : "rdma"};
  for (uint32_t version : kListVersions) {
    Result<rpcbind::Reply> reply = call(*caller, version, Procedure::kDump, {});
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
      return tl::unexpected(not_rpcbind(*caller));
    if (!port)
      return fail(Errc::kNotFound, caller->peer() + ": it does not list " + name_of(wanted));
    return *port;
  }
  return fail(Errc::kRefused, caller->peer() + ": it knows neither version 4 nor 3 of rpcbind");
}

}  // namespace rrdk
