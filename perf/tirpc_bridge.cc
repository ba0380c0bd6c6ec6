// The program of doc/examples/tirpc, whose stubs are rpcgen's, over RDMA and over TCP: the same
// calls by librrdk-tirpc and by libtirpc, in turns, between the same two CPUs.
//
//   tirpc_bridge [--seconds S] [--turns N] [--cpus SERVER,CLIENT] [--size BYTES]
//
// A table on stderr, and JSON on stdout: for each kind of call and each transport the median time
// in microseconds, and how many times as fast it is as TCP in the same turn (median, lowest,
// highest). Servers are processes of their own; a server that is not called at the moment has
// nothing to do.
#include <netinet/in.h>
#include <rpc/rpc.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kv.h"
#include "machine_limits.h"
#include "rrdk/tirpc.h"
#include "tcp_limits.h"
#include "turns.h"

extern "C" void kv_prog_1(svc_req*, SVCXPRT*);

namespace {

using namespace rrdk;
using perf::die;
using Clock = std::chrono::steady_clock;

struct Options {
  double seconds = 0.5;  // of each kind, transport and turn
  int turns = 7;
  int cpus[2] = {0, 1};
  uint32_t size = 0;  // instead of 8 KiB and 1 MiB
};

void serve_as_child_of(pid_t client, int cpu) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != client)
    std::exit(1);
  if (!apps::pin_to_cpu(cpu))
    die("this process may not use the server's CPU");
}

[[noreturn]] void serve_tcp(int fd) {
  SVCXPRT* transport = svc_fd_create(fd, 0, 0);
  if (transport == nullptr || !svc_reg(transport, KV_PROG, KV_V1, kv_prog_1, nullptr))
    die("libtirpc makes no server");
  svc_run();
  std::exit(1);
}

// Writes the addresses to `told`, one per line.
[[noreturn]] void serve_rdma(int told, const std::vector<std::string>& uris) {
  std::string lines;
  for (const std::string& uri : uris) {
    SVCXPRT* transport = rrdk_svc_create(uri.c_str());
    if (transport == nullptr || !rrdk_svc_reg(transport, KV_PROG, KV_V1, kv_prog_1, 0))
      die(rrdk_tirpc_error());
    lines += std::string(rrdk_svc_uri(transport)) + "\n";
  }
  if (::write(told, lines.data(), lines.size()) != static_cast<ssize_t>(lines.size()))
    die("the addresses cannot be written");
  ::close(told);
  rrdk_svc_run();
  std::exit(1);
}

std::vector<std::string> read_lines(int fd) {
  std::string text;
  char some[256];
  for (ssize_t n; (n = ::read(fd, some, sizeof some)) > 0;)
    text.append(some, static_cast<size_t>(n));
  std::vector<std::string> lines;
  for (size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1))
    lines.push_back(text.substr(0, end));
  return lines;
}

CLIENT* tcp_client(int fd) {
  sockaddr_in server{};
  socklen_t length = sizeof server;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&server), &length) != 0)
    die("the server is gone");
  return clnttcp_create(&server, KV_PROG, KV_V1, &fd, 0, 0);
}

// A kind of call, which ends the program if it fails.
struct Kind {
  std::string name;
  std::function<void(CLIENT*)> call;
};

// clnt_call() asks for another type than that of libtirpc's xdr_void().
bool_t nothing(XDR*, ...) {
  return 1;
}

std::string value;  // the data to put
char kName[] = "value";

void null(CLIENT* client) {
  constexpr timeval kPatience = {10, 0};
  if (clnt_call(client, NULLPROC, nothing, nullptr,
                reinterpret_cast<xdrproc_t>(reinterpret_cast<void (*)()>(xdr_void)), nullptr,
                kPatience) != RPC_SUCCESS)
    die("a null call failed");
}

void put(CLIENT* client, uint32_t size) {
  kv_put_args args = {kName, {size, value.data()}};
  kv_status* status = kv_put_1(&args, client);
  if (status == nullptr || *status != KV_OK)
    die("a put failed");
}

void get(CLIENT* client, uint32_t size) {
  char* name = kName;
  kv_get_res* result = kv_get_1(&name, client);
  if (result == nullptr || result->status != KV_OK ||
      result->kv_get_res_u.found.value.value_len != size)
    die("a get failed");
  clnt_freeres(client, reinterpret_cast<xdrproc_t>(reinterpret_cast<void (*)()>(xdr_kv_get_res)),
               reinterpret_cast<char*>(result));
}

std::vector<Kind> kinds_of(const std::vector<uint32_t>& sizes) {
  std::vector<Kind> kinds = {{"null", null}};
  for (uint32_t size : sizes) {
    const std::string text = std::to_string(size);
    kinds.push_back({"put " + text, [size](CLIENT* client) { put(client, size); }});
    kinds.push_back({"get " + text, [size](CLIENT* client) { get(client, size); }});
  }
  return kinds;
}

