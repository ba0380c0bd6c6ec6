// Arguments and results out of several pieces of memory, as a cache keeps them in pages, over each
// driver and in each version.
#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>

#include "../server/loopback.h"
#include "log_lines.h"
#include "survival_world.h"

namespace rrdk::loopback {
namespace {

constexpr uint32_t kReadPages = 1;   // offset, count -> eligible opaque<>
constexpr uint32_t kEchoPages = 2;   // opaque<> -> the same as opaque<>, neither eligible
constexpr uint32_t kWritePages = 3;  // offset, eligible opaque<> -> bytes, how many were wrong
constexpr uint32_t kWriteTwice = 4;  // the same, but the first time the connection ends
constexpr uint32_t kTooScattered = 5;
constexpr uint32_t kForeign = 6;  // -> a result of which one piece is another Memory's

constexpr ProcedureBinding kPageProcedures[] = {
    {.procedure = kReadPages, .name = "READ", .eligible_results = 1, .fixed_results = 4},
    {.procedure = kEchoPages, .name = "ECHO", .fixed_results = 4},
    {.procedure = kWritePages, .name = "WRITE", .eligible_args = 1, .fixed_results = 8},
    {.procedure = kWriteTwice, .name = "TWICE", .eligible_args = 1, .fixed_results = 8},
    {.procedure = kTooScattered, .name = "SCATTERED", .eligible_results = 1, .fixed_results = 4},
    {.procedure = kForeign, .name = "FOREIGN", .eligible_results = 1, .fixed_results = 4},
};
constexpr Binding kPageBinding = {
    .program = 0x20005601, .version = 1, .name = "pages", .procedures = kPageProcedures};

// A file of a pattern, in pages that do not follow each other.
struct Pages {
  static constexpr uint32_t kBytes = 700'000;

  explicit Pages(Memory& memory, uint32_t page_in)
      : page(page_in),
        store(memory.allocate(size_t{kBytes} / page * (page + 1) + page + 1).value()) {
    for (uint32_t i = 0; i != kBytes; ++i)
      store.data()[place(i)] = pattern(i);
  }
  size_t place(uint32_t at) const { return size_t{at / page} * (page + 1) + at % page; }
  std::vector<MemorySpan> find(uint32_t offset, uint32_t count) const {
    std::vector<MemorySpan> pieces;
    for (uint32_t length; count != 0; count -= length, offset += length) {
      length = std::min(count, page - offset % page);
      pieces.push_back(store.span(place(offset), length));
    }
    return pieces;
  }

  const uint32_t page;
  RegisteredMemory store;
};

struct PageService {
  Pages* pages = nullptr;
  MemorySpan foreign;
  bool dropped = false;
};

void read_pages(ServerCall call, void* context) {
  const uint32_t offset = call.args().get_u32();
  const uint32_t count = call.args().get_u32();
  call.results().put_item(static_cast<PageService*>(context)->pages->find(offset, count),
                          Ddp::kEligible);
  std::move(call).reply();
}

void write_twice(ServerCall call, void* context) {
  if (!std::exchange(static_cast<PageService*>(context)->dropped, true))
    return std::move(call).drop();
  write(std::move(call), nullptr);
}

void too_scattered(ServerCall call, void* context) {
  const Pages& pages = *static_cast<PageService*>(context)->pages;
  std::vector<MemorySpan> pieces;
  for (uint32_t i = 0; i <= Encoder::kMaxItemSegments; ++i)
    pieces.push_back(pages.store.span(size_t{i} * 2, 1));
  call.results().put_item(pieces, Ddp::kEligible);
  EXPECT_EQ(call.results().fault(), EncoderFault::kTooManySegments);
  std::move(call).reply();
}

void foreign(ServerCall call, void* context) {
  auto& service = *static_cast<PageService*>(context);
  call.results().put_item(std::array{service.pages->store.span(0, 10), service.foreign},
                          Ddp::kEligible);
  std::move(call).reply();
}

constexpr Procedure kPageTable[] = {
    {kReadPages, read_pages},       {kEchoPages, echo},
    {kWritePages, write},           {kWriteTwice, write_twice},
    {kTooScattered, too_scattered}, {kForeign, foreign},
};

struct PageWorld : PageService, Ends {
  PageWorld(const std::string& where, const ClientOptions& options, uint32_t page)
      : Ends({.embedded_cores = 2}, {.versions = {.two = true, .draft = options.version2.draft}},
             options,
             {{.binding = &kPageBinding, .procedures = kPageTable, .context = this_service()}},
             where),
        cache(*memory, page),
        connection(client->connect(uri).value()) {
    pages = &cache;
  }
  ~PageWorld() {
    connection.reset();
    client.reset();
    server.reset();
    runtime.reset();
    cache.store = {};
    EXPECT_TRUE(memory->whole());
  }
  PageService* this_service() { return this; }

