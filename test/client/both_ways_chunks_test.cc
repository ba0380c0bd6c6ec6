// Calls with chunks made by a server, whose client says that it takes them (draft-04's Backward
// Request Support, section 5.2.2), in one process.
#include "both_ways.h"

namespace rrdk::loopback {
namespace {

constexpr Wire kDraft04 = kWires[2];

ClientOptions taking_chunks(const Wire& wire = kDraft04) {
  ClientOptions options = client_options(wire);
  options.version2.backward_chunks = true;
  return options;
}

// One call of the loopback program, to either end, that checks its data.
struct Bulk {
  static constexpr uint32_t kOffset = 77;

  Bulk(Caller& caller, Memory& memory_in) : memory(memory_in), ending(caller) {}

  // An eligible argument.
  void write(uint32_t bytes) {
    Encoder& args = begin(kWrite, bytes);
    args.put_u64(kOffset);
    args.put_item(patterned(memory, kOffset, bytes), bytes, Ddp::kEligible);
    ending.submit();
  }
  // An eligible result, in memory of the test's own.
  void read(uint32_t bytes) {
    Encoder& args = begin(kRead, bytes);
    args.put_u64(kOffset);
    args.put_u32(bytes);
    room = memory.get(bytes);
    ending.call.offer(room.first(bytes));
    ending.submit();
  }
  // Data that may only move with its message: a long call, and a long reply.
  void echo(uint32_t bytes) {
    Buffer data = patterned(memory, kOffset, bytes);
    Encoder& args = begin(kEcho, bytes);
    args.put_opaque(std::span(data.data(), bytes));
    ending.call.expect_reply(bytes + 8);
    ending.submit();
  }
  // The client keeps it, with all its chunks.
  void keep(uint32_t bytes) {
    Encoder& args = begin(kKeep, bytes);
    args.put_item(patterned(memory, kOffset, bytes), bytes, Ddp::kNo);
    room = memory.get(bytes);
    ending.call.offer(room.first(bytes));
    ending.submit();
  }
  Encoder& begin(uint32_t procedure_in, uint32_t bytes_in) {
    procedure = procedure_in;
    length = bytes_in;
    return ending.begin(procedure);
  }
  bool ended() const { return ending.ended() == 1; }
  CallStatus status() const { return ending.call.status(); }
  // The data that came back is the data that was requested.
  bool right() {
    if (!ended() || status() != CallStatus::kOk)
      return false;
    Decoder& results = ending.call.results();
    if (procedure == kWrite)
      return results.get_u32() == length && results.get_u32() == 0;
    if (procedure == kRead && results.get_u32() != 7)
      return false;
    ItemView data = procedure == kRead ? results.get_item(length) : results.get_opaque(length);
    uint64_t at = kOffset;
    uint32_t wrong = 0;
    data.for_each([&](const std::byte* run, size_t n) {
      for (size_t i = 0; i < n; ++i)
        wrong += run[i] != pattern(at++);
    });
    return results.at_end() && data.size() == length && wrong == 0;
  }

  Memory& memory;
  Buffer room;
  EndingCall ending;
  uint32_t procedure = 0, length = 0;
};

struct BackwardChunks : testing::TestWithParam<const char*> {
  // The client has said what it takes by the time its second call comes.
  void begin(const ClientOptions& client, const ServerOptions& server = server_options(kDraft04)) {
    back.reset();
    world = std::make_unique<BothWorld>(Cores::kEmbedded, server, client, true, uri());
    subscribe();
  }
  void subscribe() {
    world->plus();
    back = world->subscribe();
    ASSERT_NE(back, nullptr);
  }
  void TearDown() override {
    back.reset();
    world.reset();
  }
  static std::string uri() {
    bool shm = std::string_view(GetParam()) == "Shm";
    return shm ? "shm:" + socket_path() : "iwarp://127.0.0.1:0";
  }
  Bulk& bulk(Caller& caller) {
    return *bulks.emplace_back(std::make_unique<Bulk>(caller, *world->memory));
  }
  void until_ended() {
    world->until([&] { return std::ranges::all_of(bulks, [](auto& b) { return b->ended(); }); });
  }

