// Calls by RPCSEC_GSS beside calls with AUTH_SYS, and beside what Kerberos alone allows: its
// checksums and ciphers for the same calls, computed by the same two threads without RPC. Over the
// iwarp driver on loopback, or over shm.
//
//   test/gss/realm.py BUILD/perf/gss_calls [--shm] [--rounds N] [--json]
//
// All take turns of 50 ms, for the reason in versions.cc. A ratio is the median of those of
// neighbours. "of both" compares with a call that takes as long as one with AUTH_SYS and one of
// Kerberos alone, one after the other.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gss/kerberos.h"
#include "machine_limits.h"
#include "rrdk/eal.h"
#include "rrdk/gss_context.h"
#include "rrdk/memory.h"
#include "rrdk/runtime.h"
#include "rrdk/server.h"
#include "turns.h"

namespace {

using namespace rrdk;
using perf::die;
using perf::quantile;

constexpr uint64_t kTurnNs = 50'000'000;
constexpr uint64_t kCallsPerLook = 16;  // at the clock
constexpr uint32_t kReadBytes = 64 << 10;
constexpr const char* kTarget = "nfs@localhost";
enum : uint32_t { kRead = 1 };
constexpr ProcedureBinding kProcedures[] = {
    {.procedure = 0, .name = "NULL"},
    {.procedure = kRead, .name = "READ", .eligible_results = 1, .fixed_results = 4},
};
constexpr Binding kBinding = {
    .program = 0x20005671, .version = 1, .name = "gss_calls", .procedures = kProcedures};

struct Work {
  const char* name;
  uint32_t procedure;
  uint32_t window;
  size_t arguments, results;  // bytes that are protected with krb5i and krb5p
};
constexpr Work kWorks[] = {{"null", 0, 32, 4, 4}, {"READ 64K", kRead, 8, 8, kReadBytes + 8}};
struct Kind {
  const char* name;
  GssProtection protection;
};
constexpr Kind kKinds[] = {{"krb5", GssProtection::kNone},
                           {"krb5i", GssProtection::kIntegrity},
                           {"krb5p", GssProtection::kPrivacy}};

// Both ends of a security context, and what each computes for a call.
class Alone {
 public:
  Alone() {
    auto alice = must(gss::Identity::initiator(""));
    auto service = must(gss::Identity::acceptor(kTarget, ""));
    gss::Token first, answer, none;
    (void)near_.initiate(*alice, kTarget, {}, first);
    if (!far_.accept(*service, first.bytes(), answer).complete() ||
        !near_.initiate(*alice, kTarget, answer.bytes(), none).complete())
      die("there is no security context: run this by test/gss/realm.py");
  }
  void prepare(const Work& work, GssProtection protection) {
    work_ = &work;
    protection_ = protection;
    check(near_.sign(header_, header_sum_) && far_.sign(number_, reply_sum_));
    protect(near_, work.arguments, arguments_);
    protect(far_, work.results, results_);
  }
  void near_call() {
    gss::Token sum, sealed;
    check(near_.sign(header_, sum) && near_.verify(number_, reply_sum_.bytes()));
    protect(near_, work_->arguments, sealed);
    open(near_, work_->results, results_);
  }
  void far_call() {
    gss::Token sum, sealed;
    check(far_.verify(header_, header_sum_.bytes()) && far_.sign(number_, sum));
    open(far_, work_->arguments, arguments_);
    protect(far_, work_->results, sealed);
  }

 private:
  static void check(bool works) {
    if (!works)
      die("Kerberos refuses what it has made itself");
  }
  void protect(gss::Context& context, size_t bytes, gss::Token& out) {
    if (protection_ == GssProtection::kIntegrity)
      check(context.sign({body_.data(), bytes}, out));
    else if (protection_ == GssProtection::kPrivacy)
      check(context.wrap({body_.data(), bytes}, out));
  }
  void open(gss::Context& context, size_t bytes, const gss::Token& in) {
    gss::Token clear;
    if (protection_ == GssProtection::kIntegrity)
      check(context.verify({body_.data(), bytes}, in.bytes()));
    else if (protection_ == GssProtection::kPrivacy)
      check(context.unwrap(in.bytes(), clear));
  }