  // Both return a message if something is wrong.
  std::string read(Call& call, uint32_t offset, uint32_t count,
                   std::span<const MemorySpan> room = {}) {
    Encoder& args = call.begin(kPageBinding, kReadPages);
    args.put_u32(offset);
    args.put_u32(count);
    if (room.empty())
      call.expect_reply(count + 4);
    else
      call.offer(room);
    if (call.submit_and_wait() != CallStatus::kOk)
      return to_string(call.status());
    ItemView data = call.results().get_item(count);
    return call.results().at_end() ? compare(data, offset, count) : "not at the end";
  }
  std::string write(Call& call, uint32_t procedure, uint32_t offset, uint32_t count) {
    Encoder& args = call.begin(kPageBinding, procedure);
    args.put_u64(offset);
    args.put_item(cache.find(offset, count), Ddp::kEligible);
    if (call.submit_and_wait() != CallStatus::kOk)
      return to_string(call.status());
    const uint32_t size = call.results().get_u32();
    const uint32_t wrong = call.results().get_u32();
    if (size == count && wrong == 0)
      return "";
    return std::to_string(size) + " bytes, " + std::to_string(wrong) + " wrong";
  }
  static std::string compare(const ItemView& data, uint32_t offset, uint32_t count) {
    uint32_t wrong = 0;
    data.for_each([&](const std::byte* bytes, size_t n) {
      for (size_t i = 0; i < n; ++i)
        wrong += bytes[i] != pattern(offset++);
    });
    if (data.size() == count && wrong == 0)
      return "";
    return std::to_string(data.size()) + " bytes, " + std::to_string(wrong) + " wrong";
  }

