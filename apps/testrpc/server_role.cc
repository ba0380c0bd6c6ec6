#include "server_role.h"

#include <poll.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <optional>

#include "audit.h"
#include "client_role.h"
#include "directory.h"
#include "machine_limits.h"
#include "perf_program.h"
#include "placement.h"
#include "poll_loop.h"
#include "report.h"
#include "rrdk/eal.h"
#include "rrdk/server.h"
#include "security.h"
#include "server_prompt.h"
#include "service_manager.h"
#include "stages.h"
#include "stop.h"

namespace rrdk::testrpc {
namespace {

constexpr uint32_t kAlign = 64;  // of data in calls that are padded: a cache line

// What a server process owns. Members are destroyed in reverse order: the server first, the memory
// last.
struct Serving {
  std::unique_ptr<Memory> memory;
  std::unique_ptr<PerfServer> perf;
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<StageService> stages;
  std::unique_ptr<GssAcceptor> keys;
  std::unique_ptr<Server> server;
};

Result<Serving> set_up(const Options& options, const ServerSetup& setup) {
  Serving s;
  Result<std::unique_ptr<Memory>> memory = take_memory(options, setup.max_size);
  if (!memory)
    return tl::unexpected(memory.error());
  s.memory = std::move(*memory);
  Result<std::unique_ptr<PerfServer>> perf = PerfServer::create(
      *s.memory, setup.max_size, options.touch, options.pieces, options.server_work_ns);
  if (!perf)
    return tl::unexpected(perf.error());
  s.perf = std::move(*perf);
  RuntimeOptions runtime_options = {
      .poll_cpus = options.poll_cpus, .worker_cpus = setup.worker_cpus, .idle = setup.idle};
  runtime_options.stamp_every = options.stages.value_or(runtime_options.stamp_every);
  Result<std::unique_ptr<Runtime>> runtime = Runtime::create(*s.memory, runtime_options);
  if (!runtime)
    return tl::unexpected(runtime.error());
  s.runtime = std::move(*runtime);
  RpcRdmaVersion answered =
      options.version.value_or(options.rfc5666 ? RpcRdmaVersion::kOne : RpcRdmaVersion::kAuto);
  ServerOptions server_options = {.versions = {.one = answered != RpcRdmaVersion::kTwo,
                                               .two = answered != RpcRdmaVersion::kOne,
                                               .draft = options.draft},
                                  .credits = options.credits,
                                  .first_credits = options.first_credits,
                                  .inline_size = options.inline_size,
                                  .max_call = largest_message(setup.max_size),
                                  .max_reply = largest_message(setup.max_size),
                                  .backward_credits = backward_credits(options),
                                  .max_connections = options.max_connections,
                                  .first_call_timeout_ms = options.first_call_timeout_ms,
                                  .idle_timeout_ms = options.idle_timeout_ms,
                                  .send_timeout_ms = options.send_timeout_ms,
                                  .version2 = {.max_receive_size = options.max_receive_size}};
  server_options.max_connections_per_client =
      options.connections_per_client.value_or(server_options.max_connections_per_client);
  server_options.replay.entries = options.replay_cache ? options.replay_entries : 0;
  server_options.max_chunk_bytes =
      std::max(server_options.max_chunk_bytes, largest_message(setup.max_size));
  server_options.rfc5666 = {.enabled = options.rfc5666, .align = kAlign};
  if (setup.only_client != 0) {
    server_options.on_open = [](ServerConnection& connection, void* pid) -> Result<void> {
      const std::optional<ProcessIdentity>& process = connection.peer().process;
      if (process && process->pid == *static_cast<const pid_t*>(pid))
        return {};
      return fail(Errc::kPermission, "this server serves its own client only");
    };
    server_options.connection_argument = const_cast<pid_t*>(&setup.only_client);
  }
  Result<std::unique_ptr<GssAcceptor>> keys = take_keys(options, largest_message(setup.max_size));
  if (!keys)
    return tl::unexpected(keys.error());
  s.keys = std::move(*keys);
  server_options.gss = s.keys.get();
  Result<std::unique_ptr<Server>> server = Server::create(*s.runtime, server_options);
  if (!server)
    return tl::unexpected(server.error());
  s.server = std::move(*server);
  Service perf_service = s.perf->service(options.dispatch, options.replay_cache);
  perf_service.accepts = acceptance_of(options);
  Result<void> added = s.server->add_service(perf_service);
  if (!added)
    return tl::unexpected(added.error());
  s.stages = std::make_unique<StageService>(*s.runtime);
  if (added = s.server->add_service(s.stages->service()); !added)
    return tl::unexpected(added.error());
  return s;
}

// May look up a name.
Result<std::string> listen(Server& server, const std::string& uri) {
  const EndsAtOnce beginning("the server begins to listen");
  return server.listen(uri);
}

void tell_figures_if_asked(const Serving& s, const Options& options) {
  if (!take_figures_request())
    return;
  print_served(s.server->stats(), options.replay_cache);
  std::printf("so far; the server goes on, with %" PRIu64 " connections\n",
              s.server->stats()[Counter::kConnections]);
  std::fflush(stdout);
}

// Without a prompt, a signal interrupts the sleep; one that came just before it costs 100 ms.
void wait_until_stopped(const Serving& s, const Options& options, ServiceManager& manager,
                        ServerPrompt* prompt) {
  while (!stop_requested() && (prompt == nullptr || prompt->look(100))) {
    if (prompt == nullptr)
      poll(nullptr, 0, 100);
    tell_figures_if_asked(s, options);
    manager.beat();
  }
}

void poll_until_stopped(Serving& s, const Options& options, const ServerSetup& setup,
                        ServiceManager& manager, ServerPrompt* prompt) {
  PollLoop loop(*s.runtime, setup.idle);
  SharedPage* page = setup.page;
  if (page == nullptr) {
    while (!stop_requested() && (prompt == nullptr || prompt->look_now_and_then())) {
      loop.step();
      tell_figures_if_asked(s, options);
      manager.beat();
    }
    return;
  }
  GapWatch watch(page->gaps);
  while (!page->stop.load(std::memory_order_relaxed)) {
    if (page->line.wanted()) {
      watch.connections_changed();
      page->registrations = s.memory->registrations();
      page->preemptions = preemptions();
      page->server = thread_state(watch);
      apps::answer(page->line);
      watch.start(Runtime::now_ns());
    }
    loop.step();
    watch.pass();
  }
}

}  // namespace

void print_served(const Stats& stats, bool replay_cache) {
  std::printf("\nserved %" PRIu64 " calls on %" PRIu64 " connections\n",
              stats[Counter::kCallsReceived], stats[Counter::kConnectionsAccepted]);
  auto row = [](const char* name, uint64_t value) {
    std::printf("  %-22s %" PRIu64 "\n", name, value);
  };
  row("replies", stats[Counter::kRepliesSent]);
  row("rejected calls", stats[Counter::kCallsRejected]);
  row("transport errors", stats[Counter::kTransportErrorsSent]);
  row("protocol breaches", stats[Counter::kProtocolBreaches]);
  row("connections refused", stats[Counter::kConnectionsRefused]);
  row("connections ended", stats[Counter::kConnectionsEnded]);
  row("bytes read", stats[Counter::kRdmaReadBytes]);
  row("bytes written", stats[Counter::kRdmaWrittenBytes]);
  auto row_if_any = [&](const char* name, uint64_t value) {
    if (value != 0)
      row(name, value);
  };
  row_if_any("calls to clients", stats[Counter::kCallsMade]);
  row_if_any("of these failed", stats[Counter::kCallsFailed]);
  row_if_any("refused per client", stats[Counter::kConnectionsRefusedPerClient]);
  row_if_any("closed idle", stats[Counter::kClosedIdle]);
  row_if_any("closed silent", stats[Counter::kClosedSilent]);
  row_if_any("closed for room", stats[Counter::kClosedForRoom]);
  row_if_any("closed stalled", stats[Counter::kClosedStalled]);
  row_if_any("calls not run", stats[Counter::kCallsNotRun]);
  row_if_any("waited for a share", stats[Counter::kWaitsShare]);
  row_if_any("failed again", stats[Counter::kCallsFailedAgain]);
  for (Refusal reason : all_refusals())
    row_if_any(to_string(reason), stats[reason]);
  row_if_any("configured", stats[Counter::kRfc5666Configured]);
  row_if_any("padded calls", stats[Counter::kRfc5666PaddedCalls]);
  row_if_any("replies read", stats[Counter::kRfc5666ReadReplies]);
  row_if_any("RDMA_DONE", stats[Counter::kRfc5666Dones]);
  if (!replay_cache)
    return;
  row("replies kept", stats[Counter::kReplayKept]);
  row("answered again", stats[Counter::kReplayAnswered]);
  row("waited for the first", stats[Counter::kReplayWaits]);
  row("forgotten", stats[Counter::kReplayForgotten]);
  row("kept without reply", stats[Counter::kReplayNotKept]);
  row("answered SYSTEM_ERR", stats[Counter::kReplayLost]);
  row("run unprotected", stats[Counter::kReplayUnprotected]);
  row("refused", stats[Counter::kReplayRefused]);
  row_if_any("clients forgotten early", stats[Counter::kReplayMadeWay]);
}

namespace {

// Called after the first signal. A second one ends the process.
void drain(Server& server, uint32_t timeout_ms) {
  uint64_t connections = server.stats()[Counter::kConnections];
  if (connections != 0) {
    std::printf("draining %" PRIu64 " connections; a second signal ends at once\n", connections);
    std::fflush(stdout);
  }
  uint32_t closed = server.drain(timeout_ms);
  if (closed != 0)
    std::printf("not drained in %u ms: %u connections with unanswered calls were closed\n",
                timeout_ms, closed);
}

}  // namespace

Result<ServerReport> serve(const Options& options, const ServerSetup& setup) {
  Result<void> eal = start_eal(options);
  if (!eal)
    return tl::unexpected(eal.error());
  Result<Serving> made = set_up(options, setup);
  if (!made)
    return tl::unexpected(made.error());
  Serving& s = *made;
  if (setup.cpu >= 0 && !apps::pin_to_cpu(setup.cpu))
    return fail(Errc::kInvalidArgument,
                "CPU " + std::to_string(setup.cpu) + " does not exist or is not ours to use");
  if (Result<void> begun = begin_capture(*s.runtime, options.capture); !begun)
    return tl::unexpected(begun.error());
  Result<std::string> listening = listen(*s.server, setup.uri);
  if (!listening)
    return tl::unexpected(listening.error());
  Result<Telling> begun =
      Telling::start({.runtime = s.runtime.get(), .servers = {s.server.get()}}, options.metrics);
  if (!begun)
    return tl::unexpected(begun.error());
  std::optional<Telling> telling = std::move(*begun);
  Listing listing;
  if (options.rpcbind) {
    const EndsAtOnce entering("rpcbind is told");
    Result<Listing> entered = Listing::enter(*listening);
    if (!entered)
      return tl::unexpected(entered.error());
    listing = std::move(*entered);
  }
  if (options.faults) {
    if (Result<void> set = s.runtime->set_faults(*options.faults); !set)
      return tl::unexpected(set.error());
  }
  setup.on_listening(*listening, s.keys != nullptr ? s.keys->tcp_port() : 0);
  ServiceManager manager(*s.runtime);
  if (setup.page == nullptr)
    manager.ready(*listening);
  std::unique_ptr<ServerPrompt> prompt;
  if (options.interactive && setup.page == nullptr)
    prompt = std::make_unique<ServerPrompt>(*s.server, *s.runtime, options);
  if (s.runtime->embedded())
    poll_until_stopped(s, options, setup, manager, prompt.get());
  else
    wait_until_stopped(s, options, manager, prompt.get());
  const bool captures_whole = prompt == nullptr || prompt->capture_whole();
  prompt.reset();
  listing = {};
  if (setup.page == nullptr) {
    manager.stopping();
    drain(*s.server, options.drain_timeout_ms);
  }
  Stats stats = s.server->stats();
  if (setup.page == nullptr)
    print_served(stats, options.replay_cache);
  if (options.faults)
    print_faults(s.runtime->fault_counts());
  const bool capture_whole = end_capture(*s.runtime) && captures_whole;
  telling.reset();
  s.perf->callbacks().release();
  s.server.reset();
  s.perf->callbacks().clear();
  s.runtime.reset();
  return ServerReport{.pools_whole = s.memory->whole(),
                      .capture_whole = capture_whole,
                      .calls = stats[Counter::kCallsReceived],
                      .rejected = stats[Counter::kCallsRejected]};
}

namespace {

size_t polling_threads(const Options& options) {
  return std::max<size_t>(1, options.poll_cpus.size()) +
         (options.dispatch == Dispatch::kWorker ? options.workers : 0);
}

std::string busy_cpus(size_t busy) {
  return busy == 1 ? "a CPU" : std::to_string(busy) + " CPUs";
}

int pinned_cpu(const Options& options) {
  if (options.cpu)
    return *options.cpu;
  return names_cores(options) && !eal_cpus().empty() ? eal_cpus().front() : -1;
}

}  // namespace

int run_server(const Options& options) {
  catch_stop_signals(HangUp::kAsksForFiguresWithoutTerminal);
  ServerSetup setup;
  setup.uri = options.uri;
  setup.idle = options.idle.value_or(IdlePolicy::kYield);
  setup.max_size = options.max_size;
  setup.cpu = options.cpu.value_or(-1);
  if (options.dispatch == Dispatch::kWorker)
    setup.worker_cpus.assign(options.workers, -1);
  const size_t cpus = apps::allowed_cpus().size();  // before EAL pins this thread
  setup.on_listening = [&](const std::string& uri, uint16_t gss_port) {
    const size_t threads = polling_threads(options);
    if (setup.idle != IdlePolicy::kAdaptive)
      std::printf("idle policy %s: this keeps %s busy even without calls; --idle adaptive sleeps\n",
                  to_string(setup.idle), busy_cpus(std::min(threads, cpus)).c_str());
    warn_of_crowd(threads, cpus, setup.idle);
    if (options.connections != 1)
      std::printf("--connections has no effect here: --memory limits how many clients connect\n");
    warn_of_neighbours(pinned_cpu(options), setup.idle);
    if (gss_port != 0)
      std::printf("contexts of Kerberos are also made at TCP port %u\n", gss_port);
    std::printf("listening on %s\n", uri.c_str());
    std::fflush(stdout);
  };
  Result<ServerReport> report = serve(options, setup);
  if (!report)
    return complain(report.error());
  std::printf("pools whole: %s\n", report->pools_whole ? "yes" : "NO");
  return report->pools_whole && report->capture_whole ? 0 : 1;
}

}  // namespace rrdk::testrpc
