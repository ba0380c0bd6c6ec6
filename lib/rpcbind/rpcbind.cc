#include "rrdk/rpcbind.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/addresses.h"
#include "base/clock.h"
#include "base/lifetime.h"
#include "base/log.h"
#include "base/system.h"
#include "rpcbind/caller.h"
#include "rrdk/connection.h"

namespace rrdk {

namespace {

bool is_address(int family, const std::string& host) {
  in6_addr unused;
  return ::inet_pton(family, host.c_str(), &unused) == 1;
}

// Without a scope, which has no meaning on another host.
std::string bare(const std::string& host) {
  return host.substr(0, host.find('%'));
}

const char* netid_of(int family) {
  return family == AF_INET6 ? "rdma6" : "rdma";
}

int family_of(const std::string& host) {
  return is_address(AF_INET6, bare(host)) ? AF_INET6 : AF_INET;
}

std::string numeric(const base::SocketAddress& address) {
  std::array<char, NI_MAXHOST> host{};
  (void)::getnameinfo(address.get(), address.length, host.data(), host.size(), nullptr, 0,
                      NI_NUMERICHOST);
  return host.data();
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
  return netid_of(family_of(host));
}

std::string HostAndPort::to_string() const {
  return NetworkAddress{.host = host, .port = port}.to_string();
}

Result<std::string> to_universal_address(const std::string& host, uint16_t port) {
  std::string address = bare(host);
  if (!is_address(AF_INET, address) && !is_address(AF_INET6, address))
    return fail(Errc::kInvalidArgument, "\"" + host + "\" is not a numeric IPv4 or IPv6 address");
  return address + "." + std::to_string(port >> 8) + "." + std::to_string(port & 0xff);
}

Result<HostAndPort> parse_universal_address(const std::string& address) {
  std::string host = address;
  std::optional<uint32_t> low = take_octet(host);
  std::optional<uint32_t> high = take_octet(host);
  if (!low || !high || (!is_address(AF_INET, host) && !is_address(AF_INET6, host)))
    return fail(Errc::kInvalidArgument, "\"" + address + "\" is not a universal address");
  return HostAndPort{host, static_cast<uint16_t>(*high << 8 | *low)};
}

namespace rpcbind {

// A list entry of a service over RDMA.
struct Entry {
  std::string netid, address, owner;
};

}  // namespace rpcbind

// --- what an rpcbind lists ---
//
// DUMP is the only procedure that reports other netids than that of the connection: common
// implementations of GETADDR answer only for that one, whatever netid is asked for.

namespace {

using rpcbind::Caller;
using rpcbind::Entry;

constexpr uint32_t kProgram = 100000;  // RFC 1833

// Procedures (RFC 1833 section 2.2.1).
enum class Procedure : uint32_t { kSet = 1, kUnset = 2, kDump = 4 };

constexpr uint32_t kListVersions[] = {4, 3};
constexpr size_t kLongestList = 1u << 20;  // a host's whole list is far smaller
constexpr uint32_t kLongestName = 256;     // of netids, addresses and owners

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

// Parses a list of rpcb (RFC 1833 section 2.1). in.ok() tells whether it was valid.
std::vector<Entry> entries_of(const RpcService& service, Decoder& in) {
  std::vector<Entry> entries;
  std::array<char, kLongestName> netid_store, address_store, owner_store;
  while (in.get_bool()) {
    uint32_t program = in.get_u32();
    uint32_t version = in.get_u32();
    std::string_view netid = in.get_string(netid_store);
    std::string_view address = in.get_string(address_store);
    std::string_view owner = in.get_string(owner_store);
    if (program == service.program && version == service.version &&
        (netid == netid_of(AF_INET) || netid == netid_of(AF_INET6)))
      entries.push_back({std::string(netid), std::string(address), std::string(owner)});
  }
  if (!in.at_end())
    in.fail();
  return entries;
}

Result<std::vector<Entry>> list(Caller& caller, const RpcService& service) {
  for (uint32_t version : kListVersions) {
    Result<rpcbind::Reply> reply = call(caller, version, Procedure::kDump, {});
    if (!reply)
      return tl::unexpected(reply.error());
    CallStatus status = rpc::call_status(reply->header);
    if (status == CallStatus::kProgMismatch)
      continue;  // an older one
    if (status != CallStatus::kOk)
      return fail(Errc::kRefused,
                  caller.peer() + ": it does not return its list (" + to_string(status) + ")");
    std::vector<Entry> entries = entries_of(service, reply->results);
    if (!reply->results.ok())
      return tl::unexpected(not_rpcbind(caller));
    return entries;
  }
  return fail(Errc::kRefused, caller.peer() + ": it knows neither version 4 nor 3 of rpcbind");
}

std::string name_of(const RpcService& service) {
  return "program " + std::to_string(service.program) + " version " +
         std::to_string(service.version);
}

}  // namespace

// --- entries in this host's rpcbind ---

namespace {

constexpr uint32_t kPatienceMs = 5000;
constexpr uint32_t kEntryVersion = 4;

// struct rpcb (RFC 1833 section 2.1). rpcbind does not take the owner from here.
TcpArguments entry(const RpcService& service, const std::string& netid,
                   const std::string& address) {
  TcpArguments out;
  out.put_u32(service.program);
  out.put_u32(service.version);
  out.put_string(netid);
  out.put_string(address);
  out.put_string("");
  return out;
}

// Returns whether rpcbind made the change.
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

Result<Caller> connect_local(const std::string& socket = RpcbindListingOptions().socket) {
  return Caller::connect_local(socket,
                               {.deadline_ns = in_ms(kPatienceMs), .longest_reply = kLongestList});
}

tl::unexpected<Error> denied(const char* what, const RpcService& service,
                             const std::string& netid) {
  return fail(Errc::kPermission, std::string("rpcbind refuses to ") + what + " " +
                                     name_of(service) + " under " + netid +
                                     ": the entry is another user's, or only root may have one");
}

// Replaces an existing entry. Another server may do the same at this moment: its entry, or that of
// the old server, which checks for its own, may come between the two calls, and is replaced as
// well.
Result<void> replace_entry(Caller& caller, const RpcService& service, const std::string& netid,
                           const std::string& address) {
  constexpr int kTries = 3;
  for (int i = 0; i < kTries; ++i) {
    Result<bool> done = change(caller, Procedure::kUnset, entry(service, netid, ""));
    if (done)
      done = change(caller, Procedure::kSet, entry(service, netid, address));
    if (!done)
      return tl::unexpected(done.error());
    if (*done)
      return {};
  }
  return denied("list", service, netid);
}

Result<void> remove_entry(Caller& caller, const RpcService& service, const std::string& netid) {
  Result<bool> gone = change(caller, Procedure::kUnset, entry(service, netid, ""));
  if (!gone)
    return tl::unexpected(gone.error());
  return *gone ? Result<void>() : denied("forget", service, netid);
}

// Whether a socket at "::" also accepts IPv4 clients.
bool takes_both_families() {
  const base::Fd socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  int only_v6 = 0;
  socklen_t length = sizeof(only_v6);
  return socket && ::getsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, &length) == 0 &&
         only_v6 == 0;
}

// Returns the addresses of a server that listens at `host`: one for each entry. If a name has
// several addresses of a family, the first one, since there is one entry for a netid.
Result<std::vector<std::string>> places_of(const std::string& host) {
  std::vector<std::string> places;
  if (bare(host) == "::" && takes_both_families())
    places = {host, "0.0.0.0"};
  else if (is_address(AF_INET, bare(host)) || is_address(AF_INET6, bare(host)))
    places = {host};
  if (!places.empty())
    return places;
  Result<std::vector<base::SocketAddress>> addresses = base::look_up_addresses(host, 0);
  if (!addresses)
    return fail(addresses.error().code, host + ": " + addresses.error().message);
  for (const base::SocketAddress& address : *addresses) {
    const auto is_same = [&](const std::string& place) {
      return family_of(place) == address.storage.ss_family;
    };
    if (std::ranges::none_of(places, is_same))
      places.push_back(numeric(address));
  }
  return places;
}

}  // namespace

Result<void> rpcbind_set(const RpcService& service, const std::string& host, uint16_t port) {
  Result<std::string> address = to_universal_address(host, port);
  if (!address)
    return tl::unexpected(address.error());
  return connect_local().and_then(
      [&](Caller caller) { return replace_entry(caller, service, rpcbind_netid(host), *address); });
}

Result<void> rpcbind_unset(const RpcService& service, const std::string& host) {
  if (Result<std::string> address = to_universal_address(host, 0); !address)
    return tl::unexpected(address.error());
  return connect_local().and_then(
      [&](Caller caller) { return remove_entry(caller, service, rpcbind_netid(host)); });
}

class RpcbindListing::Impl {
 public:
  Impl(const RpcService& service, const RpcbindListingOptions& options)
      : service_(service), options_(options) {}

