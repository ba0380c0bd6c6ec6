#include "option_values.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>

#include "engines.h"
#include "metrics_server.h"
#include "nfs3_site.h"
#include "option_table.h"
#include "values.h"

namespace rrdk::testrpc {

Result<void> take_role(Options& options, Role role, const std::string& uri) {
  if (options.role != Role::kNone)
    return fail(Errc::kInvalidArgument,
                "conflicts with another role: choose one of --server, "
                "--client and --self");
  options.role = role;
  options.uri = uri;
  if (role == Role::kClient)
    options.targets = split_uris(uri);
  return {};
}

Result<void> take_size(uint32_t& to, const std::string& value) {
  Result<uint32_t> parsed = parse_size(value, kLargestSize);
  if (!parsed)
    return tl::unexpected(parsed.error());
  to = *parsed;
  return {};
}

Result<void> take_memory(uint64_t& to, const std::string& value) {
  // The minimum for the size classes of a default process, and more than machines have.
  constexpr uint64_t kLeast = uint64_t{16} << 20;
  constexpr uint64_t kMost = uint64_t{1} << 44;
  Result<uint64_t> parsed = parse_bytes(value, kLeast, kMost);
  if (!parsed)
    return tl::unexpected(parsed.error());
  to = *parsed;
  return {};
}

Result<void> take_positive(double& to, const std::string& value) {
  if (value == "off") {
    to = 0;
    return {};
  }
  Result<double> parsed = parse_positive(value);
  if (!parsed)
    return tl::unexpected(parsed.error());
  to = *parsed;
  return {};
}

Result<void> take_interval(double& to, const std::string& value) {
  constexpr double kShortest = 0.01;  // a client checks that often
  Result<double> parsed = parse_positive(value);
  if (!parsed)
    return tl::unexpected(parsed.error());
  if (*parsed < kShortest)
    return fail(Errc::kInvalidArgument, "'" + value + "' is less than 0.01 seconds");
  to = *parsed;
  return {};
}

Result<void> take_calls(uint64_t& to, const std::string& value) {
  if (value != "off")
    return take_count(to, value, 1, uint64_t{1} << 40);
  to = 0;
  return {};
}

namespace {

std::string unknown_engine(const std::string& name) {
  std::vector<std::string> names = {"all", "nfs3"};
  for (const Engine& engine : all_engines())
    names.emplace_back(engine.name);
  return "unknown engine '" + name + "': there are " + engine_names() + ", and all" +
         did_you_mean(name, names);
}

}  // namespace

Result<void> take_engines(Options& options, const std::string& value) {
  std::vector<std::string> names;
  for (const std::string& name : split(value)) {
    if (name == "all") {
      for (const Engine& engine : all_engines())
        names.emplace_back(engine.name);
    } else if (find_engine(name) == nullptr) {
      return fail(Errc::kInvalidArgument, unknown_engine(name));
    } else {
      names.push_back(name);
    }
  }
  options.engines.insert(options.engines.end(), names.begin(), names.end());
  return {};
}

namespace {

// "FIRST-LAST" is FIRST, twice that, and so on, and LAST; anything else is one value. `parse`
// parses each.
template <typename Parse>
Result<void> take_range(std::vector<uint32_t>& values, const std::string& part, Parse&& parse) {
  const size_t dash = part.find('-', 1);  // not a sign
  Result<uint32_t> first = parse(part.substr(0, dash));
  if (!first || dash == std::string::npos) {
    if (first)
      values.push_back(*first);
    return first ? Result<void>() : tl::unexpected(first.error());
  }
  Result<uint32_t> last = parse(part.substr(dash + 1));
  if (!last)
    return tl::unexpected(last.error());
  if (*first == 0 || *first > *last)
    return fail(Errc::kInvalidArgument,
                "'" + part + "' is no range: it goes up from its first value, by doubling");
  for (uint64_t value = *first; value < *last; value *= 2)
    values.push_back(static_cast<uint32_t>(value));
  values.push_back(*last);
  return {};
}

template <typename Parse>
Result<void> take_ranges(std::vector<uint32_t>& to, const std::string& value, Parse&& parse) {
  std::vector<uint32_t> values;
  for (const std::string& part : split(value)) {
    if (Result<void> taken = take_range(values, part, parse); !taken)
      return taken;
  }
  to.insert(to.end(), values.begin(), values.end());
  return {};
}

Result<void> take_counts(std::vector<uint32_t>& counts, const std::string& value, uint32_t most) {
  return take_ranges(counts, value, [most](const std::string& part) {
    return parse_count(part, 1, most).map([](uint64_t count) {
      return static_cast<uint32_t>(count);
    });
  });
}

}  // namespace

namespace {

// "4K:70,64K:25": sizes with their weights.
Result<void> take_mix(Options& options, const std::string& value) {
  constexpr uint32_t kMostWeight = 1'000'000;
  for (const std::string& part : split(value)) {
    const size_t colon = part.find(':');
    if (colon == std::string::npos)
      return fail(Errc::kInvalidArgument,
                  "'" + part + "' has no weight, and others do: 4K:70,64K:30 is a mix");
    Result<uint32_t> size = parse_size(part.substr(0, colon), kLargestSize);
    if (!size)
      return tl::unexpected(size.error());
    Result<uint64_t> weight = parse_count(part.substr(colon + 1), 1, kMostWeight);
    if (!weight)
      return tl::unexpected(weight.error());
    options.sizes.push_back(*size);
    options.weights.push_back(static_cast<uint32_t>(*weight));
  }
  return {};
}

}  // namespace

Result<void> take_sizes(Options& options, const std::string& value) {
  const bool mix = value.find(':') != std::string::npos;
  if (!options.sizes.empty() && mix == options.weights.empty())
    return fail(Errc::kInvalidArgument,
                "a mix is one run, and sizes without weights are a run each: not both");
  if (mix)
    return take_mix(options, value);
  return take_ranges(options.sizes, value,
                     [](const std::string& part) { return parse_size(part, kLargestSize); });
}

Result<void> take_windows(Options& options, const std::string& value) {
  return take_counts(options.windows, value, 4096);
}

Result<void> take_active(Options& options, const std::string& value) {
  return take_counts(options.active, value, kMostConnections);
}

Result<void> take_arrivals(Options& options, const std::string& value) {
  Result<ArrivalPattern> pattern = parse_arrivals(value);
  if (!pattern)
    return tl::unexpected(pattern.error());
  options.arrivals = *pattern;
  return {};
}

Result<void> take_cpus(std::vector<int>& cpus, const std::string& value) {
  for (const std::string& part : split(value)) {
    Result<uint64_t> cpu = parse_count(part, 0, 1023);
    if (!cpu)
      return tl::unexpected(cpu.error());
    cpus.push_back(static_cast<int>(*cpu));
  }
  return {};
}

Result<void> take_replay_cache(Options& options, const std::string& value) {
  options.replay_cache = value != "off";
  if (value == "on" || value == "off")
    return {};
  return take_count(options.replay_entries, value, 1, 65536);
}

Result<void> take_dispatch(Options& options, const std::string& value) {
  if (value != "inline" && value != "worker")
    return fail(Errc::kInvalidArgument, "'" + value + "' is neither inline nor worker");
  options.dispatch = value == "inline" ? Dispatch::kInline : Dispatch::kWorker;
  return {};
}

Result<void> take_sec(Options& options, const std::string& value) {
  options.sec.clear();
  for (const std::string& name : split(value)) {
    const auto found = std::ranges::find(kSecNames, name);
    if (found == kSecNames.end())
      return fail(Errc::kInvalidArgument,
                  "'" + name + "' is not one of these: none, sys, krb5, krb5i, krb5p");
    options.sec.push_back(static_cast<Sec>(found - kSecNames.begin()));
  }
  return {};
}

Result<void> take_sec_target(Options& options, const std::string& value) {
  const size_t at = value.find('@');
  if (at == 0 || at >= value.size() - 1)
    return fail(
        Errc::kInvalidArgument,
        "'" + value + "' does not name a service and its host, as nfs@server.example.org does");
  options.sec_target = value;
  return {};
}

Result<void> take_gss_tcp(Options& options, const std::string& value) {
  const size_t colon = std::min(value.rfind(':'), value.size());
  const std::string host = value.substr(0, colon);
  const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  std::array<std::byte, sizeof(in6_addr)> address;
  const bool numeric =
      brackets ? inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &address) == 1
               : inet_pton(AF_INET, host.c_str(), &address) == 1;
  uint32_t port = 0;
  if (!numeric || colon == value.size() || !take_count(port, value.substr(colon + 1), 0, 65535))
    return fail(Errc::kInvalidArgument,
                "'" + value + "' is not a numeric address and a port, as 0.0.0.0:2049 is");
  options.gss_tcp = value;
  return {};
}

