// Serves one procedure: what comes in goes back. Usage: echo_server [URI]
#include <csignal>
#include <cstdio>

#include "example.h"
#include "rrdk/eal.h"
#include "rrdk/server.h"

namespace {

volatile std::sig_atomic_t stop = 0;

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
  must(rrdk::ensure_eal());
  auto memory = must(rrdk::Memory::create({}));
  auto runtime = must(rrdk::Runtime::create(*memory, {}));  // starts no thread: polled below
  auto server = must(rrdk::Server::create(*runtime));
  must(server->add_service({.binding = &kBinding, .procedures = kTable}));
  std::printf("listening on %s\n", must(server->listen(argc > 1 ? argv[1] : kDefaultUri)).c_str());
  std::fflush(stdout);

  std::signal(SIGINT, [](int) { stop = 1; });
  std::signal(SIGTERM, [](int) { stop = 1; });
  while (!stop)
    runtime->poll();
  return 0;
}
