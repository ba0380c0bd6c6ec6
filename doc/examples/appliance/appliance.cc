// A block server and its client. Each is a reactor of one thread that waits only in epoll: RRDK is
// one of its descriptors, and every call of the library returns at once. appliance.c is the same in
// C; the client of one works with the server of the other.
//
//   appliance serve DISK URI...   serves the file DISK, which is made if it is not there, until
//                                 SIGTERM; then it drains. SIGUSR1 breaks all connections
//   appliance load URI CONNECTIONS CALLS [BLOCK]
//                                 appends, writes and reads, whatever happens to the server; it
//                                 uses four blocks for each connection, from BLOCK on
//
// Appends must not run twice. As long as the server runs, its duplicate request cache ensures that,
// even if connections break; a server that was killed does not know what it has run.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rrdk/client.h"
#include "rrdk/eal.h"
#include "rrdk/server.h"
#include "watch.h"

namespace {

constexpr uint32_t kAppend = 1;  // u64 -> u64 position: must not run twice
constexpr uint32_t kWrite = 2;   // u64 block, opaque<> -> void
constexpr uint32_t kRead = 3;    // u64 block -> opaque<>
constexpr uint32_t kBlockBytes = 64 << 10;
constexpr uint32_t kBlocks = 256;

constexpr rrdk::ProcedureBinding kProcedures[] = {
    {.procedure = kAppend, .name = "APPEND", .fixed_results = 8},
    {.procedure = kWrite, .name = "WRITE", .eligible_args = 1},
    {.procedure = kRead, .name = "READ", .eligible_results = 1, .fixed_results = 4},
};
constexpr rrdk::Binding kBinding = {
    .program = 0x20004150, .version = 1, .name = "appliance", .procedures = kProcedures};

// ---- The reactor ----

class Reactor {
 public:
  Reactor() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    rrdk::must(rrdk::ensure_eal());
    // All memory is taken at the start, so that no call has to take more.
    memory = rrdk::must(rrdk::Memory::create({.classes = {{4096, 4096}, {kBlockBytes, 512}}}));
    runtime = rrdk::must(rrdk::Runtime::create(*memory));  // embedded: one core, polled here
    sigset_t signals;
    sigemptyset(&signals);
    for (int number : {SIGTERM, SIGINT, SIGUSR1})
      sigaddset(&signals, number);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    signals_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    for (int fd : {signals_, runtime->wake_fd()}) {
      epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};
      epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
    }
  }
  ~Reactor() {
    close(signals_);
    close(epoll_);
  }

  // Wraps every call of the library, except those in its callbacks, which run in poll().
  template <typename Fn>
  auto call(const char* name, Fn&& fn) {
    struct Note {
      Reactor& reactor;
      const char* name;
      watch_point before = watch_now();
      ~Note() { watch_note(&reactor.watched, name, before); }
    } note{*this, name};
    return fn();
  }

  void run(const std::function<void(int signal)>& on_signal) {
    while (!done) {
      if (call("poll", [&] { return runtime->poll(); }) == 0 &&
          call("arm_wake", [&] { return runtime->arm_wake(); }))
        wait(on_signal, -1);
      else if (++passes_ % 64 == 0)
        wait(on_signal, 0);
    }
  }

  bool done = false;
  watch watched = {};
  std::unique_ptr<rrdk::Memory> memory;
  std::unique_ptr<rrdk::Runtime> runtime;

 private:
  void wait(const std::function<void(int signal)>& on_signal, int timeout_ms) {
    std::array<epoll_event, 4> events;
    int count = epoll_wait(epoll_, events.data(), events.size(), timeout_ms);
    for (int i = 0; i < count; ++i) {
      signalfd_siginfo info;
      if (events[i].data.fd == signals_ && read(signals_, &info, sizeof info) == sizeof info)
        on_signal(static_cast<int>(info.ssi_signo));
    }
  }

  int epoll_;
  int signals_;
  uint64_t passes_ = 0;
};

