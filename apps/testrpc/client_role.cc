#include "client_role.h"

#include <algorithm>
#include <cstdio>

#include "audit.h"
#include "directory.h"
#include "interactive.h"
#include "knee.h"
#include "machine_limits.h"
#include "placement.h"
#include "repetitions.h"
#include "report.h"
#include "results_csv.h"
#include "results_json.h"
#include "stop.h"
#include "values.h"

namespace rrdk::testrpc {
namespace {

// Between the pieces of a run the probe must be short; before and after a run it can be thorough.
constexpr uint32_t kShortProbe = 20;
constexpr uint32_t kLongProbe = 200;

bool all_right(Results results) {
  return std::ranges::all_of(results, [](const auto& r) { return r->flawless(); });
}

// Finds the knee of each of the plan's runs.
std::vector<Knee> find_knees(Bench& bench, const std::vector<RunSpec>& plan,
                             const Options& options) {
  std::vector<Knee> knees;
  for (const RunSpec& spec : plan) {
    const RunPlace place = {knees.size() * kKneeRuns, plan.size() * kKneeRuns,
                            options.warmup_s + options.duration_s};
    std::optional<Knee> knee =
        find_knee(bench, spec, options, place, [] { return !stop_requested(); });
    if (!knee)
      break;
    knees.push_back(*std::move(knee));
  }
  return knees;
}

// Makes the repetitions of all rows in turns, so that slow changes affect all rows alike.
void run_plan(Bench& bench, const std::vector<RunSpec>& plan, const Options& options) {
  const size_t runs = plan.size() * options.repeat;
  for (size_t i = 0; i < runs; ++i) {
    const size_t row = i % plan.size();
    const RunPlace place = {i, runs, options.warmup_s + options.duration_s, row};
    if (!bench.run(plan[row], options, place, [] { return !stop_requested(); }))
      return;
  }
}

Result<void> write_results(ResultFiles& files, const JsonInput& input) {
  if (!files.json.wanted() && !files.csv.wanted())
    return {};
  const std::string json = to_json(input);
  Result<void> written;
  if (files.json.wanted())
    written = files.json.write(json);
  if (!files.csv.wanted())
    return written;
  if (!written)
    complain(written.error());
  Result<void> table = files.csv.write(to_csv(json));
  return table ? written : table;
}

// Makes all setup work before faults are injected.
Result<void> prepare(Bench& bench, const std::vector<RunSpec>& plan, const Options& options) {
  if (has_nfs3(plan)) {
    const uint32_t span = options.access == Access::kNear ? 1 : kAccessSpan;
    if (Result<void> ready = bench.use_nfs3(options, span * largest_size(plan)); !ready)
      return ready;
  }
  return bench.set_faults(options.faults);
}

}  // namespace

int complain(const Error& error) {
  std::fprintf(stderr, "testrpc: %s\n", in_own_words(error.message).c_str());
  return error.code == Errc::kBadUri || error.code == Errc::kInvalidArgument ? 2 : 1;
}

Result<std::unique_ptr<Bench>> Bench::open(const Options& options, const ClientSetup& setup,
                                           uint32_t max_window, uint32_t max_size,
                                           uint64_t in_flight) {
  auto bench = std::make_unique<Bench>();
  bench->setup_ = &setup;
  bench->max_window_ = max_window;
  bench->max_size_ = max_size;
  Result<std::unique_ptr<Session>> session =
      Session::open(options, setup.targets, setup.idle, max_size);
  if (!session)
    return tl::unexpected(session.error());
  bench->session_ = std::move(*session);
  Result<std::unique_ptr<Load>> load =
      Load::create(*bench->session_, setup.targets, max_window, in_flight);
  if (!load)
    return tl::unexpected(load.error());
  bench->load_ = std::move(*load);
  return bench;
}

Result<void> Bench::use_nfs3(const Options& options, uint32_t file_size) {
  Result<std::unique_ptr<Nfs3Site>> site = Nfs3Site::create(
      *session_, options, setup_->targets.front(), load_->slots(), file_size, max_size_);
  if (!site)
    return tl::unexpected(site.error());
  nfs3_ = std::move(*site);
  load_->use(*nfs3_);
  return {};
}

Result<void> Bench::set_faults(const std::optional<FaultPlan>& plan) {
  if (plan)
    return session_->runtime().set_faults(*plan);
  session_->runtime().clear_faults();
  return {};
}

Result<void> Bench::set_capture(const std::string& file) {
  capture_whole_ = end_capture(session_->runtime()) && capture_whole_;
  return begin_capture(session_->runtime(), file);
}

double Bench::probe_line(uint32_t batches) {
  if (setup_->other_cpu < 0)
    return 0;
  return setup_->page != nullptr ? apps::ping(setup_->page->line, batches)
                                 : apps::cache_line_round_trip_ns(setup_->other_cpu, batches);
}

bool Bench::run(const RunSpec& spec, const Options& options, const RunPlace& place,
                const std::function<bool()>& keep_going) {
  results_.push_back(std::make_unique<RunResult>());
  RunResult* result = results_.back().get();
  result->began = utc_now();
  result->row = place.row;
  result->repeated = options.repeat != 1;
  running_ = result;
  LiveLine live;
  SharedPage* page = setup_->page;
  Memory& memory = session_->memory();
  RunHooks hooks;
  hooks.tick = [&](const RunResult& so_far, Histogram& recent) {
    if (take_figures_request())
      show_figures();
    if (live.due()) {
      screen_.before();
      live.print(so_far, recent);
      screen_.after();
    }
    return keep_going();
  };
  // Between the pieces of a run only the server of --self can be probed without disturbing it.
  hooks.probe_line = [&] { return page != nullptr ? probe_line(kShortProbe) : 0; };
  hooks.allocations = [&] {
    return allocations() + (page != nullptr ? page->allocations.load() : 0);
  };
  hooks.registrations = [&] {
    return memory.registrations() + (page != nullptr ? page->registrations.load() : 0);
  };
  const bool with_stages = options.stages.value_or(0) != 0;
  hooks.begin = [&] {
    setup_->ranks.meet();
    if (with_stages)
      stages_.begin(spec.engine->binding());  // the last call is that of the measurement
  };
  if (with_stages) {
    hooks.stages = &stages_;
    // A server without stages is not asked again.
    hooks.between = [&, asks = true]() mutable {
      if (!asks)
        return;
      const std::vector<ServedCalls> served =
          ask_server(session_->connections(), spec.engine->binding());
      asks = std::ranges::any_of(served, &ServedCalls::told);
      stages_.join(session_->runtime(), served);
    };
  }
  if (setup_->idle == IdlePolicy::kBusy)
    hooks.preemptions = [&] {
      return preemptions() + (page != nullptr ? page->preemptions.load() : 0);
    };
  if (page != nullptr) {
    hooks.server = &page->server;
    hooks.server_gaps = &page->gaps;
  }
  double line_before = page == nullptr && setup_->ranks.size() == 1 ? probe_line(kLongProbe) : 0;
  screen_.before();
  live.begin(spec, options.rate, place);
  screen_.after();
  load_->run(spec, setup_->ranks.share_of(options), hooks, *result);
  tell_stages(spec, options, *result);
  finish(spec, options, line_before, *result);
  running_ = nullptr;
  return setup_->ranks.all(!result->connection_lost && !stop_requested());
}

// Collects where the time of calls went, if requested, and asks the server for its part.
void Bench::tell_stages(const RunSpec& spec, const Options& options, RunResult& result) {
  const bool table = options.stages.value_or(0) != 0;
  const Binding& binding = spec.engine->binding();
  std::vector<ServedCalls> served;
  if ((table || options.outliers) && !result.connection_lost)
    served = ask_server(session_->connections(), binding);
  if (table) {
    stages_.join(session_->runtime(), served);
    result.stages = stages_.told();
  }
  for (Outlier& call : result.outliers)
    if (call.stamps)
      call.steps = steps_of(*call.stamps, served);
}

// Adds the limits of this machine, or, with several ranks, combines the results of all.
void Bench::finish(const RunSpec& spec, const Options& options, double line_before,
                   RunResult& result) {
  if (setup_->ranks.size() > 1) {
    setup_->ranks.add_up(result);
    result.rate = options.rate;
    result.count = options.count;
    result.seed = options.seed;
    return;
  }
  if (setup_->page == nullptr) {
    result.noise.line_before_ns = line_before;
    result.noise.line_after_ns = probe_line(kLongProbe);
    result.line_ns = (line_before + result.noise.line_after_ns) / 2;
    if (result.line_ns > 0)
      result.p50_per_line = static_cast<double>(result.latency.percentile(50)) / result.line_ns;
  }
  result.memcpy_bytes_per_s = load_->memcpy_limit(spec, options.touch);
}

// The user wants the figures now, and accepts that printing them disturbs the current run.
void Bench::show_figures() {
  figures_shown_ = true;
  screen_.before();
  const std::vector<std::unique_ptr<RunResult>> rows = by_row(results_);
  print_table(rows);
  print_remarks(rows);
  if (running_ != nullptr)
    std::printf("the last run is not over\n");
  std::fflush(stdout);
  screen_.after();
}

void Bench::clear_results() {
  std::erase_if(results_, [&](const auto& r) { return r.get() != running_; });
}

bool Bench::connection_lost() const {
  return std::ranges::any_of(results_, [](const auto& r) { return r->connection_lost; });
}

bool Bench::close() {
  session_->runtime().clear_faults();
  capture_whole_ = end_capture(session_->runtime()) && capture_whole_;
  load_.reset();
  if (nfs3_ != nullptr) {
    if (Result<void> cleared = nfs3_->clear(); !cleared)
      complain(cleared.error());
    nfs3_.reset();
  }
  return session_->close();
}

namespace {

Result<std::unique_ptr<Bench>> open_bench(const Options& options, const ClientSetup& setup,
                                          const std::vector<RunSpec>& plan) {
  if (Result<void> eal = start_eal(options); !eal)
    return tl::unexpected(eal.error());
  uint32_t max_size =
      options.interactive ? std::max(largest_size(plan), kInteractiveMaxSize) : largest_size(plan);
  uint32_t max_window = options.interactive ? std::max(largest_window(plan), kInteractiveMaxWindow)
                                            : largest_window(plan);
  if (setup.cpu >= 0 && !apps::pin_to_cpu(setup.cpu))
    return fail(Errc::kInvalidArgument,
                "CPU " + std::to_string(setup.cpu) + " does not exist or is not ours to use");
  warn_of_neighbours(setup.cpu, setup.idle);
  uint64_t in_flight = most_in_flight(plan);
  if (options.interactive)
    in_flight = std::max(in_flight, uint64_t{options.connections} * max_window * max_size);
  return Bench::open(options, setup, max_window, max_size, in_flight);
}

}  // namespace

int run_client(const Options& given, const ClientSetup& setup) {
  Options options = given;
  std::vector<RunSpec> plan = make_plan(options);
  std::string began = utc_now();
  Result<std::unique_ptr<Bench>> opened = open_bench(options, setup, plan);
  if (!setup.ranks.all(opened.has_value()))
    return opened ? 1 : complain(opened.error());
  Bench& bench = **opened;
  Result<void> ready = prepare(bench, plan, options);
  if (!setup.ranks.all(ready.has_value())) {
    bench.close();
    return ready ? 1 : complain(ready.error());
  }
  const ConnectionInfo negotiated = bench.negotiated();
  print_negotiated(negotiated);
  if (setup.ranks.size() > 1)
    std::printf("%d ranks are one load; the rates per second are those of this rank\n",
                setup.ranks.size());
  std::vector<Knee> knees;
  if (options.interactive)
    run_interactive(bench, given);
  else if (options.find_knee)
    knees = find_knees(bench, plan, options);
  else
    run_plan(bench, plan, options);
  FaultCounts faults = bench.fault_counts();
  double connect_seconds = bench.connect_seconds();
  bool pools_whole = bench.close();
  pools_whole = setup.ranks.all(setup.finish_server() && pools_whole);
  Audit audit = make_audit(bench.results(), pools_whole);
  if (options.interactive && audit.reason.empty())
    audit.reason = "including those of the prompt";
  if (!options.metrics.empty() && audit.reason.empty())
    audit.reason = "including those of scrapes";
  if (bench.figures_shown() && audit.reason.empty())
    audit.reason = "including those of the figures on request";
  if (!options.capture.empty() && audit.reason.empty())
    audit.reason = "including those of the capture";
  const std::vector<std::unique_ptr<RunResult>> rows = by_row(bench.results());
  print_table(rows);
  print_remarks(rows);
  std::ranges::for_each(knees, print_knee);
  if (given.faults)
    print_faults(faults);
  print_audit(audit);
  std::fflush(stdout);
  std::vector<int> cpus;  // the server's only with --self
  if (setup.cpu >= 0)
    cpus.push_back(setup.cpu);
  if (setup.cpu >= 0 && setup.page != nullptr && setup.other_cpu >= 0)
    cpus.push_back(setup.other_cpu);
  Result<void> written =
      write_results(*setup.files, {options, setup.targets, rows, audit, setup.idle, cpus, began,
                                   connect_seconds, negotiated, knees, setup.ranks.hosts()});
  if (!written)
    return complain(written.error());
  bool right = all_right(bench.results()) && (options.interactive || !bench.results().empty());
  return right && pools_whole && bench.capture_whole() ? 0 : 1;
}

namespace {

// Finds the servers' addresses and this client's CPU.
Result<void> find_places(const Options& options, ClientSetup& setup) {
  setup.targets = options.targets;
  for (std::string& uri : setup.targets) {
    if (!options.rpcbind)
      break;
    const EndsAtOnce asking("rpcbind is asked");
    Result<std::string> found = with_listed_port(uri);
    if (!found)
      return tl::unexpected(found.error());
    uri = *found;
  }
  std::vector<int> cpus = apps::allowed_cpus();  // before EAL pins this thread to its first core
  if (Result<void> eal = start_eal(options); !eal)
    return eal;
  // Ranks arrive here at the same time and would all find the same CPU free, so mpirun places them.
  if (setup.ranks.size() > 1 && !options.cpu && !names_cores(options))
    return {};
  setup.cpu = client_cpu(options, cpus);
  for (int cpu : cpus) {
    if (cpus.size() >= 2 && cpu != setup.cpu)
      setup.other_cpu = cpu;
  }
  return {};
}

}  // namespace

int run_client(const Options& options, ResultFiles& files, const Ranks& ranks) {
  catch_stop_signals();
  ClientSetup setup = {.ranks = ranks};
  setup.files = &files;
  setup.idle = options.idle.value_or(IdlePolicy::kYield);
  Result<void> found = find_places(options, setup);
  if (!ranks.all(found.has_value()))
    return found ? 1 : complain(found.error());
  return run_client(options, setup);
}

}  // namespace rrdk::testrpc
