// A null call of libtirpc over TCP on loopback, between two processes: what an ONC RPC program does
// without us.
//
//   tirpc_call [--seconds S] [--cpus SERVER,CLIENT]
//
// Prints the median round trip in microseconds and the calls a second, one at a time, as JSON.
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
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "machine_limits.h"

namespace {

using namespace rrdk;
using Clock = std::chrono::steady_clock;

constexpr rpcprog_t kProgram = 0x20000099;  // of the range for users
constexpr rpcvers_t kVersion = 1;
constexpr timeval kPatience = {10, 0};

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "tirpc_call: %s\n", what);
  std::exit(1);
}

// libtirpc's xdr_void() has another type than it asks for.
bool_t nothing(XDR*, ...) {
  return 1;
}

void answer(svc_req*, SVCXPRT* transport) {
  svc_sendreply(transport, nothing, nullptr);
}

// Ends with the client, however that ends.
void serve(int listening, int cpu, pid_t client) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != client)
    std::exit(1);
  if (!apps::pin_to_cpu(cpu))
    die("this process may not use the server's CPU");
  SVCXPRT* transport = svc_vc_create(listening, 0, 0);
  if (transport == nullptr || !svc_reg(transport, kProgram, kVersion, answer, nullptr))
    die("libtirpc makes no server");
  svc_run();
  std::exit(1);
}

int listen_on_loopback(sockaddr_in& address) {
  address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0 || ::bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(fd, 1) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    die("no socket on loopback");
  return fd;
}

void call(sockaddr_in& address, int cpu, double seconds) {
  if (!apps::pin_to_cpu(cpu))
    die("this process may not use the client's CPU");
  int fd = RPC_ANYSOCK;
  CLIENT* client = clnttcp_create(&address, kProgram, kVersion, &fd, 0, 0);
  if (client == nullptr)
    die("libtirpc does not connect");
  const auto begin = Clock::now();
  const auto end = begin + std::chrono::duration<double>(seconds);
  std::vector<double> microseconds;
  for (auto now = begin; now < end;) {
    if (clnt_call(client, NULLPROC, nothing, nullptr, nothing, nullptr, kPatience) != RPC_SUCCESS)
      die("a call failed");
    const auto then = std::exchange(now, Clock::now());
    microseconds.push_back(std::chrono::duration<double, std::micro>(now - then).count());
  }
  const auto middle = microseconds.begin() + static_cast<std::ptrdiff_t>(microseconds.size() / 2);
  std::nth_element(microseconds.begin(), middle, microseconds.end());
  std::printf("{\"p50_us\": %.3f, \"calls_per_s\": %.0f}\n", *middle,
              static_cast<double>(microseconds.size()) / seconds);
  clnt_destroy(client);
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
  sockaddr_in address;
  const int listening = listen_on_loopback(address);
  const pid_t client = ::getpid();
  const pid_t server = ::fork();
  if (server < 0)
    die("no second process");
  if (server == 0)
    serve(listening, cpus[0], client);
  ::close(listening);
  call(address, cpus[1], seconds);
  return 0;
}