// ---- The device: a thread that takes requests in order and answers them ----

struct Request {
  rrdk::ServerCall call;
  uint32_t procedure = 0;
  uint64_t block = 0;
  rrdk::ItemView data;
  rrdk::Buffer room;
};

class Device {
 public:
  // The disk is a mapped file, so it survives the process.
  explicit Device(const char* path) : wake_(eventfd(0, EFD_CLOEXEC)) {
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void* mapped = fd < 0 || ftruncate(fd, sizeof(Disk)) != 0
                       ? MAP_FAILED
                       : mmap(nullptr, sizeof(Disk), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) {
      std::perror(path);
      std::exit(1);
    }
    close(fd);
    disk_ = static_cast<Disk*>(mapped);
    thread_ = std::thread([this] { run(); });
  }
  ~Device() {
    ending_ = true;
    eventfd_write(wake_, 1);
    thread_.join();
    close(wake_);
    munmap(disk_, sizeof(Disk));
  }

  // Called by the reactor's thread. Returns false if its queue is full.
  bool take(Request&& request) {
    const uint32_t last = last_.load(std::memory_order_relaxed);
    if (last - first_.load(std::memory_order_acquire) == queue_.size())
      return false;
    queue_[last % queue_.size()] = std::move(request);
    last_.store(last + 1, std::memory_order_release);
    eventfd_write(wake_, 1);
    return true;
  }
  uint64_t appends() const { return disk_->appends; }

 private:
  void run() {
    while (!ending_) {
      eventfd_t count;
      eventfd_read(wake_, &count);
      for (uint32_t first = first_; first != last_.load(std::memory_order_acquire); ++first) {
        answer(queue_[first % queue_.size()]);
        first_.store(first + 1, std::memory_order_release);
      }
    }
  }

  void answer(Request& request) {
    std::byte* block = disk_->blocks[request.block % kBlocks];
    rrdk::Encoder& results = request.call.results();
    if (request.procedure == kAppend) {
      results.put_u64(disk_->appends++);
    } else if (request.procedure == kWrite) {
      request.data.copy_to(block);
    } else {
      std::memcpy(request.room.data(), block, kBlockBytes);
      results.put_item(std::move(request.room), kBlockBytes, rrdk::Ddp::kEligible);
    }
    std::move(request.call).reply();
  }

  struct Disk {
    std::byte blocks[kBlocks][kBlockBytes];
    uint64_t appends;
  };

  Disk* disk_;
  std::array<Request, 1024> queue_;
  std::atomic<uint32_t> first_ = 0, last_ = 0;
  std::atomic<bool> ending_ = false;
  int wake_;
  std::thread thread_;
};

// ---- The server ----

void serve_call(rrdk::ServerCall call, void* context) {
  Request request;
  request.procedure = call.procedure();
  request.block = call.args().get_u64();
  if (request.procedure == kWrite)
    request.data = call.args().get_item(kBlockBytes);
  if (!call.args().at_end() || (request.procedure != kAppend && request.block >= kBlocks))
    return std::move(call).reject(rrdk::AcceptStat::kGarbageArgs);
  if (request.procedure == kRead && !(request.room = call.result_buffer(kBlockBytes)))
    return std::move(call).reject(rrdk::AcceptStat::kSystemErr);
  request.call = std::move(call);
  if (!static_cast<Device*>(context)->take(std::move(request)))
    std::move(request.call).reject(rrdk::AcceptStat::kSystemErr);
}

constexpr rrdk::Procedure kTable[] = {
    {.number = kAppend, .handler = serve_call, .idempotent = false},
    {.number = kWrite, .handler = serve_call},
    {.number = kRead, .handler = serve_call},
};

