// How long one pass of poll() takes at most, in CPU time of its thread, where a pass has much to
// do: connections that are begun at once, that are lost at once, that a server closes at once, and
// large reads and writes. Both ends have a Runtime that their process polls.
//
//   longest_pass [--budget US] [--connections N] [--seconds S] [--json]
//
// For each case: the longest pass, how many took more than a millisecond, and how many did
// something at all. A peer that is killed is a process of its own, so this program starts itself
// again.
//
// With --seconds there is one other case: two reactors of one thread with 200 connections between
// them, half over shm and half over iwarp, which come, carry calls of all sizes and go for that
// long.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "rrdk/client.h"
#include "rrdk/eal.h"
#include "rrdk/memory.h"
#include "rrdk/runtime.h"
#include "rrdk/server.h"
#include "turns.h"

namespace {

using namespace rrdk;
using perf::die;

enum : uint32_t { kRead = 1, kWrite = 2 };

constexpr uint32_t kDataBytes = 4 << 20;
constexpr uint32_t kWindow = 4;
constexpr uint32_t kDataCalls = 400;
// With --seconds.
constexpr uint32_t kVisitors = 200;
constexpr uint32_t kShortestStayMs = 500, kLongestStayMs = 5'000;
constexpr uint64_t kAllLeaveNs = 20'000'000'000;  // at once, each time after so long
constexpr ProcedureBinding kProcedures[] = {
    {.procedure = kRead, .name = "READ", .eligible_results = 1, .fixed_results = 4},
    {.procedure = kWrite, .name = "WRITE", .eligible_args = 1},
};
constexpr Binding kBinding = {
    .program = 0x20005670, .version = 1, .name = "longest_pass", .procedures = kProcedures};

uint64_t cpu_ns() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

struct Passes {
  uint64_t longest_ns = 0;
  uint64_t over_ms = 0;
  uint64_t busy = 0;
  uint64_t busy_ns = 0;

  std::string to_string() const {
    return std::to_string(longest_ns) + " " + std::to_string(over_ms) + " " + std::to_string(busy) +
           " " + std::to_string(busy_ns);
  }
};

// One end: its Runtime, and what its passes took.
struct End {
  explicit End(uint32_t budget_us)
      : memory(must(Memory::create({.bytes = 768u << 20}))), runtime(make(budget_us)) {}

  std::unique_ptr<Runtime> make(uint32_t budget_us) const {
    RuntimeOptions options;
    options.pass_budget_us = budget_us;
    return must(Runtime::create(*memory, options));
  }

  void poll() {
    const uint64_t before = cpu_ns();
    const uint32_t work = runtime->poll();
    const uint64_t took = cpu_ns() - before;
    passes.longest_ns = std::max(passes.longest_ns, took);
    passes.over_ms += took > 1'000'000;
    passes.busy += work != 0;
    passes.busy_ns += work != 0 ? took : 0;
  }
  Passes take() { return std::exchange(passes, {}); }

