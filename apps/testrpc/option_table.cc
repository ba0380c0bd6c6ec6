#include "option_table.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "option_values.h"
#include "pieces.h"

namespace rrdk::testrpc {
namespace {

constexpr uint32_t kDay = 24 * 3600 * 1000;  // milliseconds

constexpr Option kOptions[] = {
    {"server", "URI", Kind::kStart, Group::kRole, kEverybody, nullptr,
     "serve at URI until Ctrl-C or SIGTERM",
     [](Options& o, const std::string& v) { return take_role(o, Role::kServer, v); }},
    {"client", "URI[,URI...]", Kind::kStart, Group::kRole, kEverybody, nullptr,
     "call the server at URI; with several, the connections are distributed among them in turn",
     [](Options& o, const std::string& v) { return take_role(o, Role::kClient, v); }},
    {"self", "[=URI]", Kind::kStart, Group::kRole, kEverybody, nullptr,
     "both, in two processes: the quickest way to see numbers",
     [](Options& o, const std::string& v) { return take_role(o, Role::kSelf, v); }},
    {"engine", "NAME[,NAME...]", Kind::kRun, Group::kCalls, kCallers,
     "null echo read write sandwich read2 mixed callback all nfs3",
     "what to call: null, echo, read, write, sandwich, read2, mixed, callback; all of these; "
     "or nfs3. Neither --engine nor --size: a standard benchmark of 20 s",
     [](Options& o, const std::string& v) { return take_engines(o, v); }},
    {"size", "BYTES[,BYTES...]", Kind::kRun, Group::kCalls, kCallers,
     "0 1K 4K 64K 1M 4K-1M 4K:70,64K:25,1M:5",
     "data of each call (suffixes K, M; default 4K); one run per size; 4K-1M: 4K, 8K, 16K...;"
     " 4K:70,64K:25,1M:5: one run of all three, with these weights",
     [](Options& o, const std::string& v) { return take_sizes(o, v); }},
    {"window", "N[,N...]", Kind::kRun, Group::kCalls, kCallers, "1 8 32 1-64",
     "calls in flight per connection (default 1; with --rate 64); one run per window; 1-32: 1, 2,"
     " 4...",
     [](Options& o, const std::string& v) { return take_windows(o, v); }},
    {"connections", "N", Kind::kStart, Group::kCalls, kEverybody, nullptr,
     "connections of a client (default 1 to each server); a server takes what memory allows",
     [](Options& o, const std::string& v) {
       return take_count(o.connections, v, 1, kMostConnections);
     }},
    {"active", "N[,N...]", Kind::kRun, Group::kCalls, kCallers, nullptr,
     "how many connections call (default: all), while the others are idle; one run per number",
     [](Options& o, const std::string& v) { return take_active(o, v); }},
    {"memory", "BYTES", Kind::kStart, Group::kCalls, kEverybody, nullptr,
     "memory for buffers (suffixes K, M, G; default: a share of the free memory)",
     [](Options& o, const std::string& v) { return take_memory(o.memory, v); }},
    {"duration", "SECONDS", Kind::kRun, Group::kCalls, kCallers, "off",
     "length of each run (default 2)",
     [](Options& o, const std::string& v) { return take_positive(o.duration_s, v); }},
    {"count", "N", Kind::kRun, Group::kCalls, kCallers, "off",
     "calls of each run, instead of --duration",
     [](Options& o, const std::string& v) { return take_calls(o.count, v); }},
    {"warmup", "SECONDS", Kind::kRun, Group::kCalls, kCallers, "off",
     "before each run, make calls for this time that no figure counts (default: 16 for each call in"
     " flight, 1 s at most; 0.2 s with --rate)",
     [](Options& o, const std::string& v) { return take_positive(o.warmup_s, v); }},
    {"repeat", "N", Kind::kRun, Group::kCalls, kCallers, nullptr,
     "make each run N times, all runs in turns; the table then has medians and the spread",
     [](Options& o, const std::string& v) { return take_count(o.repeat, v, 1, 1000); }},
    {"rate", "CALLS_PER_SECOND", Kind::kRun, Group::kCalls, kCallers, "off",
     "open loop: calls are due on schedule whether or not earlier ones have ended, and latency"
     " counts from then",
     [](Options& o, const std::string& v) { return take_positive(o.rate, v); }},
    {"arrivals", "even|poisson|burst:N", Kind::kRun, Group::kCalls, kCallers,
     "even poisson burst:8",
     "with --rate: calls are due at equal intervals (default), at random as from many callers, or N"
     " at a time",
     [](Options& o, const std::string& v) { return take_arrivals(o, v); }},
    {"think", "MICROSECONDS", Kind::kRun, Group::kCalls, kCallers, "off",
     "closed loop: wait this time between a reply and the next call",
     [](Options& o, const std::string& v) { return take_positive(o.think_us, v); }},
    {"find-knee", nullptr, Kind::kStart, Group::kCalls, kCallers, nullptr,
     "instead of single runs, look for the rate up to which p99 stays within three times that of a"
     " light load; seven runs for each",
     [](Options& o, const std::string& v) { return take_switch(o.find_knee, v); }},
    {"timeout", "MS", Kind::kRun, Group::kCalls, kCallers, nullptr,
     "a call without a reply after this time ends as an error (default 5000)",
     [](Options& o, const std::string& v) { return take_count(o.timeout_ms, v, 1, 3600000); }},
    {"connect-timeout", "MS", Kind::kStart, Group::kCalls, kCallers, nullptr,
     "an attempt to connect fails after this time (default 10000); timeout=SECONDS of an address"
     " takes precedence",
     [](Options& o, const std::string& v) {
       return take_count(o.connect_timeout_ms, v, 1, 3600000);
     }},
    {"verify", nullptr, Kind::kRun, Group::kCalls, kCallers, "on off",
     "check every byte and checksum, at both ends",
     [](Options& o, const std::string& v) { return take_switch(o.verify, v); }},
    {"touch", nullptr, Kind::kStart, Group::kCalls, kEverybody, nullptr,
     "read every byte of received data, as a program would; client and server have this option"
     " separately",
     [](Options& o, const std::string& v) { return take_switch(o.touch, v); }},
    {"sec", "none|sys|krb5|krb5i|krb5p[,...]", Kind::kStart, Group::kCalls, kEverybody,
     "none sys krb5 krb5i krb5p",
     "how calls are secured: none (default), sys (AUTH_SYS with our user), or by Kerberos: krb5"
     " proves who calls, krb5i also protects data, krb5p also hides it; with --server a list of"
     " what is accepted (default none,sys)",
     [](Options& o, const std::string& v) { return take_sec(o, v); }},
    {"target", "SERVICE@HOST", Kind::kStart, Group::kCalls, kCallers, nullptr,
     "the server's service in Kerberos (default nfs@ and the host of its URI)",
     [](Options& o, const std::string& v) { return take_sec_target(o, v); }},
    {"auth", "none|sys", Kind::kStart, Group::kCalls, kCallers, "none sys",
     "an older name of --sec", [](Options& o, const std::string& v) { return take_sec(o, v); }},
    {"segments", "N", Kind::kRun, Group::kCalls, kCallers, nullptr,
     "offer the memory for each result in N segments (default 1)",
     [](Options& o, const std::string& v) { return take_count(o.segments, v, 1, 64); }},
    {"pieces", "N", Kind::kStart, Group::kCalls, kEverybody, nullptr,
     "send data out of N pieces of memory that lie apart (default 1), as a cache keeps it; client"
     " and server have this option separately",
     [](Options& o, const std::string& v) { return take_count(o.pieces, v, 1, Pieces::kMost); }},
    {"chunk-threshold", "BYTES", Kind::kStart, Group::kCalls, kCallers, nullptr,
     "smaller data travels inline (default 1K); 0: no data does",
     [](Options& o, const std::string& v) { return take_size(o.chunk_threshold, v); }},
    {"seed", "N", Kind::kRun, Group::kCalls, kCallers, nullptr,
     "for random values: offsets, Poisson arrivals, the calls of engine mixed (default 1)",
     [](Options& o, const std::string& v) { return take_count(o.seed, v, 0, UINT64_MAX); }},
    {"faults", "SPEC|off", Kind::kRun, Group::kCalls, kEverybody,
     "off send-error= read-error= write-error= receive-error= rnr= bind-error= delay-us= no-"
     "buffers= registration= seed=",
     "fault injection after connecting: send-error=0.001,delay-us=50:0.01,seed=7",
     [](Options& o, const std::string& v) { return take_faults(o, v); }},
    {"capture", "FILE|off", Kind::kRun, Group::kResults, kEverybody, "off",
     "write all messages into FILE, in pcapng format, for Wireshark; --self: the client's",
     [](Options& o, const std::string& v) { return take_capture(o, v); }},
    {"metrics", "PORT|HOST:PORT", Kind::kStart, Group::kResults, kEverybody, nullptr,
     "serve metrics by HTTP at /metrics, for Prometheus; --self: the client's",
     [](Options& o, const std::string& v) { return take_metrics(o, v); }},
    {"json", "FILE", Kind::kStart, Group::kResults, kCallers, nullptr,
     "results for programs; \"-\": to stdout, and the table to stderr",
     [](Options& o, const std::string& v) { return take_file(o.json, v); }},
    {"csv", "FILE", Kind::kStart, Group::kResults, kCallers, nullptr,
     "results for spreadsheets, a line for each run; \"-\" as with --json",
     [](Options& o, const std::string& v) { return take_file(o.csv, v); }},
    {"histogram", nullptr, Kind::kStart, Group::kResults, kCallers, nullptr,
     "each run's whole latency histogram in the JSON, too",
     [](Options& o, const std::string& v) { return take_switch(o.histogram, v); }},
    {"interval", "SECONDS", Kind::kStart, Group::kResults, kCallers, nullptr,
     "in the JSON, a latency histogram for each part of this length of a run, too; at least 0.01",
     [](Options& o, const std::string& v) { return take_interval(o.interval_s, v); }},
    {"stages", "N", Kind::kStart, Group::kResults, kEverybody, nullptr,
     "where the time of one call in N goes, at both ends; a testrpc server adds its part if its "
     "own N divides that (default 16)",
     [](Options& o, const std::string& v) {
       o.stages = 0;
       return take_count(*o.stages, v, 0, 1'000'000);
     }},
    {"outliers", "N", Kind::kStart, Group::kResults, kCallers, nullptr,
     "a run's N slowest calls, and what delayed them, below the table; in the JSON always (default "
     "8)",
     [](Options& o, const std::string& v) {
       o.outliers = 0;
       return take_count(*o.outliers, v, 0, 1000);
     }},
    {"dispatch", "inline|worker", Kind::kStart, Group::kThreads, kEverybody, "inline worker",
     "where the server's handlers run: on the core that polls (default), or on worker cores; a"
     " client's results are labelled with it",
     [](Options& o, const std::string& v) { return take_dispatch(o, v); }},
    {"workers", "N", Kind::kStart, Group::kThreads, kServers, nullptr,
     "worker threads, with --dispatch worker (default 1)",
     [](Options& o, const std::string& v) { return take_count(o.workers, v, 1, 64); }},
    {"idle", "busy|yield|adaptive", Kind::kStart, Group::kThreads, kEverybody,
     "busy yield adaptive",
     "what a core without work does: poll on, poll and yield (default), or sleep after 50 us. "
     "Only adaptive leaves the CPU to others. --self: busy if each thread has a CPU",
     [](Options& o, const std::string& v) { return take_idle(o, v); }},
    {"cpu", "N", Kind::kStart, Group::kThreads, kEnds, nullptr,
     "pin the main thread (default: the first core of -l in the EAL arguments; else a server is "
     "not pinned, and a client stays on its current CPU)",
     [](Options& o, const std::string& v) {
       o.cpu = 0;
       return take_count(*o.cpu, v, 0, 1023);
     }},
    {"poll-cpus", "N[,N...]", Kind::kStart, Group::kThreads, kForServer, nullptr,
     "dedicated poll threads on these CPUs, instead of the main thread",
     [](Options& o, const std::string& v) { return take_cpus(o.poll_cpus, v); }},
    {"credits", "N", Kind::kStart, Group::kTransport, kEverybody, nullptr,
     "calls that a server grants, and a client asks for, per connection (default 64; a client: its "
     "largest window, if that is more)",
     [](Options& o, const std::string& v) { return take_count(o.credits, v, 1, 4096); }},
    {"first-credits", "N", Kind::kStart, Group::kTransport, kServers, nullptr,
     "calls that a server grants a connection at first, and at least (default 4)",
     [](Options& o, const std::string& v) { return take_count(o.first_credits, v, 1, 4096); }},
    {"backward-credits", "N", Kind::kStart, Group::kTransport, kEverybody, nullptr,
     "the same for calls from the server, of engine callback (default: as --credits, up to 16)",
     [](Options& o, const std::string& v) { return take_count(o.backward_credits, v, 1, 4096); }},
    {"inline", "BYTES", Kind::kStart, Group::kTransport, kEverybody, nullptr,
     "size of Send and Receive buffers (default 4K)",
     [](Options& o, const std::string& v) { return take_buffer_size(o.inline_size, v); }},
    {"max-receive-size", "BYTES", Kind::kStart, Group::kTransport, kEverybody, nullptr,
     "version 2: the largest size to which Receives may grow (default: they do not grow)",
     [](Options& o, const std::string& v) { return take_buffer_size(o.max_receive_size, v); }},
    {"change-receive-size", "N", Kind::kRun, Group::kTransport, kCallers, nullptr,
     "version 2: the server's Receives change N times in each run",
     [](Options& o, const std::string& v) { return take_count(o.size_changes, v, 0, 1000000); }},
    {"rpcrdma-version", "1|2|auto", Kind::kStart, Group::kTransport, kEverybody, "1 2 auto",
     "the version that a client uses (default 1), or those that a server answers (default both)",
     [](Options& o, const std::string& v) { return take_version(o, v); }},
    {"rpcrdma-dialect", "v2-04|v2-00", Kind::kStart, Group::kTransport, kEverybody, "v2-04 v2-00",
     "the draft of version 2 (default v2-04)",
     [](Options& o, const std::string& v) { return take_draft(o, v); }},
    {"compat", "rfc5666", Kind::kStart, Group::kTransport, kEverybody, "rfc5666",
     "RFC 5666's CONF_RDMA, padded calls, replies that are read (doc/compat-rfc5666.md)",
     [](Options& o, const std::string& v) { return take_compat(o, v); }},
    {"rpcbind", nullptr, Kind::kStart, Group::kTransport, kEnds, nullptr,
     "the server registers its port with this host's rpcbind; a client asks the rpcbind of its"
     " server's host",
     [](Options& o, const std::string& v) { return take_switch(o.rpcbind, v); }},
    {"reconnect", nullptr, Kind::kStart, Group::kSurvival, kCallers, nullptr,
     "a lost connection is made again, and the run continues",
     [](Options& o, const std::string& v) { return take_switch(o.reconnect, v); }},
    {"retransmit", nullptr, Kind::kRun, Group::kSurvival, kCallers, "on off",
     "with --reconnect: calls that were lost with the connection are sent again",
     [](Options& o, const std::string& v) { return take_switch(o.retransmit, v); }},
    {"keepalive-ms", "MS", Kind::kStart, Group::kSurvival, kCallers, nullptr,
     "probe a server that is silent for this time, and drop the connection if it does not answer "
     "(default 0: off)",
     [](Options& o, const std::string& v) { return take_count(o.keepalive_ms, v, 0, 3600000); }},
    {"max-size", "BYTES", Kind::kStart, Group::kServer, kForServer, nullptr,
     "larger counts are refused (default 4M)",
     [](Options& o, const std::string& v) { return take_size(o.max_size, v); }},
    {"server-work", "NANOSECONDS", Kind::kStart, Group::kServer, kServers, nullptr,
     "the time that handlers compute before they answer a call (default 0)",
     [](Options& o, const std::string& v) {
       return take_count(o.server_work_ns, v, 0, 1'000'000'000);
     }},
    {"drain-timeout", "MS", Kind::kStart, Group::kServer, kForServer, nullptr,
     "how long calls may take to end after a signal (default 10000)",
     [](Options& o, const std::string& v) { return take_count(o.drain_timeout_ms, v, 0, kDay); }},
    {"max-connections", "N", Kind::kStart, Group::kServer, kServers, nullptr,
     "more connections at once are refused (default 65536)",
     [](Options& o, const std::string& v) {
       return take_count(o.max_connections, v, 1, UINT32_MAX);
     }},
    {"max-connections-per-client", "N", Kind::kStart, Group::kServer, kServers, nullptr,
     "more connections of one client, a process or a host, are refused (default: half of those "
     "that memory allows)",
     [](Options& o, const std::string& v) {
       return take_count(o.connections_per_client.emplace(), v, 0, kMostConnections);
     }},
    {"first-call-timeout", "MS", Kind::kStart, Group::kServer, kServers, nullptr,
     "close connections that make no call in this time after connecting (default 30000; 0: never)",
     [](Options& o, const std::string& v) {
       return take_count(o.first_call_timeout_ms, v, 0, kDay);
     }},
    {"idle-timeout", "MS", Kind::kStart, Group::kServer, kServers, nullptr,
     "close connections that have made no call for this time (default 0: never)",
     [](Options& o, const std::string& v) { return take_count(o.idle_timeout_ms, v, 0, kDay); }},
    {"send-timeout", "MS", Kind::kStart, Group::kServer, kServers, nullptr,
     "close connections that accept no reply for this time (default 60000; 0: never)",
     [](Options& o, const std::string& v) { return take_count(o.send_timeout_ms, v, 0, kDay); }},
    {"drc", "off|on|ENTRIES", Kind::kStart, Group::kServer, kServers, "off on",
     "answer repeated writes from a duplicate request cache (default off; on: 16 entries)",
     [](Options& o, const std::string& v) { return take_replay_cache(o, v); }},
    {"gss-tcp", "ADDRESS:PORT", Kind::kStart, Group::kServer, kForServer, nullptr,
     "with --sec krb5, krb5i or krb5p: contexts can also be made by TCP at this address, as"
     " callers like Linux's rpc.gssd do (0.0.0.0:2049)",
     [](Options& o, const std::string& v) { return take_gss_tcp(o, v); }},
    {"nfs-export", "PATH", Kind::kStart, Group::kNfs, kForClient, nullptr,
     "the export to work in (default /)",
     [](Options& o, const std::string& v) {
       o.nfs_export = v;
       return Result<void>{};
     }},
    {"nfs-mount", "PORT|HOST[:PORT]", Kind::kStart, Group::kNfs, kForClient, nullptr,
     "the MOUNT service (default: the URI's host; the port from its rpcbind, or 20048)",
     [](Options& o, const std::string& v) { return take_nfs_mount(o, v); }},
    {"nfs-calls", "NAME[,NAME...]", Kind::kStart, Group::kNfs, kForClient,
     "null getattr lookup readlink read write readdir",
     "null, getattr, lookup, readlink, read, write, readdir (default: all)",
     [](Options& o, const std::string& v) { return take_nfs_calls(o, v); }},
    {"access", "sequential|random", Kind::kStart, Group::kNfs, kForClient, "sequential random",
     "the positions of READ and WRITE in a file of 16 times the largest size (default: anywhere in "
     "a file of the largest size)",
     [](Options& o, const std::string& v) { return take_access(o, v); }},
    {"nfs-names", "N", Kind::kStart, Group::kNfs, kForClient, nullptr,
     "number of names in the listed folder (default 300)",
     [](Options& o, const std::string& v) { return take_count(o.nfs_names, v, 0, 100'000); }},
};

// Returns how many characters have to be inserted, deleted or changed (Levenshtein).
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row[b.size()];
}

}  // namespace

const char* title_of(Group group) {
  switch (group) {
    case Group::kRole:
      return "Role (one of these)";
    case Group::kCalls:
      return "What to call";
    case Group::kResults:
      return "Results";
    case Group::kThreads:
      return "Threads and CPUs";
    case Group::kTransport:
      return "Transport";
    case Group::kSurvival:
      return "Lost connections (clients)";
    case Group::kServer:
      return "How a server treats its clients";
    case Group::kNfs:
      return "Engine nfs3: NFSv3 servers";
  }
  return "";
}

std::span<const Option> option_table() {
  return kOptions;
}

const Option* find_option(std::string_view name) {
  auto it = std::ranges::find_if(kOptions, [&](const Option& o) { return name == o.name; });
  return it == std::end(kOptions) ? nullptr : it;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> names,
                         std::string_view prefix) {
  size_t best = word.size() < 4 ? 2 : word.size() < 8 ? 3 : 4;
  std::string found;
  for (const std::string& name : names) {
    bool begins = word.size() >= 3 && name.starts_with(word);
    size_t slips = begins ? 0 : distance(word, name);
    if (slips < best) {
      best = slips;
      found = name;
    }
  }
  return found.empty() ? "" : ", did you mean " + std::string(prefix) + found + "?";
}

std::string did_you_mean_option(std::string_view word) {
  std::vector<std::string> names = {"help", "version"};
  for (const Option& option : kOptions)
    names.emplace_back(option.name);
  return did_you_mean(word, names, "--");
}

}  // namespace rrdk::testrpc