class Served {
 public:
  Served(Reactor& reactor, const char* disk, char** uris, int count)
      : reactor_(reactor),
        device_(disk),
        server_(rrdk::must(rrdk::Server::create(*reactor.runtime))) {
    rrdk::must(
        server_->add_service({.binding = &kBinding, .procedures = kTable, .context = &device_}));
    for (int i = 0; i < count; ++i) {
      auto tell = [](rrdk::Result<std::string>&& uri, void*) {
        std::printf("listening on %s\n", rrdk::must(std::move(uri)).c_str());
        std::fflush(stdout);
      };
      reactor_.call("listen_start", [&] { server_->listen_start(uris[i], tell, nullptr); });
    }
  }

  void on_signal(int number) {
    if (number == SIGUSR1) {
      std::vector<uint64_t> ids;
      reactor_.call("visit", [&] {
        server_->visit([&](const rrdk::ConnectionInfo& seen) { ids.push_back(seen.id); });
      });
      for (uint64_t id : ids)
        (void)reactor_.call("close", [&] { return server_->close(id, "the operator wants it"); });
      return;
    }
    // Answers calls in progress, for up to a second.
    auto drained = [](uint32_t, void* self) {
      static_cast<Served*>(self)->server_->close_start(closed, self);
    };
    reactor_.call("drain_start", [&] { server_->drain_start(1000, drained, this); });
  }

  // Called after run(), when the remaining steps may wait.
  void report() const {
    const rrdk::Stats stats = server_->stats();
    std::printf("appends run: %llu, answered from the cache: %llu, refused: %llu\n",
                static_cast<unsigned long long>(device_.appends()),
                static_cast<unsigned long long>(stats[rrdk::Counter::kReplayAnswered]),
                static_cast<unsigned long long>(stats[rrdk::Counter::kReplayRefused]));
  }

 private:
  static void closed(void* self) { static_cast<Served*>(self)->reactor_.done = true; }

  Reactor& reactor_;
  Device device_;
  std::unique_ptr<rrdk::Server> server_;
};

// ---- The client ----

std::byte byte_of(uint64_t block, uint64_t version) {
  return static_cast<std::byte>(block * 31 + version * 7 + 1);
}

class Load;

// One call after the other on a connection: an append; or a block that is written, and read again.
struct Worker {
  Worker(Load& for_load, rrdk::ClientConnection& connection, uint64_t own_block)
      : load(for_load), call(connection), block(own_block) {}
  void next();
  void append();
  void write();
  void read();
  static void ended(rrdk::Call& call, void* self);

  Load& load;
  rrdk::Call call;
  uint64_t block;        // the worker's own
  uint64_t version = 0;  // that was written there last
  uint32_t procedure = 0;
};

