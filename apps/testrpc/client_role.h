// The client: makes the runs one after the other, and reports them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "load.h"
#include "nfs3_site.h"
#include "options.h"
#include "plan.h"
#include "ranks.h"
#include "report.h"
#include "result_file.h"
#include "session.h"
#include "shared_page.h"

namespace rrdk::testrpc {

struct ClientSetup {
  const Ranks& ranks;
  std::vector<std::string> targets = {};  // URIs of servers
  IdlePolicy idle = IdlePolicy::kYield;
  int cpu = -1;                // to pin the main thread to
  int other_cpu = -1;          // the server's, or another one, for the cache-line round trip
  SharedPage* page = nullptr;  // of --self
  ResultFiles* files = nullptr;
  // Ends the server of --self; returns whether all buffers were back in its pools.
  std::function<bool()> finish_server = [] { return true; };
};

// A connected client: makes runs and keeps their results.
class Bench {
 public:
  static Result<std::unique_ptr<Bench>> open(const Options& options, const ClientSetup& setup,
                                             uint32_t max_window, uint32_t max_size,
                                             uint64_t in_flight);
  // Sets up what runs of nfs3 need at the server.
  Result<void> use_nfs3(const Options& options, uint32_t file_size);
  bool has_nfs3() const { return nfs3_ != nullptr; }

  // Makes one run; `keep_going` is called about every 10 ms. Returns false if no further run makes
  // sense. During the run, its result so far is the last of results().
  bool run(const RunSpec& spec, const Options& options, const RunPlace& place,
           const std::function<bool()>& keep_going);
  // Called before and after each line that a run prints while it lasts.
  struct Screen {
    std::function<void()> before = [] {}, after = [] {};
  };
  void use(Screen screen) { screen_ = std::move(screen); }

  Results results() const { return results_; }
  void clear_results();  // except the current run's
  void show_figures();   // so far, as SIGUSR1 asks for
  bool figures_shown() const { return figures_shown_; }
  bool capture_whole() const { return capture_whole_; }  // each that has ended
  uint32_t max_window() const { return max_window_; }
  // The current values of the first connection.
  ConnectionInfo negotiated() const { return session_->connections().front()->info(); }
  double connect_seconds() const { return session_->connect_seconds(); }
  uint32_t max_size() const { return max_size_; }
  bool connection_lost() const;
  // Returns whether `yes` is true at each rank. Every rank must call this.
  bool all_ranks(bool yes) const { return setup_->ranks.all(yes); }
  Result<void> set_faults(const std::optional<FaultPlan>& plan);
  Result<void> set_capture(const std::string& file);
  FaultCounts fault_counts() { return session_->runtime().fault_counts(); }

  // Disconnects; returns whether all buffers are back in the pools.
  bool close();

 private:
  double probe_line(uint32_t batches);
  void tell_stages(const RunSpec& spec, const Options& options, RunResult& result);
  void finish(const RunSpec& spec, const Options& options, double line_before, RunResult& result);

  const ClientSetup* setup_ = nullptr;
  Screen screen_;
  uint32_t max_window_ = 0;
  uint32_t max_size_ = 0;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Nfs3Site> nfs3_;
  std::unique_ptr<Load> load_;
  StageCollector stages_;
  std::vector<std::unique_ptr<RunResult>> results_;
  const RunResult* running_ = nullptr;  // the current run's, else null
  bool figures_shown_ = false;
  bool capture_whole_ = true;
};

// Connects, runs the plan or interactive mode, prints and writes the results. Returns the exit
// status.
int run_client(const Options& options, const ClientSetup& setup);

// --client
int run_client(const Options& options, ResultFiles& files, const Ranks& ranks);

// Prints the error; returns the exit status for it.
int complain(const Error& error);

}  // namespace rrdk::testrpc