  gss::Context near_, far_;
  const Work* work_ = nullptr;
  GssProtection protection_ = GssProtection::kNone;
  const std::vector<std::byte> header_ = std::vector<std::byte>(72);  // up to the verifier
  const std::vector<std::byte> number_ = std::vector<std::byte>(4);
  const std::vector<std::byte> body_ = std::vector<std::byte>(kReadBytes + 8);
  gss::Token header_sum_, reply_sum_, arguments_, results_;
};

double ns_per_call(uint64_t start, uint64_t calls) {
  return static_cast<double>(apps::clock_ns() - start) /
         static_cast<double>(std::max<uint64_t>(calls, 1));
}

enum class Turn : uint8_t { kCalls, kAlone, kRest, kOver };

// The thread at the far end: it polls the server, or computes alone, as the turn says.
class FarEnd {
 public:
  FarEnd(int cpu, Runtime& server, Alone& alone)
      : thread_([this, cpu, &server, &alone] {
          apps::pin_to_cpu(cpu);
          for (Turn turn; (turn = turn_.load(std::memory_order_acquire)) != Turn::kOver;) {
            if (turn == Turn::kCalls) {
              server.poll();
            } else if (turn == Turn::kAlone) {
              alone.far_call();
              alone_.fetch_add(1, std::memory_order_relaxed);
            }
            seen_.store(turn, std::memory_order_release);
          }
        }) {}
  ~FarEnd() {
    turn_.store(Turn::kOver, std::memory_order_release);
    thread_.join();
  }
  FarEnd(const FarEnd&) = delete;
  FarEnd& operator=(const FarEnd&) = delete;

  void set(Turn turn) {
    turn_.store(turn, std::memory_order_release);
    while (seen_.load(std::memory_order_acquire) != turn) {
    }
  }
  uint64_t alone() const { return alone_.load(std::memory_order_relaxed); }

 private:
  std::atomic<Turn> turn_ = Turn::kRest, seen_ = Turn::kOver;
  std::atomic<uint64_t> alone_ = 0;
  std::thread thread_;
};

// The end that calls: `window` calls with a credential, begun again and again for a turn.
class Requester {
 public:
  explicit Requester(const std::string& uri)
      : memory_(must(Memory::create({.classes = {{4096, 1024}, {128 << 10, 128}}}))),
        runtime_(must(Runtime::create(*memory_, {.idle = IdlePolicy::kBusy}))),
        client_(must(Client::create(*runtime_))),
        connection_(must(client_->connect(uri))) {}

  SharedCredential establish(GssProtection protection) {
    GssContextOptions options;
    options.target = kTarget;
    options.protection = protection;
    return must(establish_context(*connection_, kBinding, options));
  }
  double turn(const Work& work, const SharedCredential& credential) {
    calls_.clear();
    for (uint32_t i = 0; i != work.window; ++i) {
      calls_.emplace_back(new One{*this, work, Call(*connection_), memory_->get(kReadBytes)});
      if (!calls_.back()->call.set_credential(credential))
        die("a call takes no credential");
    }
    ended_ = 0;
    const uint64_t start = apps::clock_ns();
    until_ = start + kTurnNs;
    in_flight_ = work.window;
    is_over_ = false;
    for (const auto& one : calls_)
      one->begin();
    while (in_flight_ != 0)
      runtime_->poll();
    return ns_per_call(start, ended_);
  }