class Load {
 public:
  Load(Reactor& for_reactor, const char* uri, uint32_t connections, uint64_t calls,
       uint64_t first_block)
      : reactor(for_reactor), left(calls) {
    rrdk::ClientOptions options = {.call_timeout_ms = 60'000, .retransmit = true};
    options.reconnect = {.enabled = true, .first_delay_ms = 5, .max_delay_ms = 100};
    client_ = rrdk::must(rrdk::Client::create(*reactor.runtime, options));
    for (uint32_t i = 0; i < connections; ++i) {
      connections_.push_back(reactor.call("connect_start", [&] {
        return rrdk::must(client_->connect_start(uri, {.on_state = on_state, .argument = this}));
      }));
      // Calls may be made at once: they wait for the connection.
      for (int k = 0; k < 4; ++k)
        workers_.push_back(
            std::make_unique<Worker>(*this, *connections_.back(), first_block + workers_.size()));
    }
    active = static_cast<uint32_t>(workers_.size());
    for (auto& worker : workers_)
      reactor.call("submit", [&] { worker->next(); });
  }

  void all_done() {
    for (auto& connection : connections_)
      connection->drain_start(1000);  // on_state is called at the end
  }
  void on_signal(int) {
    left = 0;  // calls in flight still end
  }
  // Destroys objects that are closed, so that no call waits.
  void end() {
    reactor.call("~Call", [&] { workers_.clear(); });
    reactor.call("~ClientConnection", [&] { connections_.clear(); });
    reactor.call("~Client", [&] { client_.reset(); });
  }
  int report() const {
    std::printf(
        "appends %llu, writes %llu, reads %llu, failed %llu, wrong %llu, reconnections %llu\n",
        ok[kAppend], ok[kWrite], ok[kRead], failed, wrong, lost);
    return failed + wrong == 0 ? 0 : 1;
  }

  Reactor& reactor;
  uint64_t left;
  uint32_t active = 0;  // workers that continue
  unsigned long long ok[4] = {}, failed = 0, wrong = 0, lost = 0;

 private:
  static void on_state(rrdk::ClientConnection&, rrdk::ConnectionState state, const rrdk::Error*,
                       void* self) {
    auto& load = *static_cast<Load*>(self);
    load.lost += state == rrdk::ConnectionState::kLost;
    if (state == rrdk::ConnectionState::kClosed && ++load.closed_ == load.connections_.size())
      load.reactor.done = true;
  }

  std::unique_ptr<rrdk::Client> client_;
  std::vector<std::unique_ptr<rrdk::ClientConnection>> connections_;
  std::vector<std::unique_ptr<Worker>> workers_;
  size_t closed_ = 0;
};

void Worker::next() {
  if (load.left == 0) {
    if (--load.active == 0)
      load.all_done();
    return;
  }
  --load.left;
  if (procedure == kWrite)
    read();
  else if (block % 2 == 0 || block >= kBlocks)
    append();
  else
    write();
}

void Worker::append() {
  call.begin(kBinding, procedure = kAppend).put_u64(block);
  call.submit(ended, this);
}

void Worker::write() {
  rrdk::Buffer data = load.reactor.memory->get(kBlockBytes);
  if (data)
    std::memset(data.data(), static_cast<int>(byte_of(block, ++version)), kBlockBytes);
  rrdk::Encoder& args = call.begin(kBinding, procedure = kWrite);
  args.put_u64(block);
  args.put_item(std::move(data), kBlockBytes,
                rrdk::Ddp::kEligible);  // if no buffer was left: kNoMemory
  call.submit(ended, this);
}

void Worker::read() {
  call.begin(kBinding, procedure = kRead).put_u64(block);
  call.offer(load.reactor.memory->get(kBlockBytes), kBlockBytes);
  call.submit(ended, this);
}

void Worker::ended(rrdk::Call& call, void* self) {
  auto& worker = *static_cast<Worker*>(self);
  if (call.status() != rrdk::CallStatus::kOk) {
    if (worker.load.failed++ == 0)
      std::fprintf(stderr, "appliance: %s\n", rrdk::to_string(call.status()));
  } else {
    ++worker.load.ok[worker.procedure];
  }
  if (worker.procedure == kRead && call.status() == rrdk::CallStatus::kOk) {
    rrdk::ItemView data = call.results().get_item(kBlockBytes);
    bool right = data.size() == kBlockBytes;
    data.for_each([&](const std::byte* run, size_t length) {  // all bytes are the same
      right = right && run[0] == byte_of(worker.block, worker.version) &&
              std::memcmp(run, run + 1, length - 1) == 0;
    });
    worker.load.wrong += !right;
  }
  worker.next();
}

int usage() {
  std::fprintf(
      stderr,
      "usage: appliance serve DISK URI... | appliance load URI CONNECTIONS CALLS [BLOCK]\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (!((mode == "serve" && argc > 3) || (mode == "load" && (argc == 5 || argc == 6))))
    return usage();
  Reactor reactor;
  int status = 0;
  if (mode == "serve") {
    Served served(reactor, argv[2], argv + 3, argc - 3);
    reactor.run([&](int signal) { served.on_signal(signal); });
    served.report();
  } else {
    Load load(reactor, argv[2], static_cast<uint32_t>(std::atoi(argv[3])),
              std::strtoull(argv[4], nullptr, 10),
              argc == 6 ? std::strtoull(argv[5], nullptr, 10) : 0);
    reactor.run([&](int signal) { load.on_signal(signal); });
    load.end();
    status = load.report();
  }
  watch_print(&reactor.watched);
  return status;
}
