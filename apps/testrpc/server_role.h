// The server of the perf program.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "options.h"
#include "session.h"
#include "shared_page.h"

namespace rrdk::testrpc {

struct ServerSetup {
  std::string uri;
  IdlePolicy idle;
  uint32_t max_size = 0;  // bytes of data in one call
  int cpu = -1;           // to pin the main thread to
  std::vector<int> worker_cpus;
  SharedPage* page = nullptr;  // of --self
  pid_t only_client = 0;       // the only process that may connect over shm:; 0: any process
  // `gss_port`: where contexts are made by TCP, too; 0: nowhere.
  std::function<void(const std::string& uri, uint16_t gss_port)> on_listening;
};

// Serves until it is asked to stop; prints a table of what it served, unless it belongs to --self.
// Returns the error that ended it, or the report.
Result<ServerReport> serve(const Options& options, const ServerSetup& setup);

// Prints what was served; counters of rare events only if they are not zero.
void print_served(const Stats& stats, bool replay_cache);

// Runs --server; returns the exit status.
int run_server(const Options& options);

}  // namespace rrdk::testrpc