Result<void> take_idle(Options& options, const std::string& value) {
  for (IdlePolicy policy : {IdlePolicy::kBusy, IdlePolicy::kYield, IdlePolicy::kAdaptive}) {
    if (value == to_string(policy)) {
      options.idle = policy;
      return {};
    }
  }
  return fail(Errc::kInvalidArgument, "'" + value + "' is not busy, yield or adaptive");
}

Result<void> take_version(Options& options, const std::string& value) {
  for (RpcRdmaVersion version :
       {RpcRdmaVersion::kOne, RpcRdmaVersion::kTwo, RpcRdmaVersion::kAuto}) {
    if (value == to_string(version)) {
      options.version = version;
      return {};
    }
  }
  return fail(Errc::kInvalidArgument, "'" + value + "' is not 1, 2 or auto");
}

Result<void> take_draft(Options& options, const std::string& value) {
  for (RpcRdmaDraft draft : {RpcRdmaDraft::kDraft04, RpcRdmaDraft::kDraft00}) {
    if (value == to_string(draft)) {
      options.draft = draft;
      return {};
    }
  }
  return fail(Errc::kInvalidArgument, "'" + value + "' is neither v2-04 nor v2-00");
}

Result<void> take_compat(Options& options, const std::string& value) {
  if (value != "rfc5666")
    return fail(Errc::kInvalidArgument, "'" + value + "' is not rfc5666");
  options.rfc5666 = true;
  return {};
}