  Pages cache;
  std::unique_ptr<ClientConnection> connection;
};

using Way = std::tuple<std::string, RpcRdmaVersion, RpcRdmaDraft>;

class ItemSegments : public testing::TestWithParam<Way> {
 protected:
  static std::string where() {
    const std::string& scheme = std::get<0>(GetParam());
    return scheme == "shm" ? "shm:" + socket_path() : scheme + "://127.0.0.1:0";
  }
  static ClientOptions options() {
    ClientOptions options;
    options.version = std::get<1>(GetParam());
    options.version2.draft = std::get<2>(GetParam());
    return options;
  }
};

std::string way_name(const testing::TestParamInfo<Way>& way) {
  const auto& [scheme, version, draft] = way.param;
  const char* name = version == RpcRdmaVersion::kOne   ? "Version1"
                     : draft == RpcRdmaDraft::kDraft00 ? "Draft00"
                                                       : "Draft04";
  return scheme + name;
}
INSTANTIATE_TEST_SUITE_P(Ways, ItemSegments,
                         testing::Values(Way{"shm", RpcRdmaVersion::kOne, RpcRdmaDraft::kDraft04},
                                         Way{"shm", RpcRdmaVersion::kTwo, RpcRdmaDraft::kDraft00},
                                         Way{"shm", RpcRdmaVersion::kTwo, RpcRdmaDraft::kDraft04},
                                         Way{"iwarp", RpcRdmaVersion::kOne, RpcRdmaDraft::kDraft04},
                                         Way{"iwarp", RpcRdmaVersion::kTwo,
                                             RpcRdmaDraft::kDraft04}),
                         way_name);

// Pages of odd sizes and of a whole one; reads within a page, over the bounds of a few, of many,
// and of none. Each comes inline or in a Reply chunk, in a Write chunk of one segment, and in one
// whose segments end within pages.
TEST_P(ItemSegments, ResultsMoveWithoutBeingJoined) {
  for (uint32_t page : {997u, 4096u}) {
    PageWorld world(where(), options(), page);
    RegisteredMemory room = world.memory->allocate(1 << 20).value();
    {
      Call call(*world.connection);
      for (uint32_t offset : {0u, 5u, 996u, 4095u}) {
        for (uint32_t count : {0u, 1u, 100u, 1000u, 4097u, 65535u, 600'000u}) {
          SCOPED_TRACE(testing::Message() << offset << " + " << count);
          EXPECT_EQ(world.read(call, offset, count), "");
          EXPECT_EQ(world.read(call, offset, count, std::array{room.span(0, 1 << 20)}), "");
          const std::array segments = {room.span(3, 1), room.span(10, 1001), room.span(4096, 4096),
                                       room.span(100'001, 700'000)};
          EXPECT_EQ(world.read(call, offset, count, segments), "");
        }
      }
    }
    room = {};
  }
}

TEST_P(ItemSegments, ArgumentsMoveWithoutBeingJoined) {
  for (uint32_t page : {997u, 4096u}) {
    PageWorld world(where(), options(), page);
    Call call(*world.connection);
    for (uint32_t offset : {0u, 5u, 996u, 4095u}) {
      for (uint32_t count : {0u, 1u, 100u, 1000u, 4097u, 65535u, 600'000u}) {
        SCOPED_TRACE(testing::Message() << offset << " + " << count);
        EXPECT_EQ(world.write(call, kWritePages, offset, count), "");
      }
    }
    EXPECT_EQ(world.connection->stats()[Counter::kLongCalls], 0u);
  }
}

TEST_P(ItemSegments, WhatIsNotEligibleMovesWithTheWholeMessage) {
  PageWorld world(where(), options(), 997);
  Call call(*world.connection);
  for (uint32_t count : {100u, 1000u, 5000u, 65535u, 600'000u}) {
    call.begin(kPageBinding, kEchoPages).put_item(world.cache.find(990, count), Ddp::kNo);
    call.expect_reply(count + 4);
    ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
    EXPECT_EQ(PageWorld::compare(call.results().get_opaque(count), 990, count), "");
  }
}

TEST_P(ItemSegments, ACallThatIsSentAgainMovesThemAgain) {
  ClientOptions with_reconnect = options();
  with_reconnect.reconnect = at_once();
  with_reconnect.retransmit = true;
  PageWorld world(where(), with_reconnect, 4096);
  Call call(*world.connection);
  EXPECT_EQ(world.write(call, kWriteTwice, 5, 300'000), "");
  EXPECT_TRUE(world.dropped);
  EXPECT_EQ(world.connection->stats()[Counter::kCallsResent], 1u);
}

TEST_P(ItemSegments, TooManyEndTheCallAndNotItsConnection) {
  LogLines log;
  PageWorld world(where(), options(), 4096);
  std::vector<MemorySpan> pieces;
  for (uint32_t i = 0; i <= Encoder::kMaxItemSegments; ++i)
    pieces.push_back(world.cache.store.span(size_t{i} * 2, 1));
  Call call(*world.connection);
  Encoder& args = call.begin(kPageBinding, kWritePages);
  args.put_u64(0);
  args.put_item(pieces, Ddp::kEligible);
  EXPECT_EQ(args.fault(), EncoderFault::kTooManySegments);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kTooLarge);
  call.begin(kPageBinding, kTooScattered);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kSystemErr);
  EXPECT_EQ(log.count(LogLevel::kError, "SCATTERED of pages", "more than 1024 segments"), 1);
  EXPECT_EQ(world.write(call, kWritePages, 0, 20'000), "");
}

TEST_P(ItemSegments, APieceOfAnotherMemoryEndsTheCallAndNotItsConnection) {
  std::unique_ptr<Memory> other = make_memory();
  // Far behind ours, so that ours does not have the region, or has it elsewhere.
  RegisteredMemory theirs = other->allocate(1 << 20).value();
  {
    PageWorld world(where(), options(), 4096);
    world.foreign = theirs.span(0, 5000);
    Call call(*world.connection);
    Encoder& args = call.begin(kPageBinding, kWritePages);
    args.put_u64(0);
    args.put_item(std::array{world.cache.store.span(0, 4096), theirs.span(0, 5000)},
                  Ddp::kEligible);
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kInvalidMemory);
    call.begin(kPageBinding, kForeign);
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kSystemErr);
    EXPECT_EQ(world.write(call, kWritePages, 0, 20'000), "");
  }
  theirs = {};
}

}  // namespace
}  // namespace rrdk::loopback
