// The server process. It polls in its one thread, where the handlers run, and keeps nothing that a
// successor needs but in the journal.
#include "server.h"

#include <csignal>
#include <cstdio>
#include <thread>
#include <utility>

#include "journal.h"
#include "program.h"
#include "rrdk/eal.h"
#include "rrdk/server.h"

namespace rrdk::survival {
namespace {

constexpr uint64_t kMs = 1'000'000;

volatile std::sig_atomic_t stop = 0;

struct State {
  State(Journal& journal_in, const Options& options_in)
      : journal(journal_in), options(options_in), dice(options_in.seed) {}
  Journal& journal;
  const Options& options;
  Dice dice;
  uint64_t next_break_ns = Runtime::now_ns() + 1000 * kMs;
};

void add(ServerCall call, void* context) {
  auto& state = *static_cast<State*>(context);
  CallId id = {.connection = call.args().get_u32(), .xid = call.xid(), .serial = 0};
  id.serial = call.args().get_u64();
  if (!call.args().at_end())
    return std::move(call).reject(AcceptStat::kGarbageArgs);
  bool look = !state.options.server_cache;
  call.results().put_u64(look ? state.journal.add(id) : state.journal.add_again(id));
  // Some wait a little for their replies, so that connections break in between.
  uint64_t delay_ns = state.dice.next() % 8 == 0 ? state.dice.between(1, 200) * 1000 : 0;
  std::move(call).reply_after(delay_ns);
}

void read(ServerCall call, void* context) {
  auto& state = *static_cast<State*>(context);
  uint64_t offset = call.args().get_u64();
  uint32_t count = call.args().get_u32();
  if (!call.args().at_end() || count > kMostBytes)
    return std::move(call).reject(AcceptStat::kGarbageArgs);
  if (state.options.mode == Mode::kBreak && Runtime::now_ns() > state.next_break_ns) {
    state.next_break_ns = Runtime::now_ns() + state.dice.between(20, 400) * kMs;
    return std::move(call).drop();  // and so are all other calls of its connection
  }
  Buffer data = call.memory().get(count);
  if (!data)
    return std::move(call).reject(AcceptStat::kSystemErr);
  for (uint32_t i = 0; i < count; ++i)
    data.data()[i] = pattern(offset + i);
  call.results().put_item(std::move(data), count, Ddp::kEligible);
  std::move(call).reply();
}

void write(ServerCall call, void*) {
  uint64_t offset = call.args().get_u64();
  ItemView data = call.args().get_item(kMostBytes);
  if (!call.args().at_end())
    return std::move(call).reject(AcceptStat::kGarbageArgs);
  uint32_t wrong = 0;
  data.for_each([&](const std::byte* bytes, size_t length) {
    wrong += count_wrong(offset, bytes, length);
    offset += length;
  });
  call.results().put_u32(wrong);
  std::move(call).reply();
}

constexpr Procedure kTable[] = {{.number = kAdd, .handler = add, .idempotent = false},
                                {.number = kRead, .handler = read},
                                {.number = kWrite, .handler = write}};

// Only one of the two looks after repeated calls, so that it is seen to do so.
ServerOptions server_options(const Options& options) {
  ServerOptions server;
  // Large enough for what one connection executes while the other one is broken.
  if (!options.server_cache)
    server.replay.entries = 0;
  return server;
}

Result<void> serve(const Options& options, Journal& journal) {
  auto eal = ensure_eal();
  if (!eal)
    return tl::unexpected(eal.error());
  auto memory = Memory::create(
      {.classes = {{4096, 1024}, {65536, 128}}, .hugepages = HugepagePolicy::kNever});
  if (!memory)
    return tl::unexpected(memory.error());
  bool whole = false;
  {
    auto runtime = Runtime::create(**memory, {});
    if (!runtime)
      return tl::unexpected(runtime.error());
    auto server = Server::create(**runtime, server_options(options));
    if (!server)
      return tl::unexpected(server.error());
    State state(journal, options);
    auto added =
        (*server)->add_service({.binding = &kBinding, .procedures = kTable, .context = &state});
    if (!added)
      return added;
    auto listening = (*server)->listen(options.uri);
    if (!listening)
      return tl::unexpected(listening.error());
    while (stop == 0) {
      if ((*runtime)->poll() == 0)
        std::this_thread::yield();
    }
    server->reset();
    runtime->reset();
    whole = (*memory)->whole();
  }
  return whole ? Result<void>() : fail(Errc::kNoMemory, "buffers of the server are missing");
}

}  // namespace

int run_server(const Options& options) {
  std::signal(SIGTERM, [](int) { stop = 1; });
  auto journal = Journal::open(options.journal);
  Result<void> served =
      journal ? serve(options, **journal) : Result<void>(tl::unexpected(journal.error()));
  if (served)
    return 0;
  std::fprintf(stderr, "survival: server: %s\n", served.error().message.c_str());
  return 1;
}

}  // namespace rrdk::survival