Result<void> take_buffer_size(uint32_t& to, const std::string& value) {
  Result<uint32_t> size = parse_size(value, 256u << 10);
  if (!size)
    return tl::unexpected(size.error());
  if (*size == 0 || *size % 1024 != 0)
    return fail(Errc::kInvalidArgument, "'" + value + "' is not a multiple of 1024");
  to = *size;
  return {};
}

Result<void> take_switch(bool& to, const std::string& value) {
  if (value != "" && value != "on" && value != "off")
    return fail(Errc::kInvalidArgument, "'" + value + "' is neither on nor off");
  to = value != "off";
  return {};
}

Result<void> take_file(std::string& to, const std::string& value) {
  if (value.empty())
    return fail(Errc::kInvalidArgument, "the file's name is empty");
  to = value;
  return {};
}

Result<void> take_metrics(Options& options, const std::string& value) {
  if (Result<void> right = apps::MetricsServer::check(value); !right)
    return right;
  options.metrics = value;
  return {};
}

Result<void> take_capture(Options& options, const std::string& value) {
  if (value == "-")
    return fail(Errc::kInvalidArgument,
                "stdout has the table: name a file, or a pipe that mkfifo(1) has made");
  Result<void> taken = take_file(options.capture, value);
  if (taken && value == "off")
    options.capture.clear();
  return taken;
}

Result<void> take_faults(Options& options, const std::string& value) {
  options.faults.reset();
  if (value == "off")
    return {};
  Result<FaultPlan> plan = parse_fault_plan(value);
  if (!plan)
    return tl::unexpected(plan.error());
  options.faults = *plan;
  return {};
}

Result<void> take_access(Options& options, const std::string& value) {
  if (value != "sequential" && value != "random")
    return fail(Errc::kInvalidArgument, "'" + value + "' is neither sequential nor random");
  options.access = value == "random" ? Access::kRandom : Access::kSequential;
  return {};
}

Result<void> take_nfs_mount(Options& options, const std::string& value) {
  options.nfs_mount = value;
  Result<nfs3::MountTarget> target = mount_target(value, "");
  return target ? Result<void>{} : tl::unexpected(target.error());
}

Result<void> take_nfs_calls(Options& options, const std::string& value) {
  Result<uint32_t> calls = parse_nfs3_calls(value);
  if (!calls)
    return tl::unexpected(calls.error());
  options.nfs_calls = *calls;
  return {};
}

}  // namespace rrdk::testrpc
