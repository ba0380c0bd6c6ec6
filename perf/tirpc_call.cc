// A null call of libtirpc over TCP on loopback, between two processes: what an ONC RPC program does
// without us.
//
//   tirpc_call [--seconds S] [--cpus SERVER,CLIENT]
//
// Prints the median round trip in microseconds, as JSON.
#include <netinet/in.h>
#include <rpc/rpc.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "machine_limits.h"
#include "tcp_limits.h"
#include "turns.h"

namespace {

using namespace rrdk;
using perf::die;
using Clock = std::chrono::steady_clock;

constexpr rpcprog_t kProgram = 0x20000099;  // of the range for users
constexpr rpcvers_t kVersion = 1;
constexpr timeval kPatience = {10, 0};

// clnt_call() asks for another type than that of libtirpc's xdr_void().
bool_t nothing(XDR*, ...) {
  return 1;
}

void answer(svc_req*, SVCXPRT* transport) {
  svc_sendreply(transport, nothing, nullptr);
}

// Ends with the client, however that ends.
[[noreturn]] void serve(int fd, int cpu, pid_t client) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != client)
    std::exit(1);
  if (!apps::pin_to_cpu(cpu))
    die("this process may not use the server's CPU");
  SVCXPRT* transport = svc_fd_create(fd, 0, 0);
  if (transport == nullptr || !svc_reg(transport, kProgram, kVersion, answer, nullptr))
    die("libtirpc makes no server");
  svc_run();
  std::exit(1);
}

double median_call_us(int fd, int cpu, double seconds) {
  if (!apps::pin_to_cpu(cpu))
    die("this process may not use the client's CPU");
  sockaddr_in server{};
  socklen_t length = sizeof server;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&server), &length) != 0)
    die("the server is gone");
  CLIENT* client = clnttcp_create(&server, kProgram, kVersion, &fd, 0, 0);
  if (client == nullptr)
    die("libtirpc makes no client");
  auto now = Clock::now();
  const auto end = now + std::chrono::duration<double>(seconds);
  std::vector<double> took_us;
  while (now < end) {
    if (clnt_call(client, NULLPROC, nothing, nullptr, nothing, nullptr, kPatience) != RPC_SUCCESS)
      die("a call failed");
    const auto then = std::exchange(now, Clock::now());
    took_us.push_back(std::chrono::duration<double, std::micro>(now - then).count());
  }
  clnt_destroy(client);
  return perf::quantile(std::move(took_us), 0.5);
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 1;
  int cpus[2] = {0, 1};
  for (int i = 1; i < argc; i += 2) {
    const std::string_view option = argv[i];
    char* end = nullptr;
    if (i + 1 == argc)
      die("an option lacks its value");
    if (option == "--seconds" && (seconds = std::strtod(argv[i + 1], &end)) > 0 && *end == 0)
      continue;
    if (option == "--cpus" && std::sscanf(argv[i + 1], "%d,%d", &cpus[0], &cpus[1]) == 2)
      continue;
    die("usage: tirpc_call [--seconds S] [--cpus SERVER,CLIENT]");
  }
  const apps::TcpConnection tcp;
  if (tcp.failed())
    die("no TCP on loopback");
  const pid_t client = ::getpid();
  const pid_t server = ::fork();
  if (server < 0)
    die("no second process");
  if (server == 0)
    serve(tcp.far(), cpus[0], client);
  std::printf("{\"p50_us\": %.3f}\n", median_call_us(tcp.near(), cpus[1], seconds));
  return 0;
}