  Result<void> enter(const std::string& host, uint16_t port) {
    Result<std::vector<std::string>> places = places_of(host);
    if (!places)
      return tl::unexpected(places.error());
    for (const std::string& each : *places) {
      Result<std::string> address = to_universal_address(each, port);
      if (!address)
        return tl::unexpected(address.error());
      own_.push_back({rpcbind_netid(each), *address, {}});
    }
    Result<Caller> caller = connect_local(options_.socket);
    if (!caller)
      return tl::unexpected(caller.error());
    for (const Entry& own : own_) {
      if (Result<void> set = replace_entry(*caller, service_, own.netid, own.address); !set)
        return set;
    }
    note_owner(*caller);
    return {};
  }

  Result<void> start_looking() {
    if (options_.look_again_ms == 0)
      return {};
    const base::SignalsBlocked blocked;
    try {
      thread_ = std::thread([this] {
        pthread_setname_np(pthread_self(), "rrdk-rpcbind");
        look_now_and_then();
      });
    } catch (const std::system_error& error) {
      return fail(Errc::kSystem, std::string("cannot start thread rrdk-rpcbind: ") + error.what());
    }
    return {};
  }

  // The entries and the thread belong to the parent process.
  bool is_in_child() const { return ::getpid() != process_; }

  Result<void> end() {
    if (is_in_child())
      return {};
    stop_looking();
    if (own_.empty())
      return {};
    const std::vector<Entry> own = std::exchange(own_, {});
    Result<Caller> caller = connect_local(options_.socket);
    if (!caller && caller.error().code == Errc::kNotFound)  // no rpcbind, no entry
      return {};
    if (!caller)
      return tl::unexpected(caller.error());
    Result<std::vector<Entry>> listed = list(*caller, service_);
    if (!listed)
      return tl::unexpected(listed.error());
    Result<void> all;
    for (const Entry& each : own) {
      const auto is_same = [&](const Entry& e) {
        return e.netid == each.netid && e.address == each.address &&
               (each.owner.empty() || e.owner == each.owner);
      };
      if (!std::ranges::any_of(*listed, is_same))
        continue;
      if (Result<void> gone = remove_entry(*caller, service_, each.netid); !gone)
        all = gone;
    }
    return all;
  }

