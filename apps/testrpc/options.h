// The options of the command line and of interactive mode's `set`.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arrivals.h"
#include "nfs3_kinds.h"
#include "rrdk/client.h"
#include "rrdk/error.h"
#include "rrdk/faults.h"
#include "rrdk/runtime.h"
#include "rrdk/server.h"

namespace rrdk::testrpc {

enum class Role { kNone, kServer, kClient, kSelf, kHelp, kVersion };

// The largest size of a call. It is within every limit of the transport's defaults.
constexpr uint32_t kLargestSize = 32u << 20;
constexpr uint32_t kDefaultMaxSize = 4u << 20;
constexpr uint32_t kMostConnections = 65536;

// How calls are secured, as NFS names it.
enum class Sec : uint8_t { kNone, kSys, kKrb5, kKrb5i, kKrb5p };
constexpr std::array<const char*, 5> kSecNames = {"none", "sys", "krb5", "krb5i", "krb5p"};

struct Options {
  Role role = Role::kNone;
  std::string uri;                   // empty with kSelf: testrpc chooses one
  std::vector<std::string> targets;  // a client's: the servers that `uri` names

  // What to call. Empty lists: the standard plan (plan.h).
  std::vector<std::string> engines;
  std::vector<uint32_t> sizes;
  std::vector<uint32_t> weights;  // of the sizes: a mix, in one run; empty: a run for each
  std::vector<uint32_t> windows;
  uint32_t connections = 1;
  std::vector<uint32_t> active;  // how many connections call in a run; empty: all
  uint64_t memory = 0;           // bytes of buffers; 0: a share of the free memory
  double duration_s = 0;         // of each run; 0: not given
  double warmup_s = 0;           // before each run; 0: as long as caches and pools need
  uint64_t count = 0;            // calls of each run; 0: not given
  uint32_t repeat = 1;           // how often each run is made
  double rate = 0;               // calls per second; 0: closed loop
  ArrivalPattern arrivals;       // with a rate
  double lead = 0;               // of a rank's arrivals: see Arrivals
  double think_us = 0;           // closed loop: between a reply and the next call; 0: none
  uint32_t timeout_ms = 5000;
  uint32_t connect_timeout_ms = ClientOptions{}.connect_timeout_ms;
  bool verify = false;
  bool touch = false;  // the receiver of data reads every byte
  // With a server, those that it accepts; otherwise the one that calls are made with. Empty: the
  // role's own.
  std::vector<Sec> sec;
  std::string sec_target;  // the server's service, as "nfs@host"; empty: nfs@ and its host
  uint64_t seed = 1;
  uint32_t segments = 1;            // of each memory range offered for results
  uint32_t pieces = 1;              // of memory from which each item of data is sent
  uint32_t chunk_threshold = 1024;  // smaller data travels inline

  // How to run.
  Dispatch dispatch = Dispatch::kInline;
  std::optional<IdlePolicy> idle;
  std::optional<int> cpu;
  std::vector<int> poll_cpus;  // server: dedicated poll threads
  uint32_t workers = 1;        // server, with Dispatch::kWorker
  uint32_t credits = 64;
  uint32_t backward_credits = 0;  // 0: as `credits`, 16 at most
  uint32_t inline_size = 4096;
  uint32_t max_receive_size = 0;          // 0: inline_size
  uint32_t size_changes = 0;              // a client's: of the server's Receives, in each run
  std::optional<RpcRdmaVersion> version;  // a client's: 1; a server's: those of kAuto
  RpcRdmaDraft draft = RpcRdmaDraft::kDraft04;
  bool rfc5666 = false;  // its compatibility mode
  uint32_t max_size = kDefaultMaxSize;
  bool reconnect = false;
  bool retransmit = false;    // needs reconnect
  uint32_t keepalive_ms = 0;  // 0: off

  // How a server treats its clients.
  uint32_t drain_timeout_ms = 10'000;
  uint32_t max_connections = ServerOptions{}.max_connections;
  std::optional<uint32_t> connections_per_client;
  uint32_t first_credits = ServerOptions{}.first_credits;
  uint32_t first_call_timeout_ms = ServerOptions{}.first_call_timeout_ms;
  uint32_t idle_timeout_ms = 0;
  uint32_t send_timeout_ms = ServerOptions{}.send_timeout_ms;
  uint32_t server_work_ns = 0;  // computing time of a handler for each call
  bool replay_cache = false;
  uint32_t replay_entries = ReplayOptions{}.entries;
  std::string gss_tcp;              // where contexts are made by TCP, too; empty: nowhere
  std::optional<FaultPlan> faults;  // of this process; --self: the client's

  // The NFS server that engine nfs3 calls.
  std::string nfs_export = "/";
  std::string nfs_mount;  // its MOUNT service: PORT, HOST or HOST:PORT; empty: asked from rpcbind
  uint32_t nfs_calls = kAllNfs3Calls;
  Access access = Access::kNear;
  uint32_t nfs_names = 300;  // in the folder that is listed
  bool rpcbind = false;      // the port is registered with the rpcbind of the server's host

  std::string metrics;  // address to serve metrics by HTTP; empty: none. --self: the client's
  bool find_knee = false;
  std::string json;     // "-": stdout
  std::string csv;      // likewise
  std::string capture;  // the file for a capture of this process' messages; empty: none. --self:
                        // the client's
  bool histogram = false;
  double interval_s = 0;           // of each histogram over time; 0: none
  std::optional<uint32_t> stages;  // sample one call in this many; empty: no table of stages
  std::optional<uint32_t>
      outliers;  // how many of a run's slowest calls to keep; if given, also print them
  bool interactive = false;

  std::vector<std::string> eal;

  std::vector<std::string> command;  // the whole command line
  std::vector<std::string> given;    // the names of the options in it
};

// Parses argv: EAL arguments, "--", testrpc's; without "--" all are testrpc's. An Error's message
// is one line; its exit status is 2.
Result<Options> parse_options(int argc, char** argv);

// Sets one option by its name without dashes. For interactive mode, which may change only options
// of the next run: what to call, not how to run.
Result<void> set_option(Options& options, std::string_view name, const std::string& value);

// Succeeds if set_option() accepts the name.
Result<void> set_option_name(std::string_view name);
// Returns the names that set_option() accepts.
std::vector<std::string> settable_options();
// Returns the completions for a value of the option; empty if any value is possible.
std::vector<std::string> values_of(std::string_view name);
// Returns "rate CALLS_PER_SECOND|off: open loop: ...", or an empty string.
std::string about_option(std::string_view name);
// Returns the names that set_option() accepts with their values, one "name value" per line.
std::string show_settable(const Options& options);

std::string usage();

const char* to_string(Dispatch dispatch);
const char* to_string(IdlePolicy policy);
const char* to_string(Access access);
const char* to_string(RpcRdmaVersion version);
const char* to_string(RpcRdmaDraft draft);

}  // namespace rrdk::testrpc
