#include "self_role.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>

#include "audit.h"
#include "client_role.h"
#include "machine_limits.h"
#include "placement.h"
#include "rrdk/eal.h"
#include "rrdk/log.h"
#include "server_role.h"
#include "stop.h"

namespace rrdk::testrpc {
namespace {

constexpr int kServerEndMs = 10'000;
constexpr int kServerEndOnSignalMs = 1'000;

// A socket of the abstract name space (unix(7)), which disappears however the process ends.
std::string own_uri() {
  uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number)
    number = static_cast<uint64_t>(Runtime::now_ns());
  char uri[64];
  std::snprintf(uri, sizeof uri, "shm:@testrpc-%d-%016llx", getpid(),
                static_cast<unsigned long long>(number));
  return uri;
}

// Reads the whole object; returns false at the end of the pipe or after the timeout. A stop signal
// meanwhile shortens the timeout.
bool read_object(int fd, void* to, size_t size, int timeout_ms) {
  auto* next = static_cast<char*>(to);
  while (size != 0) {
    pollfd event = {fd, POLLIN, 0};
    int ready = poll(&event, 1, timeout_ms);
    if (ready < 0 && errno == EINTR) {
      if (stop_requested())
        timeout_ms = std::min(timeout_ms, kServerEndOnSignalMs);
      continue;
    }
    ssize_t n = ready > 0 ? ::read(fd, next, size) : 0;
    if (n <= 0)
      return false;
    next += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

// Sends the server's first message through the pipe: the URI at which it listens.
void tell_uri(int fd, const std::string& uri) {
  auto length = static_cast<uint32_t>(uri.size());
  if (::write(fd, &length, sizeof length) != sizeof length ||
      ::write(fd, uri.data(), uri.size()) != static_cast<ssize_t>(uri.size()))
    _exit(1);
}

// Receives that message. Empty: the server has ended instead, and printed why.
std::string hear_uri(int fd) {
  uint32_t length = 0;
  if (!read_object(fd, &length, sizeof length, -1) || length > 4096)
    return {};
  std::string uri(length, '\0');
  return read_object(fd, uri.data(), length, -1) ? uri : "";
}

int server_process(const Options& options, ServerSetup& setup, const std::vector<int>& cpus,
                   int report_fd) {
  if (Result<void> eal = start_eal(options); !eal)
    return complain({eal.error().code, "server: " + eal.error().message});
  Placement placement = place_both(options, cpus);
  setup.idle = placement.idle;
  setup.cpu = placement.server;
  setup.worker_cpus = placement.workers;
  Result<ServerReport> report = serve(options, setup);
  if (!report)
    return complain({report.error().code, "server: " + report.error().message});
  bool told = ::write(report_fd, &*report, sizeof *report) == sizeof *report;
  return told && report->pools_whole ? 0 : 1;
}

// The server dies with the client. It ignores stop signals (Ctrl-C, timeout(1)), which both
// processes get: the client handles them and tells the server to stop.
pid_t start_server(const Options& options, ServerSetup setup, const std::vector<int>& cpus,
                   int report_fd, int other_fd) {
  pid_t parent = getpid();
  pid_t child = fork();
  if (child != 0)
    return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent)
    _exit(1);
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE})
    std::signal(number, SIG_IGN);
  close(other_fd);
  if (log_level() == LogLevel::kInfo)  // the client logs the same about memory and hugepages
    set_log_level(LogLevel::kWarning);
  count_allocations_in(setup.page->allocations);
  setup.on_listening = [report_fd](const std::string& uri, uint16_t) { tell_uri(report_fd, uri); };
  int status = server_process(options, setup, cpus, report_fd);
  std::fflush(nullptr);
  _exit(status);
}

bool end_server(SharedPage& page, pid_t child, int report_fd) {
  page.stop = true;
  ServerReport report = {};
  bool reported = read_object(report_fd, &report, sizeof report, kServerEndMs);
  if (!reported)
    kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  if (!reported)
    std::fprintf(stderr, "testrpc: the server process ended without its report\n");
  return reported && report.pools_whole;
}

SharedPage* make_page() {
  void* memory =
      mmap(nullptr, sizeof(SharedPage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : new (memory) SharedPage;
}

int complain(const char* what) {
  std::fprintf(stderr, "testrpc: %s: %s\n", what, std::strerror(errno));
  return 1;
}

void print_placement(const std::string& uri, const Placement& placement, size_t cpus) {
  std::string where = placement.client < 0
                          ? "client and server share one CPU"
                          : "client on CPU " + std::to_string(placement.client) +
                                ", server on CPU " + std::to_string(placement.server);
  std::printf("%s; %s, both %s\n", uri.c_str(), where.c_str(), to_string(placement.idle));
  warn_of_crowd(2 + placement.workers.size(), cpus, placement.idle);
}

}  // namespace

int run_self(const Options& given, ResultFiles& files, const Ranks& ranks) {
  catch_stop_signals();  // before there is anything to clean up
  Options options = given;
  SharedPage* page = make_page();
  int ends[2];
  if (page == nullptr || pipe2(ends, O_CLOEXEC) != 0)
    return complain("cannot share memory and a pipe with the server process");
  std::vector<int> cpus = apps::allowed_cpus();
  std::vector<RunSpec> plan = make_plan(options);
  uint32_t size = options.interactive ? kDefaultMaxSize : largest_size(plan);

  ServerSetup server;
  server.uri = options.uri.empty() ? own_uri() : options.uri;
  // Any user of the host could connect to an abstract socket.
  server.only_client = options.uri.empty() ? getpid() : 0;
  server.max_size = size;
  server.page = page;
  Options of_server = options;
  of_server.faults.reset();
  of_server.capture.clear();
  of_server.metrics.clear();
  pid_t child = start_server(of_server, server, cpus, ends[1], ends[0]);
  if (child < 0)
    return complain("fork");
  close(ends[1]);
  std::string uri = [&] {
    const EndsAtOnce waiting("the server process starts");
    return hear_uri(ends[0]);
  }();
  if (uri.empty()) {
    int ended = 0;
    waitpid(child, &ended, 0);
    return WIFEXITED(ended) && WEXITSTATUS(ended) != 0 ? WEXITSTATUS(ended) : 1;
  }
  bool server_whole = false;
  bool ended = false;
  auto finish = [&] {
    ended = true;
    return server_whole = end_server(*page, child, ends[0]);
  };
  int status = 1;
  if (Result<void> eal = start_eal(options); eal) {
    Placement placement = place_both(options, cpus);
    print_placement(uri, placement, names_cores(options) ? eal_cpus().size() : cpus.size());
    ClientSetup client = {.ranks = ranks,
                          .targets = {uri},
                          .idle = placement.idle,
                          .cpu = placement.client,
                          .other_cpu = placement.server,
                          .page = page,
                          .files = &files,
                          .finish_server = finish};
    status = run_client(options, client);
  } else {
    status = complain(eal.error());
  }
  if (!ended)
    finish();
  return status;
}

}  // namespace rrdk::testrpc
