#include "options.h"

#include <algorithm>
#include <cstdio>

#include "engines.h"
#include "option_table.h"
#include "option_values.h"
#include "security.h"
#include "values.h"

namespace rrdk::testrpc {
namespace {

Result<void> apply(const Option& option, Options& options, const std::string& value) {
  Result<void> done = option.apply(options, value);
  if (!done)
    return fail(done.error().code, std::string("--") + option.name + ": " + done.error().message);
  return {};
}

// Takes argv[at] and, if the option needs a value, argv[at + 1]; returns how many it took.
Result<int> take_argument(Options& options, std::span<char*> argv, size_t at) {
  std::string_view word = argv[at];
  if (word == "-i") {
    options.interactive = true;
    return 1;
  }
  if (word == "-h" || word == "--help" || word == "-v" || word == "--version") {
    options.role = word.ends_with('n') || word == "-v" ? Role::kVersion : Role::kHelp;
    return 1;
  }
  if (!word.starts_with("--")) {
    bool known = find_option(word.substr(word.starts_with('-') ? 1 : 0)) != nullptr;
    return fail(Errc::kInvalidArgument,
                "'" + std::string(word) + "' is not an option" +
                    (known ? did_you_mean_option(word.substr(word.starts_with('-') ? 1 : 0))
                           : "; see --help"));
  }
  size_t equals = word.find('=');
  std::string_view name = word.substr(2, equals == std::string_view::npos ? equals : equals - 2);
  const Option* option = find_option(name);
  if (option == nullptr) {
    std::string meant = did_you_mean_option(name);
    return fail(Errc::kInvalidArgument, "unknown option '--" + std::string(name) + "'" +
                                            (meant.empty() ? "; see --help" : meant));
  }
  std::string value;
  int taken = 1;
  if (equals != std::string_view::npos) {
    if (option->argument == nullptr)
      return fail(Errc::kInvalidArgument, "--" + std::string(name) + " takes no value");
    value = word.substr(equals + 1);
  } else if (option->argument != nullptr && option->argument[0] != '[') {
    if (at + 1 >= argv.size())
      return fail(Errc::kInvalidArgument,
                  "--" + std::string(name) + " needs a value: " + option->argument);
    value = argv[at + 1];
    taken = 2;
  }
  options.given.emplace_back(option->name);
  return apply(*option, options, value).map([taken] { return taken; });
}

bool given(const Options& options, std::string_view name) {
  return std::ranges::find(options.given, name) != options.given.end();
}

uint8_t bit_of(Role role) {
  return role == Role::kServer ? kForServer : role == Role::kClient ? kForClient : kForSelf;
}

std::string names_of(uint8_t roles) {
  std::string text;
  for (auto [bit, name] : {std::pair{kForServer, "--server"}, std::pair{kForClient, "--client"},
                           std::pair{kForSelf, "--self"}}) {
    if ((roles & bit) != 0)
      text += (text.empty() ? "" : " and ") + std::string(name);
  }
  return text;
}

Result<void> refuse(const std::string& why) {
  return fail(Errc::kInvalidArgument, why);
}

// Refuses options that have no effect in this role: they were meant to have one.
Result<void> check_roles(const Options& options) {
  uint8_t role = bit_of(options.role);
  for (const std::string& name : options.given) {
    const Option* option = find_option(name);
    if ((option->roles & role) == 0)
      return refuse("--" + name + " is for " + names_of(option->roles) +
                    ", and does nothing with " + names_of(role));
  }
  return {};
}

bool calls_nfs3(const Options& options) {
  return std::ranges::any_of(options.engines,
                             [](const std::string& name) { return is_nfs3(*find_engine(name)); });
}

// Refuses options that need another one, which is missing.
Result<void> check_company(const Options& options) {
  if (given(options, "workers") && options.dispatch != Dispatch::kWorker)
    return refuse("--workers needs --dispatch worker: handlers run on the core that polls");
  if (options.histogram && options.json.empty())
    return refuse("--histogram needs --json FILE, where it goes");
  if (options.interval_s != 0 && options.json.empty())
    return refuse("--interval needs --json FILE, where it goes");
  for (const char* name : {"access", "nfs-export", "nfs-mount", "nfs-calls", "nfs-names"}) {
    if (given(options, name) && !calls_nfs3(options))
      return refuse(std::string("--") + name + " needs --engine nfs3");
  }
  if (given(options, "arrivals") && options.rate == 0 && !options.find_knee && !options.interactive)
    return refuse(
        "--arrivals needs --rate: in a closed loop replies say when the next call is made");
  if (options.find_knee && options.engines.empty())
    return refuse("--find-knee needs --engine: what is to be called");
  if (options.retransmit && !options.reconnect)
    return refuse("--retransmit needs --reconnect: calls are sent again on a new connection only");
  bool speaks_two = options.role == Role::kServer
                        ? options.version != RpcRdmaVersion::kOne
                        : options.version.value_or(RpcRdmaVersion::kOne) != RpcRdmaVersion::kOne;
  if (options.max_receive_size != 0 && !speaks_two)
    return refuse(
        "--max-receive-size needs --rpcrdma-version 2 or auto: in version 1 Receives "
        "stay as they are");
  if (options.size_changes != 0 && options.max_receive_size <= 4096)
    return refuse("--change-receive-size needs --max-receive-size BYTES above 4096, at both ends");
  return {};
}

Result<void> check_active(const Options& options) {
  for (uint32_t active : options.active) {
    if (active > options.connections)
      return refuse("--active " + std::to_string(active) +
                    " is more than --connections, which is " + std::to_string(options.connections));
  }
  return {};
}

Result<void> check_targets(const Options& options) {
  const size_t targets = options.targets.size();
  if (targets > 1 && calls_nfs3(options))
    return refuse("engine nfs3 works in one export: --client with one URI");
  if (options.connections < targets)
    return refuse("--connections " + std::to_string(options.connections) + " does not reach all " +
                  std::to_string(targets) + " servers of --client");
  return {};
}

Result<void> check_mix(const Options& options) {
  if (!options.weights.empty() && calls_nfs3(options))
    return refuse("engine nfs3 draws its sizes itself: --size without weights");
  return {};
}

Result<void> check_think(const Options& options) {
  if (options.think_us != 0 && options.rate != 0)
    return refuse("--think and --rate conflict: an open loop's calls are made when they are due");
  return {};
}

Result<void> check_conflicts(const Options& options) {
  if (options.count != 0 && options.duration_s != 0)
    return refuse("--count and --duration conflict: choose one");
  if (options.find_knee && (options.rate != 0 || options.count != 0 || options.interactive))
    return refuse("--find-knee chooses rates itself: leave out --rate, --count and -i");
  if (options.think_us != 0 && options.find_knee)
    return refuse("--think and --find-knee conflict: the knee is of callers that do not wait");
  if (options.find_knee && options.repeat != 1)
    return refuse("--find-knee and --repeat conflict: each of its runs has another rate");
  if (options.role == Role::kSelf && calls_nfs3(options))
    return refuse("engine nfs3 calls an NFS server, which --self does not start: use --client URI");
  if (options.max_receive_size != 0 && options.max_receive_size < options.inline_size)
    return refuse("--max-receive-size is below --inline");
  if (options.size_changes != 0 && options.rate != 0)
    return refuse("--change-receive-size and --rate conflict");
  if (options.rfc5666 && options.version.value_or(RpcRdmaVersion::kOne) != RpcRdmaVersion::kOne)
    return refuse(
        "--compat rfc5666 conflicts with --rpcrdma-version: it is "
        "about version 1");
  if (options.rfc5666 && std::ranges::find(options.engines, "callback") != options.engines.end())
    return refuse(
        "--compat rfc5666 has no calls of servers to their clients: name the other engines");
  return {};
}

Result<void> check_security(const Options& options) {
  if (options.role != Role::kServer && options.sec.size() > 1)
    return refuse("--sec has several names: only a server accepts calls of several kinds");
  if (!options.sec_target.empty() && !is_kerberos(sec_of(options)))
    return refuse("--target needs --sec krb5, krb5i or krb5p");
  if (!options.gss_tcp.empty() && std::ranges::none_of(options.sec, is_kerberos))
    return refuse("--gss-tcp needs krb5, krb5i or krb5p in --sec");
  return {};
}

Result<void> check_whole(const Options& options) {
  if (options.role == Role::kNone)
    return refuse("no role: give --server URI, --client URI or --self (--help says more)");
  const bool gap = std::ranges::find(options.targets, "") != options.targets.end();
  if ((options.uri.empty() && options.role != Role::kSelf) || gap)
    return refuse("the URI is empty: shm:/tmp/perf.sock, for example");
  for (auto check : {check_roles, check_company, check_targets, check_active, check_mix,
                     check_security, check_think, check_conflicts}) {
    if (Result<void> right = check(options); !right)
      return right;
  }
  return {};
}

}  // namespace

Result<Options> parse_options(int argc, char** argv) {
  std::span<char*> words(argv, static_cast<size_t>(argc));
  Options options;
  options.command.assign(words.begin(), words.end());
  words = words.subspan(std::min<size_t>(words.size(), 1));
  auto divider = std::ranges::find_if(words, [](char* w) { return std::string_view(w) == "--"; });
  if (divider != words.end()) {
    options.eal.assign(words.begin(), divider);
    for (const std::string& word : options.eal) {
      if (word == "-h" || word == "--help")
        return fail(Errc::kInvalidArgument,
                    "'" + word +
                        "' before -- would be EAL's: DPDK's guides have its arguments, and --help "
                        "alone lists those of testrpc");
    }
    words = words.subspan(static_cast<size_t>(divider - words.begin()) + 1);
  }
  for (size_t at = 0; at < words.size();) {
    Result<int> taken = take_argument(options, words, at);
    if (!taken)
      return tl::unexpected(taken.error());
    at += static_cast<size_t>(*taken);
    if (options.role == Role::kHelp || options.role == Role::kVersion)
      return options;
  }
  if (!given(options, "connections"))
    options.connections =
        std::max(options.connections, static_cast<uint32_t>(options.targets.size()));
  Result<void> whole = check_whole(options);
  if (!whole)
    return tl::unexpected(whole.error());
  return options;
}

std::vector<std::string> settable_options() {
  std::vector<std::string> names;
  for (const Option& option : option_table()) {
    if (option.kind == Kind::kRun)
      names.emplace_back(option.name);
  }
  return names;
}

std::vector<std::string> values_of(std::string_view name) {
  std::vector<std::string> values;
  const Option* option = find_option(name);
  std::string_view rest = option == nullptr || option->choices == nullptr ? "" : option->choices;
  while (!rest.empty()) {
    size_t end = std::min(rest.find(' '), rest.size());
    values.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return values;
}

std::string about_option(std::string_view name) {
  const Option* option = find_option(name);
  if (option == nullptr)
    return "";
  std::string value = option->argument != nullptr ? option->argument : "on|off";
  const bool may_be_off = option->choices != nullptr && std::string_view(option->choices) == "off";
  if (may_be_off && !value.ends_with("|off"))
    value += "|off";
  return std::string(name) + " " + value + ": " + option->help;
}

Result<void> set_option_name(std::string_view name) {
  const Option* option = find_option(name);
  if (option == nullptr) {
    std::vector<std::string> names = settable_options();
    std::string meant = did_you_mean(name, names);
    return refuse("there is no option '" + std::string(name) + "'" +
                  (meant.empty() ? "; 'set' lists them" : meant));
  }
  if (option->kind != Kind::kRun)
    return refuse("'" + std::string(name) + "' is fixed when testrpc starts");
  return {};
}

Result<void> set_option(Options& options, std::string_view name, const std::string& value) {
  if (Result<void> known = set_option_name(name); !known)
    return known;
  Options changed = options;
  if (name == "engine")
    changed.engines.clear();
  if (name == "size") {
    changed.sizes.clear();
    changed.weights.clear();
  }
  if (name == "window")
    changed.windows.clear();
  if (name == "active")
    changed.active.clear();
  if (name == "count")
    changed.duration_s = 0;
  if (name == "duration")
    changed.count = 0;
  Result<void> done = apply(*find_option(name), changed, value);
  if (!done)
    return done;
  if (changed.retransmit && !changed.reconnect)
    return refuse("retransmit needs --reconnect, which is given when testrpc starts");
  for (auto check : {check_active, check_mix, check_think}) {
    if (Result<void> right = check(changed); !right)
      return right;
  }
  options = changed;
  return {};
}

std::string show_settable(const Options& options) {
  auto joined = [](const auto& list, auto&& text) {
    std::string line;
    for (const auto& item : list)
      line += (line.empty() ? "" : ",") + std::string(text(item));
    return line.empty() ? std::string("(default)") : line;
  };
  auto same = [](const std::string& s) { return s; };
  auto size = [](uint32_t n) { return size_text(n); };
  auto count = [](uint32_t n) { return std::to_string(n); };
  auto on_off = [](bool on) { return std::string(on ? "on" : "off"); };
  std::string until = options.duration_s != 0 ? number_text(options.duration_s) + " s"
                      : options.count != 0    ? "off (count)"
                                              : "off (until stop)";
  std::string text;
  text += "engine " + joined(options.engines, same) + "\n";
  text += "size " +
          (options.weights.empty() ? joined(options.sizes, size)
                                   : mix_text(options.sizes, options.weights)) +
          "\n";
  text += "window " + joined(options.windows, count) + "\n";
  text += "active " + joined(options.active, count) + "\n";
  text += "duration " + until + "\n";
  text += "count " + (options.count == 0 ? "off" : std::to_string(options.count)) + "\n";
  text += "rate " +
          (options.rate == 0 ? "off (closed loop)" : number_text(options.rate) + " calls/s") + "\n";
  text += "arrivals " + to_string(options.arrivals) + "\n";
  text += "think " + (options.think_us == 0 ? "off" : number_text(options.think_us) + " us") + "\n";
  text += "warmup " +
          (options.warmup_s == 0 ? "off (short)" : number_text(options.warmup_s) + " s") + "\n";
  text += "repeat " + std::to_string(options.repeat) + "\n";
  text += "timeout " + std::to_string(options.timeout_ms) + " ms\n";
  text += "verify " + on_off(options.verify) + "\n";
  text += "segments " + std::to_string(options.segments) + "\n";
  text += "retransmit " + on_off(options.retransmit) + "\n";
  text += "change-receive-size " + std::to_string(options.size_changes) + "\n";
  text += "faults " + (options.faults ? to_string(*options.faults) : "off") + "\n";
  text += "capture " + (options.capture.empty() ? "off" : options.capture) + "\n";
  text += "seed " + std::to_string(options.seed) + "\n";
  return text;
}

const char* to_string(Dispatch dispatch) {
  return dispatch == Dispatch::kInline ? "inline" : "worker";
}

const char* to_string(RpcRdmaVersion version) {
  switch (version) {
    case RpcRdmaVersion::kOne:
      return "1";
    case RpcRdmaVersion::kTwo:
      return "2";
    case RpcRdmaVersion::kAuto:
      return "auto";
  }
  return "?";
}

const char* to_string(Access access) {
  switch (access) {
    case Access::kNear:
      return "near";
    case Access::kSequential:
      return "sequential";
    case Access::kRandom:
      break;
  }
  return "random";
}

const char* to_string(RpcRdmaDraft draft) {
  return draft == RpcRdmaDraft::kDraft00 ? "v2-00" : "v2-04";
}

const char* to_string(IdlePolicy policy) {
  switch (policy) {
    case IdlePolicy::kBusy:
      return "busy";
    case IdlePolicy::kYield:
      return "yield";
    case IdlePolicy::kAdaptive:
      break;
  }
  return "adaptive";
}

}  // namespace rrdk::testrpc