double median_us(CLIENT* client, const Kind& kind, double seconds) {
  kind.call(client);
  auto now = Clock::now();
  const auto end = now + std::chrono::duration<double>(seconds);
  std::vector<double> took_us;
  while (now < end) {
    kind.call(client);
    const auto then = std::exchange(now, Clock::now());
    took_us.push_back(std::chrono::duration<double, std::micro>(now - then).count());
  }
  return perf::quantile(std::move(took_us), 0.5);
}

struct Transport {
  std::string name;
  CLIENT* client;
};

// The results of each turn, and their ratio to TCP's.
struct Series {
  std::vector<double> us, times;
};

void print(const std::string& kind, const std::string& transport, const Series& series,
           bool first) {
  auto [low, high] = std::ranges::minmax(series.times);
  const double middle = perf::quantile(series.times, 0.5);
  std::fprintf(stderr, "%-12s %-6s %10.2f us  %6.2f times TCP (%.2f to %.2f)\n", kind.c_str(),
               transport.c_str(), perf::quantile(series.us, 0.5), middle, low, high);
  std::printf(
      "%s  {\"call\": \"%s\", \"transport\": \"%s\", \"p50_us\": %.3f, \"times_tcp\": %.3f, "
      "\"low\": %.3f, \"high\": %.3f}",
      first ? "" : ",\n", kind.c_str(), transport.c_str(), perf::quantile(series.us, 0.5), middle,
      low, high);
}

void measure(const std::vector<Transport>& transports, const std::vector<Kind>& kinds,
             const Options& options) {
  std::printf("[\n");
  bool first = true;
  for (const Kind& kind : kinds) {
    std::vector<Series> series(transports.size());
    for (int turn = 0; turn < options.turns; ++turn) {
      for (size_t i = 0; i < transports.size(); ++i) {
        series[i].us.push_back(median_us(transports[i].client, kind, options.seconds));
        series[i].times.push_back(series[0].us.back() / series[i].us.back());
      }
    }
    for (size_t i = 0; i < transports.size(); ++i)
      print(kind.name, transports[i].name, series[i], std::exchange(first, false));
  }
  std::printf("\n]\n");
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view option = argv[i];
    const char* text = i + 1 < argc ? argv[i + 1] : "";
    char* end = nullptr;
    if (option == "--seconds" && (options.seconds = std::strtod(text, &end)) > 0 && *end == 0)
      continue;
    if (option == "--turns" && (options.turns = std::atoi(text)) > 0)
      continue;
    if (option == "--cpus" && std::sscanf(text, "%d,%d", &options.cpus[0], &options.cpus[1]) == 2)
      continue;
    if (option == "--size" &&
        (options.size = static_cast<uint32_t>(std::strtoul(text, &end, 10))) != 0 && *end == 0 &&
        options.size <= KV_LARGEST_VALUE)
      continue;
    die("usage: tirpc_bridge [--seconds S] [--turns N] [--cpus SERVER,CLIENT] [--size BYTES]");
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  const apps::TcpConnection tcp;
  if (tcp.failed())
    die("no TCP on loopback");
  const pid_t self = ::getpid();
  if (::fork() == 0) {
    serve_as_child_of(self, options.cpus[0]);
    serve_tcp(tcp.far());
  }
  int told[2];
  if (::pipe(told) != 0)
    die("no pipe");
  const std::string shm = "shm:@tirpc-bridge-" + std::to_string(self);
  // EAL forbids fork(): nothing before the last one starts it, not even rrdk_tirpc_bind().
  if (!rrdk_tirpc_bind(RRDK_KV_BINDING))
    die(rrdk_tirpc_error());
  if (::fork() == 0) {
    serve_as_child_of(self, options.cpus[0]);
    serve_rdma(told[1], {shm, "iwarp://127.0.0.1:0"});
  }
  ::close(told[1]);
  const std::vector<std::string> addresses = read_lines(told[0]);
  if (addresses.size() != 2)
    die("no server");
  std::vector<Transport> transports = {
      {"tcp", tcp_client(tcp.near())},
      {"shm", rrdk_clnt_create(addresses[0].c_str(), KV_PROG, KV_V1)},
      {"iwarp", rrdk_clnt_create(addresses[1].c_str(), KV_PROG, KV_V1)}};
  for (const Transport& transport : transports) {
    if (transport.client == nullptr)
      die(rrdk_tirpc_error());
  }
  if (!apps::pin_to_cpu(options.cpus[1]))
    die("this process may not use the client's CPU");
  value.assign(KV_LARGEST_VALUE, 'v');
  const std::vector<uint32_t> sizes =
      options.size != 0 ? std::vector{options.size} : std::vector<uint32_t>{8192, 1u << 20};
  measure(transports, kinds_of(sizes), options);
  return 0;
}
