// nfs-memory-server: an NFSv3 server over RDMA whose files are in memory, for testing clients of
// RPC-over-RDMA against this library: Linux's, and testrpc's engine nfs3.
#include <poll.h>

#include <cerrno>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mount_service.h"
#include "nfs_program.h"
#include "rrdk/eal.h"
#include "rrdk/gss.h"
#include "rrdk/server.h"
#include "tree.h"

namespace rrdk::interop {
namespace {

constexpr char kUsage[] =
    "usage: nfs-memory-server --listen URI [options]\n"
    "Serves NFS version 3 over RDMA from a file system in memory, until SIGTERM.\n\n"
    "  --listen URI      such as iwarp://0.0.0.0:20049 or shm:/tmp/nfs.sock\n"
    "  --mount-port N    TCP port of the MOUNT service (default 20048; 0: any that is free)\n"
    "  --inline BYTES    of Send and Receive buffers, k * 1024 (default 4096)\n"
    "  --rpcrdma-version 1|2|auto\n"
    "                    answers these only (default auto: both)\n"
    "  --credits N       calls that each connection may have outstanding (default 64)\n"
    "  --megabytes N     of files at most, more is NFS3ERR_NOSPC (default 256)\n"
    "  --names N         of files and folders at most, likewise (default 65536)\n"
    "  --busy N          every N-th READ is put off with NFS3ERR_JUKEBOX\n"
    "  --kerberos ADDRESS:PORT\n"
    "                    takes calls with Kerberos only; their contexts are also made by TCP "
    "there\n"
    "  --file-system N   number that makes a mount outlive a restart: the root is the same under "
    "the\n"
    "                    same number, and empty (default: a random one)\n";

struct Options {
  std::string uri;
  uint16_t mount_port = 20048;
  ServerOptions server;
  TreeLimits tree;
  uint64_t file_system = 0;  // 0: any
  std::string kerberos;
};

volatile std::sig_atomic_t stop = 0;

Result<uint64_t> number(const std::string& option, const char* text, uint64_t low, uint64_t high) {
  char* end = nullptr;
  errno = 0;
  uint64_t value = std::strtoull(text, &end, 10);
  bool whole = *text >= '0' && *text <= '9' && *end == '\0' && errno == 0;
  if (!whole || value < low || value > high)
    return fail(Errc::kInvalidArgument, option + ": '" + text + "' is no number from " +
                                            std::to_string(low) + " to " + std::to_string(high));
  return value;
}

Result<void> take(Options& options, const std::string& name, const char* value) {
  if (name == "--listen") {
    options.uri = value;
    return {};
  }
  if (name == "--kerberos") {
    options.kerberos = value;
    return {};
  }
  auto into = [&](auto& to, uint64_t low, uint64_t high, uint64_t unit = 1) -> Result<void> {
    Result<uint64_t> parsed = number(name, value, low, high);
    if (!parsed)
      return tl::unexpected(parsed.error());
    to = static_cast<std::remove_reference_t<decltype(to)>>(*parsed * unit);
    return {};
  };
  if (name == "--mount-port")
    return into(options.mount_port, 0, UINT16_MAX);
  if (name == "--inline")
    return into(options.server.inline_size, 1024, 262144);
  if (name == "--credits")
    return into(options.server.credits, 1, 4096);
  if (name == "--megabytes")
    return into(options.tree.bytes, 1, 1 << 20, 1 << 20);
  if (name == "--rpcrdma-version") {
    const std::string_view version = value;
    if (version != "1" && version != "2" && version != "auto")
      return fail(Errc::kInvalidArgument, name + ": '" + value + "' is not 1, 2 or auto");
    options.server.versions.one = version != "2";
    options.server.versions.two = version != "1";
    return {};
  }
  if (name == "--file-system")
    return into(options.file_system, 1, UINT64_MAX);
  if (name == "--busy")
    return into(options.tree.busy, 1, 1u << 20);
  if (name == "--names")
    return into(options.tree.names, 1, 1 << 24);
  return fail(Errc::kInvalidArgument, "unknown option '" + name + "'; see --help");
}

Result<Options> parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc)
      return fail(Errc::kInvalidArgument, std::string(argv[i]) + " needs a value; see --help");
    if (Result<void> taken = take(options, argv[i], argv[i + 1]); !taken)
      return tl::unexpected(taken.error());
  }
  if (options.uri.empty())
    return fail(Errc::kInvalidArgument, "--listen is missing; see --help");
  return options;
}

// Polls; sleeps when there is nothing to do, so that a client on the same CPU gets it.
void poll_until_stopped(Runtime& runtime) {
  constexpr int kIdlePolls = 1000;
  for (int idle = 0; stop == 0;) {
    idle = runtime.poll() == 0 ? idle + 1 : 0;
    if (idle < kIdlePolls || !runtime.arm_wake())
      continue;
    pollfd event = {runtime.wake_fd(), POLLIN, 0};
    poll(&event, 1, 100);
    idle = 0;
  }
}