 private:
  struct One {
    void begin() {
      Encoder& arguments = call.begin(kBinding, work.procedure);
      if (work.procedure == kRead) {
        arguments.put_u32(kReadBytes);
        call.offer(room.first(kReadBytes));
      }
      call.submit([](Call& over, void* self) { static_cast<One*>(self)->end(over); }, this);
    }
    void end(Call& over) {
      if (over.status() != CallStatus::kOk)
        die(std::string("a call ended with ") + to_string(over.status()));
      ++its.ended_;
      if (its.ended_ % kCallsPerLook == 0 && apps::clock_ns() >= its.until_)
        its.is_over_ = true;
      its.is_over_ ? static_cast<void>(--its.in_flight_) : begin();
    }
    Requester& its;
    const Work& work;
    Call call;
    Buffer room;
  };

  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<ClientConnection> connection_;
  std::vector<std::unique_ptr<One>> calls_;
  uint64_t ended_ = 0, until_ = 0;
  uint32_t in_flight_ = 0;
  bool is_over_ = false;  // those in flight are the last ones
};

struct Figures {
  std::vector<double> sys, calls, alone, of_sys, of_alone, of_both;
};

Figures measure(const Work& work, const Kind& kind, uint32_t rounds, Requester& requester,
                FarEnd& far_end, Alone& alone) {
  const SharedCredential sys{AuthSys{}};
  far_end.set(Turn::kCalls);
  const SharedCredential alice = requester.establish(kind.protection);
  Figures figures;
  for (uint32_t i = 0; i != rounds; ++i) {
    far_end.set(Turn::kCalls);
    const double with_sys = requester.turn(work, sys);
    const double with_gss = requester.turn(work, alice);
    far_end.set(Turn::kRest);
    alone.prepare(work, kind.protection);
    const uint64_t far_before = far_end.alone();
    uint64_t near = 0;
    const uint64_t start = apps::clock_ns();
    far_end.set(Turn::kAlone);
    for (; apps::clock_ns() - start < kTurnNs; ++near)
      alone.near_call();
    const double slower = ns_per_call(start, std::min(near, far_end.alone() - far_before));
    far_end.set(Turn::kRest);
    figures.sys.push_back(with_sys);
    figures.calls.push_back(with_gss);
    figures.alone.push_back(slower);
    figures.of_sys.push_back(with_sys / with_gss);
    figures.of_alone.push_back(slower / with_gss);
    figures.of_both.push_back((slower + with_sys) / with_gss);
  }
  return figures;
}

void print(const Work& work, const Kind& kind, const Figures& figures, bool json) {
  const auto rate = [](const std::vector<double>& ns) { return 1e6 / quantile(ns, 0.5); };
  const auto middle = [](const std::vector<double>& ratios) { return quantile(ratios, 0.5); };
  std::printf(json ? "{\"work\": \"%s\", \"kind\": \"%s\", \"sys_per_ms\": %.2f, \"per_ms\": %.2f, "
                     "\"alone_per_ms\": %.2f, \"of_sys\": %.3f, \"of_alone\": %.3f, "
                     "\"of_both\": %.3f}\n"
                   : "%-9s %-6s sys %8.2f  calls %8.2f  Kerberos alone %8.2f thousand/s   "
                     "of sys %.2f  of alone %.2f  of both %.2f\n",
              work.name, kind.name, rate(figures.sys), rate(figures.calls), rate(figures.alone),
              middle(figures.of_sys), middle(figures.of_alone), middle(figures.of_both));
}

void run(const std::vector<int>& cpus, uint32_t rounds, bool shm, bool json) {
  std::unique_ptr<Memory> memory =
      must(Memory::create({.classes = {{4096, 2048}, {128 << 10, 128}}}));
  std::unique_ptr<Runtime> runtime = must(Runtime::create(*memory, {.idle = IdlePolicy::kBusy}));
  std::unique_ptr<GssAcceptor> acceptor =
      must(GssAcceptor::create({.service = kTarget, .key_table = {}}));
  RegisteredMemory data = must(memory->allocate(kReadBytes));
  ServerOptions options;
  options.gss = acceptor.get();
  std::unique_ptr<Server> server = must(Server::create(*runtime, options));
  const Procedure handlers[] = {
      {kRead, [](ServerCall call, void* data_in) {
         const uint32_t bytes = std::min(call.args().get_u32(), kReadBytes);
         call.results().put_item(static_cast<RegisteredMemory*>(data_in)->span(0, bytes),
                                 Ddp::kEligible);
         std::move(call).reply();
       }}};
  must(server->add_service({.binding = &kBinding, .procedures = handlers, .context = &data}));
  const std::string path = "shm:/tmp/rrdk-gss-calls-" + std::to_string(getpid()) + ".sock";
  const std::string uri = must(server->listen(shm ? path : "iwarp://127.0.0.1:0"));
  Alone alone;
  FarEnd far_end(cpus.back(), *runtime, alone);
  apps::pin_to_cpu(cpus.front());
  far_end.set(Turn::kCalls);
  {
    Requester requester(uri);
    for (const Work& work : kWorks) {
      for (const Kind& kind : kKinds) {
        print(work, kind, measure(work, kind, rounds, requester, far_end, alone), json);
        std::fflush(stdout);
      }
    }
    far_end.set(Turn::kCalls);
  }
}

}  // namespace

int main(int argc, char** argv) {
  uint32_t rounds = 20;
  bool json = false, shm = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--json") {
      json = true;
    } else if (word == "--shm") {
      shm = true;
    } else if (word == "--rounds" && i + 1 < argc && std::atoi(argv[i + 1]) > 0) {
      rounds = static_cast<uint32_t>(std::atoi(argv[++i]));
    } else {
      std::fprintf(stderr, "usage: gss_calls [--shm] [--rounds N] [--json]\n");
      return 2;
    }
  }
  const std::vector<int> cpus = apps::allowed_cpus();
  if (cpus.size() < 2)
    die("two CPUs are needed");
  must(ensure_eal());
  run(cpus, rounds, shm, json);
}