  std::unique_ptr<Memory> memory;
  std::unique_ptr<Runtime> runtime;
  Passes passes;
};

bool readable(int fd) {
  pollfd wanted = {.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&wanted, 1, 0) > 0;
}

// --- the calling process ---

void tell(const char* what, const Passes& passes) {
  std::printf("%s %s\n", what, passes.to_string().c_str());
  std::fflush(stdout);
}

// Connects, and then stays until its input ends and all connections have been lost.
void call_connections(End& end, const std::string& uri, uint32_t count) {
  std::unique_ptr<Client> client =
      must(Client::create(*end.runtime, {.connect_timeout_ms = 60'000}));
  std::unique_ptr<ClientConnection> first = must(client->connect(uri));
  std::vector<std::unique_ptr<ClientConnection>> all;
  for (uint32_t i = 0; i < count; ++i)
    all.push_back(must(client->connect_start(uri)));
  const auto in_state = [&](ConnectionState state) {
    return std::ranges::all_of(all, [&](const auto& each) { return each->state() == state; });
  };
  end.take();
  while (!in_state(ConnectionState::kUp)) {
    for (const auto& each : all) {
      if (each->state() == ConnectionState::kClosed)
        die("a connection was not made: " + each->error()->message);
    }
    end.poll();
  }
  tell("up", end.take());
  while (!in_state(ConnectionState::kClosed))
    end.poll();
  tell("lost", end.take());
  std::_Exit(0);
}

void begin_data(Call& call, uint32_t procedure, const MemorySpan& data) {
  Encoder& args = call.begin(kBinding, procedure);
  if (procedure == kRead) {
    args.put_u32(data.length);
    call.offer(data);
  } else {
    args.put_item(data, Ddp::kEligible);
  }
}

void call_for_data(End& end, const std::string& uri) {
  std::unique_ptr<Client> client =
      must(Client::create(*end.runtime, {.connect_timeout_ms = 60'000}));
  std::unique_ptr<ClientConnection> connection = must(client->connect(uri));
  std::vector<RegisteredMemory> rooms;
  std::vector<std::unique_ptr<Call>> calls;
  for (uint32_t i = 0; i < kWindow; ++i) {
    rooms.push_back(must(end.memory->allocate(kDataBytes)));
    calls.push_back(std::make_unique<Call>(*connection));
  }
  for (uint32_t round = 0; round < kDataCalls / kWindow; ++round) {
    uint32_t ended = 0;
    for (uint32_t i = 0; i < kWindow; ++i) {
      const bool reads = (i & 1) == 0;
      begin_data(*calls[i], reads ? kRead : kWrite, rooms[i].span(0, kDataBytes));
      calls[i]->submit([](Call&, void* count) { ++*static_cast<uint32_t*>(count); }, &ended);
    }
    while (ended != kWindow)
      end.poll();
    for (const std::unique_ptr<Call>& call : calls) {
      if (call->status() != CallStatus::kOk)
        die(std::string("a call ended with ") + to_string(call->status()));
    }
    if (round == 2)  // memory is in place
      tell("begun", end.take());
  }
  tell("data", end.take());
  std::_Exit(0);
}

// A connection that comes, has two calls in flight while it stays, and goes.
class Visitor {
 public:
  struct World {
    End& end;
    Client& client;
    RegisteredMemory& data;
    std::minstd_rand random;
    uint64_t visits = 0, calls = 0, failures = 0;
  };
  Visitor(World& world, std::string uri) : world_(world), uri_(std::move(uri)) { come(); }

  void leave() { until_ns_ = 0; }
  // One step, if it is time for one.
  void look(uint64_t now_ns) {
    const ConnectionState state = connection_->state();
    if (state == ConnectionState::kUp && !leaves_ && now_ns >= until_ns_) {
      leaves_ = true;
      connection_->close_start();
    } else if (state == ConnectionState::kUp && calls_.empty()) {
      for (int i = 0; i < 2; ++i)
        call(*calls_.emplace_back(std::make_unique<Call>(*connection_)));
    } else if (state == ConnectionState::kClosed && in_flight_ == 0) {
      if (!leaves_)
        die("a connection ended: " + connection_->error()->message);
      calls_.clear();
      connection_.reset();
      come();
    }
  }

 private:
  void come() {
    leaves_ = false;
    ++world_.visits;
    connection_ = must(world_.client.connect_start(uri_));
    until_ns_ = Runtime::now_ns() + between(kShortestStayMs, kLongestStayMs) * uint64_t{1'000'000};
  }
  uint32_t between(uint32_t least, uint32_t most) {
    return std::uniform_int_distribution<uint32_t>(least, most)(world_.random);
  }
  // Mostly small ones.
  void call(Call& call) {
    const uint32_t kind = between(0, 999);
    if (kind < 900)
      call.begin(kBinding, 0);
    else
      begin_data(call, kind % 2 == 0 ? kRead : kWrite,
                 world_.data.span(0, kind < 990 ? 64u << 10 : 1u << 20));
    ++in_flight_;
    call.submit([](Call& ended, void* self) { static_cast<Visitor*>(self)->go_on(ended); }, this);
  }
  void go_on(Call& ended) {
    --in_flight_;
    ++world_.calls;
    world_.failures += ended.status() != CallStatus::kOk && !leaves_;
    if (ended.status() == CallStatus::kOk && !leaves_)
      call(ended);
  }

  World& world_;
  const std::string uri_;
  std::unique_ptr<ClientConnection> connection_;
  std::vector<std::unique_ptr<Call>> calls_;
  uint32_t in_flight_ = 0;
  uint64_t until_ns_ = 0;
  bool leaves_ = false;
};

void come_and_go(End& end, const std::string& uris, uint32_t seconds) {
  std::unique_ptr<Client> client =
      must(Client::create(*end.runtime, {.connect_timeout_ms = 60'000}));
  RegisteredMemory data = must(end.memory->allocate(1 << 20));
  Visitor::World world = {.end = end, .client = *client, .data = data, .random = {}};
  const size_t space = uris.find(' ');
  std::vector<std::unique_ptr<Visitor>> visitors;
  for (uint32_t i = 0; i < kVisitors; ++i)
    visitors.push_back(std::make_unique<Visitor>(
        world, i % 2 == 0 ? uris.substr(0, space) : uris.substr(space + 1)));
  const uint64_t began = Runtime::now_ns();
  uint64_t all_leave = began + kAllLeaveNs;
  for (size_t next = 0; Runtime::now_ns() < began + seconds * uint64_t{1'000'000'000};
       next = (next + 1) % kVisitors) {
    end.poll();
    const uint64_t now = Runtime::now_ns();
    visitors[next]->look(now);
    if (now >= all_leave) {
      all_leave = now + kAllLeaveNs;
      for (const auto& visitor : visitors)
        visitor->leave();
    }
  }
  tell("visits", end.take());
  std::fprintf(stderr, "%lu connections, %lu calls, of which %lu failed\n", world.visits,
               world.calls, world.failures);
  std::_Exit(0);
}

// --- the serving process ---

// The calling process: what it writes, line by line.
class Caller {
 public:
  Caller(const std::string& uri, const std::string& what, uint32_t budget_us) {
    std::array<int, 2> out;
    if (::pipe2(out.data(), O_CLOEXEC) != 0)
      die("no pipe");
    pid_ = ::vfork();
    if (pid_ == 0) {
      ::dup2(out[1], 1);
      const std::string budget = std::to_string(budget_us);
      ::execl("/proc/self/exe", "longest_pass", "--call", uri.c_str(), what.c_str(), budget.c_str(),
              nullptr);
      ::_exit(1);
    }
    ::close(out[1]);
    out_ = out[0];
  }
  ~Caller() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::close(out_);
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  // Polls until the next line is there.
  Passes passes(End& end) {
    while (!readable(out_))
      end.poll();
    std::string line;
    for (char c; ::read(out_, &c, 1) == 1 && c != '\n';)
      line += c;
    Passes told;
    if (std::sscanf(line.c_str(), "%*s %lu %lu %lu %lu", &told.longest_ns, &told.over_ms,
                    &told.busy, &told.busy_ns) != 4)
      die("the calling process has ended");
    return told;
  }
  void kill() { ::kill(pid_, SIGKILL); }

 private:
  pid_t pid_;
  int out_;
};

struct Row {
  std::string what;
  std::string end;
  Passes passes;
};

class Cases {
 public:
  Cases(std::string scheme, uint32_t budget_us)
      : scheme_(std::move(scheme)), budget_us_(budget_us) {}

  void connections(uint32_t begun, uint32_t count) {
    End end(budget_us_);
    begin(end);
    {
      Caller caller(uri_, std::to_string(begun), budget_us_);
      const Passes theirs = caller.passes(end);
      add(std::to_string(begun) + " begun at once", "client", theirs);
      add(std::to_string(begun) + " begun at once", "server", end.take());
    }
    until_empty(end);
    {
      Caller caller(uri_, std::to_string(count), budget_us_);
      caller.passes(end);
      end.take();
      caller.kill();
      until_empty(end);
      add(std::to_string(count) + " killed at once", "server", end.take());
    }
    Caller caller(uri_, std::to_string(count), budget_us_);
    caller.passes(end);
    end.take();
    bool closed = false;
    server_->close_start([](void* done) { *static_cast<bool*>(done) = true; }, &closed);
    while (!closed)
      end.poll();
    add("close_start() of " + std::to_string(count), "server", end.take());
    add("close_start() of " + std::to_string(count), "client", caller.passes(end));
    server_.reset();
    data_ = {};
  }

  void data() {
    End end(budget_us_);
    begin(end);
    Caller caller(uri_, "data", budget_us_);
    caller.passes(end);
    end.take();
    const Passes theirs = caller.passes(end);
    add("4 MiB reads and writes", "client", theirs);
    add("4 MiB reads and writes", "server", end.take());
    server_.reset();
    data_ = {};
  }

  void visits(uint32_t seconds) {
    End end(budget_us_);
    begin(end);
    const std::string other = must(server_->listen("iwarp://127.0.0.1:0"));
    Caller caller(uri_ + " " + other, "visits:" + std::to_string(seconds), budget_us_);
    const Passes theirs = caller.passes(end);
    const std::string what = std::to_string(kVisitors) + " come and go";
    add(what, "client", theirs);
    add(what, "server", end.take());
    server_.reset();
    data_ = {};
  }

  std::vector<Row> rows;

 private:
  void begin(End& end) {
    server_ = must(Server::create(*end.runtime, {.max_connections_per_client = 65536}));
    data_ = must(end.memory->allocate(kDataBytes));
    static constexpr Procedure kHandlers[] = {
        {kRead,
         [](ServerCall call, void* data) {
           const uint32_t bytes = std::min(call.args().get_u32(), kDataBytes);
           call.results().put_item(static_cast<RegisteredMemory*>(data)->span(0, bytes),
                                   Ddp::kEligible);
           std::move(call).reply();
         }},
        {kWrite, [](ServerCall call, void*) {
           (void)call.args().get_item(kDataBytes);
           std::move(call).reply();
         }}};
    must(server_->add_service({.binding = &kBinding, .procedures = kHandlers, .context = &data_}));
    uri_ =
        must(server_->listen(scheme_ == "shm" ? "shm:/tmp/longest_pass." + std::to_string(getpid())
                                              : scheme_ + "://127.0.0.1:0"));
  }
  void until_empty(End& end) {
    while (end.runtime->stats(0)[Counter::kConnections] != 0)
      end.poll();
  }
  void add(std::string what, std::string whose, const Passes& passes) {
    rows.push_back({scheme_ + ", " + std::move(what), std::move(whose), passes});
  }

  const std::string scheme_;
  const uint32_t budget_us_;
  RegisteredMemory data_;
  std::unique_ptr<Server> server_;
  std::string uri_;
};

void print(const std::vector<Row>& rows, bool json) {
  for (const Row& row : rows)
    std::printf(
        json ? "{\"case\": \"%s\", \"end\": \"%s\", \"longest_us\": %.1f, \"over_1_ms\": "
               "%lu, \"busy\": %lu, \"mean_us\": %.1f}\n"
             : "%-32s %-6s longest %9.1f us, %5lu over 1 ms; %6lu with work, mean %8.1f us\n",
        row.what.c_str(), row.end.c_str(), static_cast<double>(row.passes.longest_ns) / 1e3,
        row.passes.over_ms, row.passes.busy,
        static_cast<double>(row.passes.busy_ns) / 1e3 /
            static_cast<double>(std::max<uint64_t>(row.passes.busy, 1)));
  std::fflush(stdout);
}

void raise_file_limit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
}

}  // namespace

int main(int argc, char** argv) {
  raise_file_limit();
  if (argc == 5 && std::string_view(argv[1]) == "--call") {
    must(ensure_eal());
    End end(static_cast<uint32_t>(std::atoi(argv[4])));
    const std::string what = argv[3];
    if (what == "data")
      call_for_data(end, argv[2]);
    if (what.starts_with("visits:"))
      come_and_go(end, argv[2], static_cast<uint32_t>(std::atoi(what.c_str() + 7)));
    call_connections(end, argv[2], static_cast<uint32_t>(std::atoi(argv[3])));
  }
  uint32_t budget_us = 100;
  uint32_t count = 1000;
  uint32_t seconds = 0;
  bool json = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--json") {
      json = true;
    } else if (word == "--budget" && i + 1 < argc) {
      budget_us = static_cast<uint32_t>(std::atoi(argv[++i]));
    } else if (word == "--connections" && i + 1 < argc && std::atoi(argv[i + 1]) > 0) {
      count = static_cast<uint32_t>(std::atoi(argv[++i]));
    } else if (word == "--seconds" && i + 1 < argc && std::atoi(argv[i + 1]) > 0) {
      seconds = static_cast<uint32_t>(std::atoi(argv[++i]));
    } else {
      std::fprintf(stderr,
                   "usage: longest_pass [--budget US] [--connections N] [--seconds S] [--json]\n");
      return 2;
    }
  }
  must(ensure_eal());
  if (seconds != 0) {
    Cases cases("shm", budget_us);
    cases.visits(seconds);
    print(cases.rows, json);
    return 0;
  }
  for (const char* scheme : {"shm", "iwarp"}) {
    Cases cases(scheme, budget_us);
    cases.connections(count * 2 / 5, count);
    cases.data();
    print(cases.rows, json);
  }
}