void print_served(const Stats& stats) {
  std::printf("served %" PRIu64 " calls on %" PRIu64 " connections, %" PRIu64 " rejected, %" PRIu64
              " transport errors, %" PRIu64 " protocol breaches\n",
              stats[Counter::kCallsReceived], stats[Counter::kConnectionsAccepted],
              stats[Counter::kCallsRejected], stats[Counter::kTransportErrorsSent],
              stats[Counter::kProtocolBreaches]);
  for (Refusal reason : all_refusals()) {
    if (uint64_t count = stats[reason])
      std::printf("  %s: %" PRIu64 "\n", to_string(reason), count);
  }
}

// Those of RFC 2623 section 2.2, or AUTH_SYS.
std::vector<uint32_t> flavors(const Options& options) {
  return options.kerberos.empty() ? std::vector<uint32_t>{1}
                                  : std::vector<uint32_t>{390003, 390004, 390005};
}

Result<std::unique_ptr<GssAcceptor>> acceptor_of(const Options& options) {
  if (options.kerberos.empty())
    return nullptr;
  GssAcceptorOptions keys;
  keys.tcp = options.kerberos;
  return GssAcceptor::create(keys);
}

void print_contexts(const GssAcceptor& acceptor) {
  const GssAcceptorStats stats = acceptor.stats();
  std::printf("contexts: %" PRIu64 " established, %" PRIu64 " refused, %" PRIu64
              " ended by callers, %" PRIu64 " refused by TCP\n",
              stats.established, stats.refused, stats.destroyed, stats.tcp_refused);
}

Result<void> serve(const Options& options, Memory& memory) {
  auto runtime = Runtime::create(memory, {});
  if (!runtime)
    return tl::unexpected(runtime.error());
  std::random_device entropy;
  uint64_t instance = (uint64_t{entropy()} << 32) | entropy();
  Tree tree(options.tree, instance, options.file_system != 0 ? options.file_system : instance);
  auto acceptor = acceptor_of(options);
  if (!acceptor)
    return tl::unexpected(acceptor.error());
  ServerOptions server_options = options.server;
  server_options.gss = acceptor->get();
  auto server = Server::create(**runtime, server_options);
  if (!server)
    return tl::unexpected(server.error());
  Service service = nfs_service(tree);
  service.accepts = *acceptor != nullptr ? kAcceptGss : kAcceptAny;
  if (auto added = (*server)->add_service(service); !added)
    return added;
  auto mount =
      MountService::start(options.mount_port, tree.handle_of(tree.root()), flavors(options));
  if (!mount)
    return tl::unexpected(mount.error());
  auto listening = (*server)->listen(options.uri);
  if (!listening)
    return tl::unexpected(listening.error());
  std::printf("MOUNT on TCP port %u\nlistening on %s\n", (*mount)->port(), listening->c_str());
  std::fflush(stdout);
  poll_until_stopped(**runtime);
  (*server)->drain(1000);
  print_served((*server)->stats());
  if (*acceptor != nullptr)
    print_contexts(**acceptor);
  std::printf("left: %" PRIu64 " names, %" PRIu64 " bytes\n", tree.names_used(), tree.bytes_used());
  server->reset();
  runtime->reset();
  return {};
}

Result<void> run(const Options& options) {
  if (auto eal = ensure_eal(); !eal)
    return tl::unexpected(eal.error());
  auto memory = Memory::create({.bytes = 256 << 20, .hugepages = HugepagePolicy::kNever});
  if (!memory)
    return tl::unexpected(memory.error());
  if (auto served = serve(options, **memory); !served)
    return served;
  bool whole = (*memory)->whole();
  std::printf("pools whole: %s\n", whole ? "yes" : "NO");
  return whole ? Result<void>() : fail(Errc::kNoMemory, "buffers are missing");
}

}  // namespace
}  // namespace rrdk::interop

int main(int argc, char** argv) {
  using namespace rrdk::interop;
  if (argc == 2 && std::string_view(argv[1]) == "--help") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  auto options = parse(argc, argv);
  if (!options) {
    std::fprintf(stderr, "nfs-memory-server: %s\n", options.error().message.c_str());
    return 2;
  }
  std::signal(SIGTERM, [](int) { stop = 1; });
  std::signal(SIGINT, [](int) { stop = 1; });
  std::signal(SIGPIPE, SIG_IGN);
  if (auto done = run(*options); !done) {
    std::fprintf(stderr, "nfs-memory-server: %s\n", done.error().message.c_str());
    return 1;
  }
  return 0;
}
