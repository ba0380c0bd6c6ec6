// The server process. It polls in its only thread, where the handlers run, and keeps everything
// that a successor needs in the journal.
#include "server.h"

#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "journal.h"
#include "program.h"
#include "rrdk/eal.h"
#include "rrdk/faults.h"
#include "rrdk/server.h"

namespace rrdk::survival {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint32_t kMostAtOnce = 20'000;  // new ones come while old ones are still there
constexpr uint64_t kServerBudget = 512 << 20;

volatile std::sig_atomic_t stop = 0;

struct State {
  State(Journal& journal_in, const Options& options_in)
      : journal(journal_in), options(options_in), dice(options_in.seed) {}
  Journal& journal;
  const Options& options;
  Dice dice;
  uint64_t next_break_ns = Runtime::now_ns() + 1000 * kMs;
  // Mode::kAll: the time, or the number of ended connections, until which no reply arrives; 0: they
  // do.
  uint64_t break_until_ns = 0;
  uint64_t break_until_ended = 0;
  uint64_t storms = 0;
};

void add(ServerCall call, void* context) {
  auto& state = *static_cast<State*>(context);
  CallId id = {.connection = call.args().get_u32(), .xid = call.xid(), .serial = 0};
  id.serial = call.args().get_u64();
  if (!call.args().at_end())
    return std::move(call).reject(AcceptStat::kGarbageArgs);
  bool look = state.options.mode != Mode::kAll && !state.options.server_cache;
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

// Only one of the two handles repeated calls, so that it is seen to do so.
ServerOptions server_options(const Options& options) {
  ServerOptions server;
  server.max_connections = server.max_connections_per_client = kMostAtOnce;
  if (options.mode != Mode::kAll && !options.server_cache)
    server.replay.entries = 0;
  return server;
}

// Handlers run, and their replies are lost with their connections, on all of these at once.
void break_all(State& state, Runtime& runtime, const Server& server) {
  uint64_t now = Runtime::now_ns();
  if (now < state.next_break_ns)
    return;
  Stats stats = server.stats();
  if (state.break_until_ns != 0) {
    if (now < state.break_until_ns && stats[Counter::kConnectionsEnded] < state.break_until_ended)
      return;
    runtime.clear_faults();
    state.break_until_ns = 0;
    state.next_break_ns = now + 1000 * kMs + stats[Counter::kConnections] * kMs / 2;
  } else if (stats[Counter::kConnections] < state.options.connections * state.options.processes) {
    state.next_break_ns = now + 20 * kMs;  // not all are back
  } else {
    state.break_until_ns = now + 50 * kMs + stats[Counter::kConnections] * 2 * kMs;
    state.break_until_ended = stats[Counter::kConnectionsEnded] + stats[Counter::kConnections];
    ++state.storms;
    (void)runtime.set_faults({.send = {.every = 1}});
  }
}

// For the supervisor, all at once.
Result<void> announce(const std::string& uri, const Options& options) {
  std::string draft = options.announce + ".new";
  bool written = static_cast<bool>(std::ofstream(draft) << uri << std::endl);
  if (!written || std::rename(draft.c_str(), options.announce.c_str()) != 0)
    return fail(Errc::kSystem, options.announce + " cannot be written");
  return {};
}

void print(const Stats& stats, uint64_t storms) {
  if (storms != 0)
    std::printf("server: all connections were broken at once %lu times\n", storms);
  if (stats[Counter::kReplayKept] == 0)
    return;
  std::printf(
      "server: %lu connections, %lu ended; %lu calls kept, %lu answered again, %lu waited, %lu "
      "forgotten, %lu without reply, %lu lost, %lu refused, %lu unprotected\n",
      stats[Counter::kConnectionsAccepted], stats[Counter::kConnectionsEnded],
      stats[Counter::kReplayKept], stats[Counter::kReplayAnswered], stats[Counter::kReplayWaits],
      stats[Counter::kReplayForgotten], stats[Counter::kReplayNotKept], stats[Counter::kReplayLost],
      stats[Counter::kReplayRefused], stats[Counter::kReplayUnprotected]);
}

Result<void> serve(const Options& options, Journal& journal) {
  auto eal = ensure_eal();
  if (!eal)
    return tl::unexpected(eal.error());
  auto memory = Memory::create({.bytes = kServerBudget, .hugepages = HugepagePolicy::kNever});
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
    if (auto told = announce(*listening, options); !told)
      return told;
    while (stop == 0) {
      if ((*runtime)->poll() == 0)
        std::this_thread::yield();
      if (options.mode == Mode::kAll)
        break_all(state, **runtime, **server);
    }
    print((*server)->stats(), state.storms);
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
