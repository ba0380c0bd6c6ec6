// Serves one procedure, which returns its argument. Usage: echo_server [URI]
#include <poll.h>
#include <sys/signalfd.h>

#include <csignal>
#include <cstdio>

#include "example.h"
#include "rrdk/eal.h"
#include "rrdk/server.h"

namespace {

void echo(rrdk::ServerCall call, void*) {
  rrdk::ItemView text = call.args().get_opaque(kMaxText);
  if (!call.args().at_end())
    return std::move(call).reject(rrdk::AcceptStat::kGarbageArgs);
  call.results().put_opaque(text);
  std::move(call).reply();
}

constexpr rrdk::Procedure kTable[] = {{kEcho, echo}};

}  // namespace

int main(int argc, char** argv) {
  rrdk::must(rrdk::ensure_eal());
  auto memory = rrdk::must(rrdk::Memory::create({}));
  auto runtime = rrdk::must(rrdk::Runtime::create(*memory, {}));  // no poll thread: polled below
  auto server = rrdk::must(rrdk::Server::create(*runtime));
  rrdk::must(server->add_service({.binding = &kBinding, .procedures = kTable}));

  // Waits for signals and work together: a signal handler that only sets a flag could run just
  // before the sleep, and nothing would end the sleep.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  pollfd events[] = {{.fd = runtime->wake_fd(), .events = POLLIN, .revents = 0},
                     {.fd = signalfd(-1, &signals, SFD_CLOEXEC), .events = POLLIN, .revents = 0}};
  std::string uri = rrdk::must(server->listen(argc > 1 ? argv[1] : kDefaultUri));
  std::printf("listening on %s\n", uri.c_str());
  std::fflush(stdout);
  // Sleeps when there is nothing to do. A program with a CPU to spare just polls on.
  while (events[1].revents == 0) {
    if (runtime->poll() == 0 && runtime->arm_wake())
      poll(events, 2, -1);
  }
  return 0;
}
