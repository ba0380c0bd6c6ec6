// Mistakes of handlers: the client gets SYSTEM_ERR, and the server logs the reason.
#include <sys/mman.h>

#include "../client/log_lines.h"
#include "loopback.h"

namespace rrdk::loopback {
namespace {

constexpr uint32_t kStack = 1, kLong = 2, kNothing = 3, kGone = 4, kTwice = 5, kShort = 6,
                   kGiveUp = 7;
constexpr ProcedureBinding kBlkProcedures[] = {
    {.procedure = kStack, .name = "READ", .eligible_results = 2, .fixed_results = 8},
    {.procedure = kLong, .name = "LIST", .fixed_results = 8},
    {.procedure = kNothing, .name = "WRITE", .fixed_results = 8},
    {.procedure = kGone, .name = "SYNC", .fixed_results = 8},
    {.procedure = kTwice, .name = "TRIM", .fixed_results = 8},
    {.procedure = kGiveUp, .name = "QUERY", .fixed_results = 8},
};
constexpr Binding kBlk = {
    .program = 0x20005800, .version = 1, .name = "blk", .procedures = kBlkProcedures};

void stack(ServerCall call, void*) {
  static std::byte mine[4096];
  call.results().put_item(call.result_buffer(100), 100, Ddp::kEligible);
  call.results().put_item(MemorySpan{mine, sizeof(mine), 0}, Ddp::kEligible);
  std::move(call).reply();
}
void too_long(ServerCall call, void*) {
  for (int i = 0; i < 1000; ++i)
    call.results().put_u32(0);
  std::move(call).reply();
}
void nothing(ServerCall call, void*) {
  Buffer none = call.result_buffer(1u << 30);
  EXPECT_FALSE(none);
  std::move(call).reject(AcceptStat::kSystemErr);
}
void gone(ServerCall call, void*) {
  if (call.args().get_u32() == 0)
    return;
  ServerCall other = std::move(call);
  other = std::move(call);  // assigned to
}
void twice(ServerCall call, void*) {
  call.results().put_u32(1);
  ServerCall& again = call;
  std::move(call).reply();
  std::move(again).reply();
  std::move(again).reject(AcceptStat::kSystemErr);
  std::move(again).reject_versions(1, 2);
  std::move(again).drop();
}
// There is no entry in the binding.
void shorter(ServerCall call, void*) {
  call.results().put_item(call.result_buffer(100), 1u << 30, Ddp::kNo);
  std::move(call).reply();
}
void give_up(ServerCall call, void*) {
  call.results().fail();
  std::move(call).reply();
}

constexpr Procedure kBlkTable[] = {{kStack, stack},   {kLong, too_long}, {kNothing, nothing},
                                   {kGone, gone},     {kTwice, twice},   {kShort, shorter},
                                   {kGiveUp, give_up}};

TEST(Mistakes, AreSaidOnceForEachProcedureAndCounted) {
  LogLines log;
  Ends ends(options_for(Cores::kEmbedded), {.max_reply = 2048}, {},
            {{.binding = &kBlk, .procedures = kBlkTable}});
  auto connection = ends.client->connect(ends.uri).value();
  auto call = [&](uint32_t procedure, uint32_t argument = 0) {
    Call made(*connection);
    made.begin(kBlk, procedure).put_u32(argument);
    return made.submit_and_wait();
  };
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(call(kStack), CallStatus::kSystemErr);
    EXPECT_EQ(call(kLong), CallStatus::kSystemErr);
    EXPECT_EQ(call(kNothing), CallStatus::kSystemErr);
    EXPECT_EQ(call(kGone, i), CallStatus::kSystemErr);
    EXPECT_EQ(call(kShort), CallStatus::kSystemErr);
    EXPECT_EQ(call(kGiveUp), CallStatus::kSystemErr);
  }
  auto said = [&](const char* who, const char* what) {
    return log.count(LogLevel::kError, who, what);
  };
  EXPECT_EQ(said("READ of blk", "result 2 is not registered memory"), 1);
  EXPECT_EQ(said("LIST of blk", "longer than max_reply"), 1);
  EXPECT_EQ(said("WRITE of blk", "no buffer was left"), 1);
  EXPECT_EQ(said("SYNC of blk", "destroyed without an answer"), 1);
  EXPECT_EQ(said("procedure 6 of blk", "result 1 "), 1);
  EXPECT_EQ(said("QUERY of blk", "fail()"), 1);
  const Stats counted = ends.server->stats();
  EXPECT_EQ(counted[Counter::kMistakeInvalidMemory], 6u);
  EXPECT_EQ(counted[Counter::kMistakeTooLarge], 3u);
  EXPECT_EQ(counted[Counter::kMistakeNoBuffers], 3u);
  EXPECT_EQ(counted[Counter::kMistakeUnanswered], 3u);
  EXPECT_EQ(counted[Counter::kMistakeFailed], 3u);
  connection.reset();
  ends.end();
}

// However many procedure numbers a peer calls.
TEST(Mistakes, InProceduresWithoutAnEntryAreSaidOnceForAll) {
  LogLines log;
  constexpr Procedure kTable[] = {{kLong, too_long}, {kOtherProcedures, forget}};
  Ends ends(options_for(Cores::kEmbedded), {.max_reply = 2048}, {},
            {{.binding = &kBlk, .procedures = kTable}});
  auto connection = ends.client->connect(ends.uri).value();
  for (uint32_t procedure : {1000u, 1001u, UINT32_MAX, kLong}) {
    Call made(*connection);
    made.begin(kBlk, procedure);
    EXPECT_EQ(made.submit_and_wait(), CallStatus::kSystemErr);
  }
  EXPECT_EQ(log.count(LogLevel::kError, "of blk", "destroyed without an answer"), 1);
  EXPECT_EQ(log.count(LogLevel::kError, "procedure 1000 of blk", "without an answer"), 1);
  EXPECT_EQ(log.count(LogLevel::kError, "LIST of blk", "longer than max_reply"), 1);
  EXPECT_EQ(ends.server->stats()[Counter::kMistakeUnanswered], 3u);
  connection.reset();
  ends.end();
}

// Over shm, to a process that cannot map it.
TEST(Mistakes, ResultsInMemoryWithoutADescriptorAreNotSent) {
  constexpr size_t kBytes = 8192;
  constexpr uint32_t kInline = 10, kByReference = 5000;
  void* pages = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  static constexpr ProcedureBinding kReads[] = {
      {.procedure = kInline, .name = "STAT", .eligible_results = 1, .fixed_results = 8},
      {.procedure = kByReference, .name = "READ", .eligible_results = 1, .fixed_results = 8}};
  static constexpr Binding kStore = {
      .program = 0x20005801, .version = 1, .name = "store", .procedures = kReads};
  auto read = [](ServerCall call, void* own) {
    uint32_t bytes = call.procedure();
    call.results().put_item(static_cast<RegisteredMemory*>(own)->span(0, bytes), Ddp::kEligible);
    std::move(call).reply();
  };
  const Procedure table[] = {{kInline, read}, {kByReference, read}};
  RegisteredMemory own;
  LogLines log;
  Ends ends(options_for(Cores::kEmbedded), {}, {},
            {{.binding = &kStore, .procedures = table, .context = &own}});
  own = ends.memory->adopt(pages, kBytes, -1, 0).value();
  auto connection = ends.client->connect(ends.uri).value();
  for (uint32_t procedure : {kInline, kByReference, kByReference}) {
    Call call(*connection);
    call.begin(kStore, procedure);
    call.expect_reply(kByReference);
    EXPECT_STREQ(to_string(call.submit_and_wait()), to_string(CallStatus::kSystemErr));
  }
  EXPECT_EQ(log.count(LogLevel::kError, "READ of store", "has no descriptor"), 1);
  EXPECT_EQ(log.count(LogLevel::kError, "STAT of store", "has no descriptor"), 1);
  EXPECT_EQ(ends.server->stats()[Counter::kMistakeUnusableMemory], 3u);
  EXPECT_TRUE(connection->alive());
  connection.reset();
  own = {};
  ends.end();
  munmap(pages, kBytes);
}

TEST(Mistakes, ASecondAnswerIsAnErrorInTheLogAndNothingElse) {
  LogLines log;
  Ends ends(options_for(Cores::kEmbedded), {}, {}, {{.binding = &kBlk, .procedures = kBlkTable}});
  auto connection = ends.client->connect(ends.uri).value();
  for (int i = 0; i < 2; ++i) {
    Call call(*connection);
    call.begin(kBlk, kTwice);
    ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
    EXPECT_EQ(call.results().get_u32(), 1u);
  }
  EXPECT_EQ(log.count(LogLevel::kError, "ServerCall::reply()", "has been answered"), 2);
  EXPECT_EQ(log.count(LogLevel::kError, "ServerCall::reject()", "has been answered"), 2);
  EXPECT_EQ(log.count(LogLevel::kError, "ServerCall::reject_versions()", "has been answered"), 2);
  EXPECT_EQ(log.count(LogLevel::kError, "ServerCall::drop()", "has been answered"), 2);
  connection.reset();
  ends.end();
}

}  // namespace
}  // namespace rrdk::loopback