 private:
  // As rpcbind names it, which may know this user by another number than this process does.
  void note_owner(Caller& caller) {
    const std::vector<Entry> listed = list(caller, service_).value_or(std::vector<Entry>{});
    for (Entry& own : own_) {
      for (const Entry& e : listed) {
        if (e.netid == own.netid && e.address == own.address)
          own.owner = e.owner;
      }
    }
  }

  // EAL has pinned the thread that starts this one.
  void look_now_and_then() {
    cpu_set_t all;
    std::memset(&all, 0xff, sizeof(all));
    (void)pthread_setaffinity_np(pthread_self(), sizeof(all), &all);
    std::unique_lock lock(mutex_);
    const auto pause = std::chrono::milliseconds(options_.look_again_ms);
    while (!ends_.wait_for(lock, pause, [this] { return ending_; })) {
      lock.unlock();
      look();
      lock.lock();
    }
  }

  // If an rpcbind does not answer, it is asked again the next time. An entry that another server
  // has made in place of ours stays.
  void look() {
    Result<Caller> caller = connect_local(options_.socket);
    if (!caller)
      return;
    const Result<std::vector<Entry>> listed = list(*caller, service_);
    if (!listed)
      return;
    bool entered = false;
    for (const Entry& own : own_) {
      if (std::ranges::any_of(*listed, [&](const Entry& e) { return e.netid == own.netid; }))
        continue;
      const Result<bool> set =
          change(*caller, Procedure::kSet, entry(service_, own.netid, own.address));
      if (!set || !*set)
        continue;
      entered = true;
      base::log_warning("rpcbind had lost the entry of %s under %s (was it restarted?): made again",
                        name_of(service_).c_str(), own.netid.c_str());
    }
    if (entered)
      note_owner(*caller);
  }