  std::unique_ptr<BothWorld> world;
  std::shared_ptr<BackwardClient> back;
  std::vector<std::unique_ptr<Bulk>> bulks;
};
INSTANTIATE_TEST_SUITE_P(Fabrics, BackwardChunks, testing::Values("Shm", "Iwarp"),
                         [](const auto& one) { return std::string(one.param); });

// Shows: BIDIR-20
TEST_P(BackwardChunks, LargeArgumentsAndResultsMove) {
  begin(taking_chunks());
  EXPECT_TRUE(back->takes_chunks());
  for (uint32_t bytes : {3001u, 65536u, 1'500'001u}) {
    SCOPED_TRACE(bytes);
    bulks.clear();
    bulk(*back).write(bytes);
    bulk(*back).read(bytes);
    bulk(*back).echo(bytes);
    until_ended();
    for (auto& one : bulks)
      EXPECT_TRUE(one->right()) << one->procedure << ": " << to_string(one->status());
  }
  // It was placed in the offered memory.
  ItemView data = {};
  Bulk& placed = bulk(*back);
  placed.read(50'000);
  until_ended();
  placed.ending.call.results().get_u32();
  data = placed.ending.call.results().get_item(50'000);
  EXPECT_EQ(data.data(), placed.room.data());
  EXPECT_EQ(world->server->stats()[Counter::kProtocolBreaches], 0u);
  EXPECT_EQ(world->connection->stats()[Counter::kProtocolBreaches], 0u);
  bulks.clear();
}

// Both ends must support it, in the version that has it.
// Shows: V2D4-PROP-28, BIDIR-10
TEST_P(BackwardChunks, OthersGetOnlyWhatFitsInline) {
  ServerOptions silent = server_options(kDraft04);
  silent.version2.backward_chunks = false;
  struct {
    ClientOptions client;
    ServerOptions server;
  } cases[] = {
      {client_options(kDraft04), server_options(kDraft04)},
      {taking_chunks(), silent},
      {taking_chunks(kWires[0]), server_options(kWires[0])},
      {taking_chunks(kWires[1]), server_options(kWires[1])},
  };
  for (auto& [client, server] : cases) {
    begin(client, server);
    EXPECT_FALSE(back->takes_chunks());
    uint64_t heard = world->connection->stats()[Counter::kCallsReceived];
    bulk(*back).write(50'000);
    bulk(*back).read(50'000);
    bulk(*back).echo(50'000);
    until_ended();
    for (auto& one : bulks) {  // only the client knows how long a result is
      bool runs = one->procedure == kRead;
      EXPECT_STREQ(to_string(one->status()),
                   to_string(runs ? CallStatus::kChunkError : CallStatus::kTooLarge));
    }
    EXPECT_EQ(world->connection->stats()[Counter::kCallsReceived], heard + 1)
        << "the others are not sent";
    bulks.clear();
    bulk(*back).write(500);
    bulk(*back).read(500);
    until_ended();
    for (auto& one : bulks)
      EXPECT_TRUE(one->right()) << one->procedure << ": " << to_string(one->status());
    EXPECT_EQ(world->connection->stats()[Refusal::kBackwardChunks], 0u);
    world->plus();
    bulks.clear();
  }
}

// The client cannot have said it yet: such a call is refused here, and not by the client.
TEST_P(BackwardChunks, TheHandlerOfTheFirstCallKnowsNothingYet) {
  world = std::make_unique<BothWorld>(Cores::kEmbedded, server_options(kDraft04), taking_chunks(),
                                      true, uri());
  back = world->subscribe();
  world->until([&] { return back->takes_chunks(); });
  bulk(*back).write(50'000);
  until_ended();
  EXPECT_TRUE(bulks[0]->right());
  bulks.clear();
}

TEST_P(BackwardChunks, BothDirectionsAtOnce) {
  begin(taking_chunks());
  constexpr uint32_t kSizes[] = {900, 20'000, 3'000, 60'000, 5'001};
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 3; ++i) {
      uint32_t bytes = kSizes[(round + i) % 5];
      for (Caller* caller :
           {static_cast<Caller*>(back.get()), static_cast<Caller*>(world->connection.get())}) {
        bulk(*caller).write(bytes);
        bulk(*caller).read(bytes);
        bulk(*caller).echo(bytes);
      }
    }
    until_ended();
    for (auto& one : bulks)
      EXPECT_TRUE(one->right()) << one->procedure << ": " << to_string(one->status());
    bulks.clear();
  }
  EXPECT_EQ(world->server->stats()[Counter::kProtocolBreaches], 0u);
  EXPECT_EQ(world->connection->stats()[Counter::kProtocolBreaches], 0u);
}

// ~BothWorld() checks that all memory is back.
TEST_P(BackwardChunks, AConnectionThatIsLostInTheMidstGivesAllBack) {
  begin(taking_chunks());
  bulk(*back).write(100);  // opens the window
  until_ended();
  bulks.clear();
  for (bool closes : {false, true}) {
    for (int i = 0; i < 4; ++i)
      bulk(*back).keep(50'000);
    world->until([&] { return world->guest.keeper.kept() == 4; });
    for (int i = 0; i < 4; ++i) {  // and some that are on their way
      bulk(*back).write(60'000);
      bulk(*world->connection).read(60'000);
    }
    if (closes)
      world->server->drain(0);
    else
      world->guest.keeper.drop_one();
    until_ended();
    for (int i = 0; i < 4; ++i)
      EXPECT_STREQ(to_string(bulks[static_cast<size_t>(i)]->status()),
                   to_string(closes ? CallStatus::kShutdown : CallStatus::kConnectionLost));
    EXPECT_FALSE(back->alive());
    bulk(*back).write(60'000);
    until_ended();
    EXPECT_FALSE(bulks.back()->right());
    bulks.clear();
    world->guest.keeper.release();
    if (closes)
      break;
    world->disconnect();
    world->connect();
    subscribe();
    EXPECT_TRUE(back->takes_chunks()) << "said anew";
    bulk(*back).write(60'000);
    until_ended();
    EXPECT_TRUE(bulks[0]->right());
    bulks.clear();
  }
}

// The memory that a server can make a client hold is bounded.
TEST_P(BackwardChunks, CallsBeyondTheClientsBoundWait) {
  ClientOptions client = taking_chunks();
  client.version2.max_backward_chunk_bytes = 250'000;
  begin(client);
  bulk(*back).write(100);
  until_ended();
  bulks.clear();
  for (int i = 0; i < 6; ++i)
    bulk(*back).keep(60'000);  // there and back: twice that
  size_t answered = 0;
  while (answered != 6) {
    world->until([&] { return world->guest.keeper.kept() == 2; });
    world->plus();  // goes by
    EXPECT_EQ(world->guest.keeper.kept(), 2u);
    answered += world->guest.keeper.kept();
    world->guest.keeper.release();
  }
  until_ended();
  for (auto& one : bulks)
    EXPECT_EQ(one->status(), CallStatus::kOk) << to_string(one->status());
  bulks.clear();
}

}  // namespace
}  // namespace rrdk::loopback
