#include "self_role.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "audit.h"
#include "client_role.h"
#include "server_role.h"
#include "stop.h"

namespace rrdk::testrpc {
namespace {

constexpr int kServerEndMs = 10'000;

// A place for the socket that nobody else uses; gone with the object.
class SocketFolder {
 public:
  SocketFolder() {
    const char* parent = std::getenv("TMPDIR");
    path_ = std::string(parent != nullptr ? parent : "/tmp") + "/testrpc-XXXXXX";
    made_ = mkdtemp(path_.data()) != nullptr;
  }
  ~SocketFolder() {
    if (!made_)
      return;
    unlink((path_ + "/socket").c_str());
    rmdir(path_.c_str());
  }
  SocketFolder(const SocketFolder&) = delete;
  SocketFolder& operator=(const SocketFolder&) = delete;

  bool made() const { return made_; }
  std::string uri() const { return "shm:" + path_ + "/socket"; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool made_;
};

// Where the two run, and how they idle. Busy only when nobody has to share a CPU.
struct Placement {
  int client = -1;
  int server = -1;
  std::vector<int> workers;
  IdlePolicy idle = IdlePolicy::kYield;
};

Placement place(const Options& options) {
  std::vector<int> cpus = apps::allowed_cpus();
  Placement p;
  size_t workers = options.dispatch == Dispatch::kWorker ? options.workers : 0;
  if (cpus.size() >= 2) {
    p.client = cpus[0];
    p.server = cpus[1];
  }
  for (size_t i = 0; i < workers; ++i)
    p.workers.push_back(2 + i < cpus.size() ? cpus[2 + i] : -1);
  bool room_for_all = cpus.size() >= 2 + workers;
  p.idle = options.idle.value_or(room_for_all ? IdlePolicy::kBusy : IdlePolicy::kYield);
  return p;
}

// Reads the whole object; false at the end of the pipe or when it takes too long.
bool read_object(int fd, void* to, size_t size, int timeout_ms) {
  auto* next = static_cast<char*>(to);
  while (size != 0) {
    pollfd event = {fd, POLLIN, 0};
    int ready = poll(&event, 1, timeout_ms);
    if (ready < 0 && errno == EINTR)
      continue;
    ssize_t n = ready > 0 ? read(fd, next, size) : 0;
    if (n <= 0)
      return false;
    next += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

int server_process(const Options& options, const ServerSetup& setup, int report_fd) {
  Result<ServerReport> report = serve(options, setup);
  if (!report) {
    std::fprintf(stderr, "testrpc: server: %s\n", report.error().message.c_str());
    return 1;
  }
  bool told = write(report_fd, &*report, sizeof *report) == sizeof *report;
  return told && report->pools_whole ? 0 : 1;
}

// Dies with the client, and leaves signals to it, which both get: Ctrl-C, or timeout(1).
pid_t start_server(const Options& options, ServerSetup setup, int report_fd, int other_fd) {
  pid_t parent = getpid();
  pid_t child = fork();
  if (child != 0)
    return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent)
    _exit(1);
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  close(other_fd);
  count_allocations_in(setup.page->allocations);
  setup.on_listening = [report_fd](const std::string&) {
    char ready = 1;
    if (write(report_fd, &ready, 1) != 1)
      _exit(1);
  };
  int status = server_process(options, setup, report_fd);
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

}  // namespace

int run_self(const Options& given) {
  Options options = given;
  SocketFolder folder;
  if (!folder.made())
    return complain(("cannot make a folder like " + folder.path()).c_str());
  SharedPage* page = make_page();
  int ends[2];
  if (page == nullptr || pipe2(ends, O_CLOEXEC) != 0)
    return complain("cannot share memory and a pipe with the server process");
  Placement placement = place(options);
  std::string uri = options.uri.empty() ? folder.uri() : options.uri;
  std::vector<RunSpec> plan = make_plan(options);
  uint32_t size = options.interactive ? kDefaultMaxSize : largest_size(plan);
  uint32_t window = options.interactive ? 64 : largest_window(plan);

  ServerSetup server = {.uri = uri,
                        .idle = placement.idle,
                        .scale = {options.connections, window, size},
                        .cpu = placement.server,
                        .worker_cpus = placement.workers,
                        .page = page,
                        .on_listening = {}};
  Options of_server = options;
  of_server.faults.reset();
  pid_t child = start_server(of_server, server, ends[1], ends[0]);
  if (child < 0)
    return complain("fork");
  close(ends[1]);
  catch_stop_signals();
  char ready = 0;
  if (!read_object(ends[0], &ready, 1, -1)) {
    waitpid(child, nullptr, 0);
    return 1;  // the server has said why
  }
  std::string where = placement.client < 0
                          ? "client and server share one CPU"
                          : "client on CPU " + std::to_string(placement.client) +
                                ", server on CPU " + std::to_string(placement.server);
  std::printf("%s; %s, both %s\n", uri.c_str(), where.c_str(), to_string(placement.idle));

  bool server_whole = false;
  bool ended = false;
  auto finish = [&] {
    ended = true;
    return server_whole = end_server(*page, child, ends[0]);
  };
  ClientSetup client = {.uri = uri,
                        .idle = placement.idle,
                        .cpu = placement.client,
                        .other_cpu = placement.server,
                        .page = page,
                        .finish_server = finish};
  int status = run_client(options, client);
  if (!ended)
    finish();
  return status;
}

}  // namespace rrdk::testrpc