  void stop_looking() {
    if (!thread_.joinable())
      return;
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    ends_.notify_one();
    thread_.join();
  }

  const RpcService service_;
  const RpcbindListingOptions options_;
  const pid_t process_ = ::getpid();
  std::vector<Entry> own_;  // while the thread runs, only the thread changes it
  std::mutex mutex_;
  std::condition_variable ends_;
  bool ending_ = false;
  std::thread thread_;
};

RpcbindListing::RpcbindListing(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

// In a child of fork() a condition variable for which a thread waited cannot be destroyed.
RpcbindListing::~RpcbindListing() {
  if (impl_->is_in_child())
    base::keep_for_good(std::shared_ptr<Impl>(std::move(impl_)));
  else
    (void)end();
}

Result<void> RpcbindListing::end() {
  return impl_->end();
}

Result<std::unique_ptr<RpcbindListing>> RpcbindListing::enter(
    const RpcService& service, const std::string& host, uint16_t port,
    const RpcbindListingOptions& options) {
  auto impl = std::make_unique<Impl>(service, options);
  std::unique_ptr<RpcbindListing> listing(new RpcbindListing(std::move(impl)));
  return listing->impl_->enter(host, port)
      .and_then([&] { return listing->impl_->start_looking(); })
      .map([&] { return std::move(listing); });
}

// --- asking another host's rpcbind ---

namespace {

std::optional<HostAndPort> listed_under(const std::vector<Entry>& entries, int family) {
  for (const Entry& entry : entries) {
    Result<HostAndPort> at = parse_universal_address(entry.address);
    if (entry.netid == netid_of(family) && at)
      return *at;
  }
  return std::nullopt;
}

// Returns which of the host's addresses leads to a service that is listed at `listed`: the listed
// one, or the one at which its rpcbind answers, or another of the family; or the listed one even if
// the host's name does not lead there. Empty if there is no such address.
std::string host_for(const std::string& listed, int family, const base::SocketAddress& rpcbind,
                     const std::vector<base::SocketAddress>& addresses) {
  std::string host = rpcbind.storage.ss_family == family ? numeric(rpcbind) : "";
  for (const base::SocketAddress& address : addresses) {
    if (address.storage.ss_family != family)
      continue;
    if (numeric(address) == listed)
      return listed;
    if (host.empty())
      host = numeric(address);
  }
  const bool is_own = listed == "0.0.0.0" || listed == "::" || listed == "::1" ||
                      listed.starts_with("127.");  // it means the other host itself
  return host.empty() && !is_own ? listed : host;
}

Result<HostAndPort> locate(Caller& caller, const RpcService& service, const RpcbindQuery& query) {
  Result<std::vector<Entry>> entries = list(caller, service);
  if (!entries)
    return tl::unexpected(entries.error());
  const std::vector<base::SocketAddress> addresses =
      base::look_up_addresses(query.host, query.port).value_or(std::vector<base::SocketAddress>{});
  const int first = caller.far().storage.ss_family;
  std::string why = "it does not list " + name_of(service) + " under rdma or rdma6";
  for (int family : {first, first == AF_INET ? AF_INET6 : AF_INET}) {
    std::optional<HostAndPort> listed = listed_under(*entries, family);
    if (!listed)
      continue;
    const std::string host = host_for(listed->host, family, caller.far(), addresses);
    if (!host.empty())
      return HostAndPort{host, listed->port};
    why = "it lists " + name_of(service) + " under " + netid_of(family) + " alone, and " +
          query.host + " has no such address";
  }
  return fail(Errc::kNotFound, caller.peer() + ": " + why);
}

}  // namespace

Result<HostAndPort> rpcbind_locate(const RpcService& service, const RpcbindQuery& query) {
  HostAndPort found;
  const auto ask = [&](Caller& caller) {
    return locate(caller, service, query).map([&](const HostAndPort& at) { found = at; });
  };
  return Caller::ask_host("rpcbind", query.host, query.port,
                          {.deadline_ns = in_ms(query.timeout_ms), .longest_reply = kLongestList},
                          ask)
      .map([&] { return found; });
}

Result<uint16_t> rpcbind_lookup(const RpcService& service, const RpcbindQuery& query) {
  return rpcbind_locate(service, query).map([](const HostAndPort& at) { return at.port; });
}

}  // namespace rrdk
