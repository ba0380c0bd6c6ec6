// testrpc: measures ONC RPC over RDMA, as testpmd measures packets. doc/testrpc.md is its manual.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <string_view>

#include "audit.h"
#include "client_role.h"
#include "completion.h"
#include "file_limit.h"
#include "options.h"
#include "ranks.h"
#include "result_file.h"
#include "results_json.h"
#include "self_role.h"
#include "server_role.h"
#include "stop.h"

using namespace rrdk::testrpc;

namespace {

int run(const Options& options, ResultFiles& files, const Ranks& ranks) {
  switch (options.role) {
    case Role::kServer:
      return run_server(options);
    case Role::kClient:
      return run_client(options, files, ranks);
    case Role::kSelf:
      return run_self(options, files, ranks);
    case Role::kVersion:
      std::printf("%s\n", version_text().c_str());
      return 0;
    case Role::kHelp:
    case Role::kNone:
      break;
  }
  std::fputs(usage().c_str(), stdout);
  return 0;
}

// --self without a URI uses shm, too.
bool uses_shm(const Options& options) {
  return options.uri.empty() || options.uri.find("shm:") != std::string::npos;
}

int print_completion(std::string_view shell) {
  rrdk::Result<std::string> script = completion(shell);
  if (!script) {
    std::fprintf(stderr, "testrpc: %s\n", script.error().message.c_str());
    return 2;
  }
  std::fputs(script->c_str(), stdout);
  return 0;
}

// If descriptor 0, 1 or 2 is closed, the next socket would get it, and the table would be written
// there. Opens them for reading, so that writing fails instead.
void hold_standard_descriptors() {
  while (true) {
    const int fd = open("/dev/null", O_RDONLY);
    if (fd > STDERR_FILENO)
      close(fd);
    if (fd < 0 || fd > STDERR_FILENO)
      return;
  }
}

// Fails if the table could not be written, as on a full disk.
int end_with(int status) {
  if (rrdk::Result<void> closed = close_stdout(); !closed)
    return std::max(status, complain(closed.error()));
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  hold_standard_descriptors();
  // With this, writing beyond `ulimit -f` is an error of write(), like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  if (argc == 3 && std::string_view(argv[1]) == "--completion")
    return end_with(print_completion(argv[2]));
  rrdk::Result<Options> options = parse_options(argc, argv);
  if (!options) {
    std::fprintf(stderr, "testrpc: %s\n", options.error().message.c_str());
    return 2;
  }
  rrdk::Result<std::unique_ptr<Ranks>> ranks = Ranks::join(*options);
  if (!ranks) {
    complain(ranks.error());
    return 2;
  }
  const bool serves = options->role == Role::kServer;  // the number of its clients is unknown
  const std::string missing =
      raise_file_limit(serves ? UINT32_MAX : options->connections, uses_shm(*options));
  if (!missing.empty() && !serves)
    std::fprintf(stderr, "testrpc: %s\n", missing.c_str());
  count_allocations();
  rrdk::Result<ResultFiles> files = ResultFiles::open(*options);
  if (!(*ranks)->all(files.has_value()))
    return files ? 1 : complain(files.error());
  int status = run(*options, *files, **ranks);
  die_as_asked();
  return end_with(status);
}
