#include "options.h"

#include <algorithm>

#include "engines.h"
#include "option_values.h"
#include "values.h"

namespace rrdk::testrpc {
namespace {

enum class Kind : uint8_t {
  kStart,  // fixed when the process starts
  kRun,    // concerns the next run: interactive mode may set it
};

// One option: a table entry, from which the parser, the help and `set` are made.
struct Option {
  const char* name;
  const char* argument;  // null: none; in brackets: may be left out
  Kind kind;
  const char* help;
  Result<void> (*apply)(Options& options, const std::string& value);
};

constexpr uint32_t kDay = 24 * 3600 * 1000;  // milliseconds

constexpr Option kOptions[] = {
    {"server", "URI", Kind::kStart, "serve at URI, such as shm:/tmp/perf.sock, until Ctrl-C",
     [](Options& o, const std::string& v) { return take_role(o, Role::kServer, v); }},
    {"client", "URI", Kind::kStart, "call the server at URI",
     [](Options& o, const std::string& v) { return take_role(o, Role::kClient, v); }},
    {"self", "[=URI]", Kind::kStart, "both, as two processes over shared memory",
     [](Options& o, const std::string& v) { return take_role(o, Role::kSelf, v); }},
    {"engine", "NAME[,NAME...]", Kind::kRun,
     "what to call: null, echo, read, write, sandwich, read2, mixed, callback; all of them; or "
     "nfs3",
     [](Options& o, const std::string& v) { return take_engines(o, v); }},
    {"size", "BYTES[,BYTES...]", Kind::kRun, "data of each call (suffixes K, M); one run per size",
     [](Options& o, const std::string& v) { return take_sizes(o, v); }},
    {"window", "N[,N...]", Kind::kRun, "calls in flight per connection; one run per window",
     [](Options& o, const std::string& v) { return take_windows(o, v); }},
    {"connections", "N", Kind::kStart, "connections of a client (default 1); expected by a server",
     [](Options& o, const std::string& v) { return take_count(o.connections, v, 1, 8192); }},
    {"duration", "SECONDS", Kind::kRun, "length of each run",
     [](Options& o, const std::string& v) { return take_positive(o.duration_s, v); }},
    {"count", "N", Kind::kRun, "calls of each run, instead of --duration",
     [](Options& o, const std::string& v) { return take_count(o.count, v, 1, 1ull << 40); }},
    {"rate", "CALLS_PER_SECOND", Kind::kRun,
     "open loop: calls start on schedule, and latency counts from the scheduled start",
     [](Options& o, const std::string& v) { return take_positive(o.rate, v); }},
    {"timeout", "MS", Kind::kRun, "a call without reply ends after MS milliseconds (default 5000)",
     [](Options& o, const std::string& v) { return take_count(o.timeout_ms, v, 1, 3600000); }},
    {"verify", nullptr, Kind::kRun, "check every byte and checksum, at both ends",
     [](Options& o, const std::string& v) { return take_switch(o.verify, v); }},
    {"dispatch", "inline|worker", Kind::kStart, "where the server's handlers run (default inline)",
     [](Options& o, const std::string& v) { return take_dispatch(o, v); }},
    {"idle", "busy|yield|adaptive", Kind::kStart,
     "what a core without work does (default yield; --self: busy when there are two CPUs)",
     [](Options& o, const std::string& v) { return take_idle(o, v); }},
    {"json", "FILE", Kind::kStart, "write the results to FILE",
     [](Options& o, const std::string& v) {
       o.json = v;
       return Result<void>{};
     }},
    {"histogram", nullptr, Kind::kStart, "put each run's whole latency histogram into the JSON too",
     [](Options& o, const std::string& v) { return take_switch(o.histogram, v); }},
    {"cpu", "N", Kind::kStart, "pin the main thread to CPU N",
     [](Options& o, const std::string& v) {
       o.cpu = 0;
       return take_count(*o.cpu, v, 0, 1023);
     }},
    {"poll-cpus", "N[,N...]", Kind::kStart,
     "server: a dedicated poll thread on each CPU, instead of the main thread",
     [](Options& o, const std::string& v) { return take_cpus(o.poll_cpus, v); }},
    {"workers", "N", Kind::kStart, "server: worker threads with --dispatch worker (default 1)",
     [](Options& o, const std::string& v) { return take_count(o.workers, v, 1, 64); }},
    {"credits", "N", Kind::kStart, "calls outstanding per connection that are granted or asked for",
     [](Options& o, const std::string& v) { return take_count(o.credits, v, 1, 4096); }},
    {"backward-credits", "N", Kind::kStart,
     "the same of engine callback's other direction, at both ends (default: as --credits, up to "
     "16)",
     [](Options& o, const std::string& v) { return take_count(o.backward_credits, v, 1, 4096); }},
    {"inline", "BYTES", Kind::kStart, "size of Send and Receive buffers (default 4K)",
     [](Options& o, const std::string& v) { return take_buffer_size(o.inline_size, v); }},
    {"rpcrdma-version", "1|2|auto", Kind::kStart,
     "what a client speaks (default 1), or all that a server answers (default both)",
     [](Options& o, const std::string& v) { return take_version(o, v); }},
    {"rpcrdma-dialect", "v2-04|v2-00", Kind::kStart,
     "the draft that is meant by version 2 (default v2-04)",
     [](Options& o, const std::string& v) { return take_draft(o, v); }},
    {"max-receive-size", "BYTES", Kind::kStart,
     "version 2: up to what Receives may grow (default: they stay as they are)",
     [](Options& o, const std::string& v) { return take_buffer_size(o.max_receive_size, v); }},
    {"change-receive-size", "N", Kind::kRun,
     "client, version 2: while calls run, the server's Receives change N times, up to "
     "--max-receive-size and down",
     [](Options& o, const std::string& v) { return take_count(o.size_changes, v, 0, 1000000); }},
    {"compat", "rfc5666", Kind::kStart,
     "RFC 5666's CONF_RDMA, padded calls and replies that are read (doc/compat-rfc5666.md)",
     [](Options& o, const std::string& v) { return take_compat(o, v); }},
    {"chunk-threshold", "BYTES", Kind::kStart,
     "data below it travels inline (default 1K); 0: always in chunks",
     [](Options& o, const std::string& v) { return take_size(o.chunk_threshold, v); }},
    {"segments", "N", Kind::kRun, "split the room for each result into N segments (default 1)",
     [](Options& o, const std::string& v) { return take_count(o.segments, v, 1, 64); }},
    {"max-size", "BYTES", Kind::kStart, "server: larger counts are refused (default 4M)",
     [](Options& o, const std::string& v) { return take_size(o.max_size, v); }},
    {"drain-timeout", "MS", Kind::kStart,
     "server: how long a signal's clean end may take before the rest is closed (default 10000)",
     [](Options& o, const std::string& v) { return take_count(o.drain_timeout_ms, v, 0, kDay); }},
    {"max-connections-per-client", "N", Kind::kStart,
     "server: more of one process are refused (default 0: no limit)",
     [](Options& o, const std::string& v) {
       return take_count(o.connections_per_client, v, 0, 65536);
     }},
    {"idle-timeout", "MS", Kind::kStart,
     "server: closes connections without calls for so long (default 0: never)",
     [](Options& o, const std::string& v) { return take_count(o.idle_timeout_ms, v, 0, kDay); }},
    {"send-timeout", "MS", Kind::kStart,
     "server: closes those that take no replies for so long (default 60000; 0: never)",
     [](Options& o, const std::string& v) { return take_count(o.send_timeout_ms, v, 0, kDay); }},
    {"drc", "off|on|ENTRIES", Kind::kStart,
     "server: answer repeated writes from a duplicate request cache (default off; on: 512 entries)",
     [](Options& o, const std::string& v) { return take_replay_cache(o, v); }},
    {"faults", "SPEC|off", Kind::kRun,
     "let things fail on purpose, once connected: send-error=0.001,delay-us=50:0.01,seed=7",
     [](Options& o, const std::string& v) { return take_faults(o, v); }},
    {"reconnect", nullptr, Kind::kStart,
     "client: a connection that is lost is made again, and the run goes on",
     [](Options& o, const std::string& v) { return take_switch(o.reconnect, v); }},
    {"retransmit", nullptr, Kind::kRun,
     "with --reconnect: calls that were lost with their connection are sent again",
     [](Options& o, const std::string& v) { return take_switch(o.retransmit, v); }},
    {"keepalive-ms", "MS", Kind::kStart,
     "client: a server that is silent for so long is asked, and given up if it does not answer",
     [](Options& o, const std::string& v) { return take_count(o.keepalive_ms, v, 0, 3600000); }},
    {"nfs-export", "PATH", Kind::kStart, "engine nfs3: the export to work in (default /)",
     [](Options& o, const std::string& v) {
       o.nfs_export = v;
       return Result<void>{};
     }},
    {"nfs-mount", "PORT|HOST[:PORT]", Kind::kStart,
     "engine nfs3: the MOUNT service (default: the URI's host, as rpcbind says or port 20048)",
     [](Options& o, const std::string& v) { return take_nfs_mount(o, v); }},
    {"nfs-calls", "NAME[,NAME...]", Kind::kStart,
     "engine nfs3: null, getattr, lookup, readlink, read, write, readdir (default: all)",
     [](Options& o, const std::string& v) { return take_nfs_calls(o, v); }},
    {"nfs-names", "N", Kind::kStart, "engine nfs3: names in the folder that it lists (default 300)",
     [](Options& o, const std::string& v) { return take_count(o.nfs_names, v, 0, 100'000); }},
    {"rpcbind", nullptr, Kind::kStart,
     "the server's port is entered into its host's rpcbind, and looked up there by a client",
     [](Options& o, const std::string& v) { return take_switch(o.rpcbind, v); }},
    {"seed", "N", Kind::kRun, "of what is drawn at random: offsets, and engine mixed's calls",
     [](Options& o, const std::string& v) { return take_count(o.seed, v, 0, UINT64_MAX); }},
};

const Option* find_option(std::string_view name) {
  auto it = std::ranges::find_if(kOptions, [&](const Option& o) { return name == o.name; });
  return it == std::end(kOptions) ? nullptr : it;
}

Result<void> apply(const Option& option, Options& options, const std::string& value) {
  Result<void> done = option.apply(options, value);
  if (!done)
    return fail(done.error().code, std::string("--") + option.name + ": " + done.error().message);
  return {};
}

// Takes argv[at] and, where the option needs one, argv[at + 1]; returns how many it took.
Result<int> take_argument(Options& options, std::span<char*> argv, size_t at) {
  std::string_view word = argv[at];
  if (word == "-i") {
    options.interactive = true;
    return 1;
  }
  if (word == "-h" || word == "--help" || word == "--version") {
    options.role = word == "--version" ? Role::kVersion : Role::kHelp;
    return 1;
  }
  if (!word.starts_with("--"))
    return fail(Errc::kInvalidArgument, "'" + std::string(word) + "' is not an option; see --help");
  size_t equals = word.find('=');
  std::string_view name = word.substr(2, equals == std::string_view::npos ? equals : equals - 2);
  const Option* option = find_option(name);
  if (option == nullptr)
    return fail(Errc::kInvalidArgument, "unknown option '--" + std::string(name) + "'; see --help");
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
  return apply(*option, options, value).map([taken] { return taken; });
}

bool calls_nfs3(const Options& options) {
  return std::ranges::any_of(options.engines,
                             [](const std::string& name) { return is_nfs3(*find_engine(name)); });
}

Result<void> check_whole(const Options& options) {
  if (options.role == Role::kNone)
    return fail(Errc::kInvalidArgument, "no role: give --server URI, --client URI or --self");
  if (options.uri.empty() && options.role != Role::kSelf)
    return fail(Errc::kInvalidArgument, "the URI is empty: shm:/tmp/perf.sock, for example");
  if (options.count != 0 && options.duration_s != 0)
    return fail(Errc::kInvalidArgument, "--count and --duration conflict: choose one");
  if (options.role == Role::kServer && options.interactive)
    return fail(Errc::kInvalidArgument, "-i is for --client and --self");
  if (options.role == Role::kSelf && calls_nfs3(options))
    return fail(Errc::kInvalidArgument,
                "engine nfs3 calls an NFS server, which --self does not start: use --client URI");
  bool treats_clients =
      options.replay_cache || options.connections_per_client != 0 || options.idle_timeout_ms != 0;
  if (options.role == Role::kClient && treats_clients)
    return fail(Errc::kInvalidArgument,
                "--drc, --max-connections-per-client and --idle-timeout are for --server");
  if (options.max_receive_size != 0 && options.max_receive_size < options.inline_size)
    return fail(Errc::kInvalidArgument, "--max-receive-size is below --inline");
  if (options.size_changes != 0 && options.role == Role::kServer)
    return fail(Errc::kInvalidArgument, "--change-receive-size is for --client and --self");
  if (options.size_changes != 0 && options.max_receive_size <= 4096)
    return fail(Errc::kInvalidArgument,
                "--change-receive-size needs --max-receive-size BYTES above 4096, at both ends");
  if (options.size_changes != 0 && options.rate != 0)
    return fail(Errc::kInvalidArgument, "--change-receive-size and --rate conflict");
  if (options.role == Role::kServer && (options.reconnect || options.keepalive_ms != 0))
    return fail(Errc::kInvalidArgument,
                "--reconnect and --keepalive-ms are for --client and --self");
  if (options.rfc5666 && options.version.value_or(RpcRdmaVersion::kOne) != RpcRdmaVersion::kOne)
    return fail(Errc::kInvalidArgument,
                "--compat rfc5666 conflicts with --rpcrdma-version: it is "
                "about version 1");
  if (options.rfc5666 && std::ranges::find(options.engines, "callback") != options.engines.end())
    return fail(
        Errc::kInvalidArgument,
        "--compat rfc5666 has no calls of servers to their clients: name the other engines");
  if (options.retransmit && !options.reconnect)
    return fail(Errc::kInvalidArgument,
                "--retransmit needs --reconnect: calls are sent again on a new connection only");
  if (options.role == Role::kClient && !options.poll_cpus.empty())
    return fail(Errc::kInvalidArgument, "--poll-cpus is for --server");
  if (options.role == Role::kSelf && options.rpcbind)
    return fail(Errc::kInvalidArgument, "--rpcbind is for --server and --client");
  if (options.role == Role::kSelf && !options.poll_cpus.empty())
    return fail(Errc::kInvalidArgument, "--poll-cpus conflicts with --self, which places both");
  return {};
}

}  // namespace

Result<Options> parse_options(int argc, char** argv) {
  std::span<char*> words(argv, static_cast<size_t>(argc));
  words = words.subspan(std::min<size_t>(words.size(), 1));
  Options options;
  auto divider = std::ranges::find_if(words, [](char* w) { return std::string_view(w) == "--"; });
  if (divider != words.end()) {
    options.eal.assign(words.begin(), divider);
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
  Result<void> whole = check_whole(options);
  if (!whole)
    return tl::unexpected(whole.error());
  return options;
}

Result<void> set_option(Options& options, std::string_view name, const std::string& value) {
  const Option* option = find_option(name);
  if (option == nullptr)
    return fail(Errc::kInvalidArgument, "unknown option '" + std::string(name) + "'");
  if (option->kind != Kind::kRun)
    return fail(Errc::kInvalidArgument, "'" + std::string(name) + "' is fixed when testrpc starts");
  Options changed = options;
  if (name == "engine")
    changed.engines.clear();
  if (name == "count")
    changed.duration_s = 0;
  if (name == "duration")
    changed.count = 0;
  Result<void> done = apply(*option, changed, value);
  if (done)
    options = changed;
  return done;
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
  auto number = [](uint32_t n) { return std::to_string(n); };
  std::string text;
  text += "engine " + joined(options.engines, same) + "\n";
  text += "size " + joined(options.sizes, size) + "\n";
  text += "window " + joined(options.windows, number) + "\n";
  if (options.count != 0)
    text += "count " + std::to_string(options.count) + "\n";
  else
    text += "duration " +
            (options.duration_s == 0 ? "(until stop)" : std::to_string(options.duration_s)) + "\n";
  text += "rate " + (options.rate == 0 ? "(closed loop)" : std::to_string(options.rate)) + "\n";
  text += "timeout " + std::to_string(options.timeout_ms) + "\n";
  text += std::string("verify ") + (options.verify ? "on" : "off") + "\n";
  text += "segments " + std::to_string(options.segments) + "\n";
  text += "faults " + (options.faults ? to_string(*options.faults) : "off") + "\n";
  text += "seed " + std::to_string(options.seed) + "\n";
  return text;
}

std::string usage() {
  std::string text =
      "usage: testrpc [EAL options --] ROLE [options]\n"
      "Measures ONC RPC over RDMA. Without '--' all arguments are testrpc's own.\n\n";
  for (const Option& option : kOptions) {
    std::string left = std::string("  --") + option.name;
    if (option.argument != nullptr)
      left += (option.argument[0] == '[' ? "" : " ") + std::string(option.argument);
    left.resize(std::max<size_t>(left.size() + 1, 28), ' ');
    text += left + option.help + "\n";
  }
  text += "  -i                        interactive: start, stop, set, show, clear, quit, help\n";
  text += "  --help, --version\n";
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
