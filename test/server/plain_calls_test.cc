// Plain calls that are served in place (service/plain_calls.h): what a peer, a handler and a
// program may rely on there as everywhere else. A client of raw messages sends calls in one burst;
// the server's core is polled here.
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/internals.h"
#include "loopback.h"
#include "raw_client.h"
#include "rrdk/faults.h"
#include "runtime/runtime_impl.h"
#include "site.h"

namespace rrdk::loopback {
namespace {

constexpr uint32_t kRun = 1;     // word -> word
constexpr uint32_t kAct = 2;     // -> no bytes, after the handler has done what the test wants
constexpr uint32_t kBlob = 3;    // count -> opaque<>
constexpr uint32_t kHold = 4;    // kept until the test or an action releases it
constexpr uint32_t kRefuse = 5;  // -> never
constexpr uint32_t kOwn = 6;     // as kRun, but not to be run twice: no plain call
constexpr uint32_t kFetch = 7;   // count -> eligible opaque<> of memory that stays
constexpr uint32_t kTell = 8;    // -> no bytes, after a call to the client
constexpr uint32_t kMirror = 9;  // opaque<> -> the same, eligible, where it lies in the call
constexpr uint32_t kInner = 10;  // word -> word, and it as an eligible opaque<>, where that lies
constexpr uint32_t kWork = 11;   // as kRun, on a worker

constexpr ProcedureBinding kPlainProcedures[] = {
    {.procedure = kFetch, .name = "FETCH", .eligible_results = 1, .fixed_results = 4},
    {.procedure = kMirror, .name = "MIRROR", .eligible_results = 1, .fixed_results = 4},
    {.procedure = kInner, .name = "INNER", .eligible_results = 1, .fixed_results = 8},
};
constexpr Binding kPlain = {
    .program = 0x20005602, .version = 1, .name = "plain", .procedures = kPlainProcedures};

struct Deeds {
  std::function<void()> act;
  std::vector<uint32_t> ran;  // the words of kRun and kOwn
  Keeper keeper;
  RegisteredMemory data;  // of kFetch
  uint32_t pieces = 1;    // in which it lies, from the last to the first
  std::shared_ptr<BackwardClient> back;
  std::optional<Call> told;
  CallStatus told_status = CallStatus::kTimeout;
};

void run(ServerCall call, void* context) {
  const uint32_t word = call.args().get_u32();
  static_cast<Deeds*>(context)->ran.push_back(word);
  call.results().put_u32(word);
  std::move(call).reply();
}

void act(ServerCall call, void* context) {
  static_cast<Deeds*>(context)->act();
  std::move(call).reply();
}

void blob(ServerCall call, void*) {
  const std::vector<std::byte> bytes(call.args().get_u32(), std::byte{0x5a});
  call.results().put_opaque(bytes);
  std::move(call).reply();
}

void hold(ServerCall call, void* context) {
  keep(std::move(call), &static_cast<Deeds*>(context)->keeper);
}

void refuse(ServerCall call, void*) {
  std::move(call).reject(AcceptStat::kSystemErr);
}

void fetch(ServerCall call, void* context) {
  const uint32_t count = call.args().get_u32();
  const Deeds& deeds = *static_cast<Deeds*>(context);
  std::vector<MemorySpan> pieces;
  const uint32_t each = count / deeds.pieces;
  for (uint32_t i = deeds.pieces; i-- != 0;)
    pieces.push_back(deeds.data.span(size_t{i} * each, each));
  call.results().put_item(pieces, Ddp::kEligible);
  std::move(call).reply();
}

void tell(ServerCall call, void* context) {
  Deeds& deeds = *static_cast<Deeds*>(context);
  deeds.back = call.backward_client().value();
  deeds.told.emplace(*deeds.back);
  deeds.told->begin(kPlain, kRun);
  deeds.told->submit(
      [](Call& done, void* all) { static_cast<Deeds*>(all)->told_status = done.status(); },
      context);
  std::move(call).reply();
}

void mirror(ServerCall call, void*) {
  const ItemView bytes = call.args().get_opaque(UINT32_MAX);
  call.results().put_item(call.memory().span_of(bytes.data(), bytes.size()), Ddp::kEligible);
  std::move(call).reply();
}

void inner(ServerCall call, void*) {
  std::byte* const word = call.results().put_run(4);
  xdr::store_u32(word, call.args().get_u32());
  call.results().put_item(call.memory().span_of(word, 4), Ddp::kEligible);
  std::move(call).reply();
}

constexpr Procedure kPlainTable[] = {
    {kRun, run},
    {kAct, act},
    {kBlob, blob},
    {kHold, hold},
    {kRefuse, refuse},
    {kOwn, run, Dispatch::kInline, false},
    {kFetch, fetch},
    {kTell, tell},
    {kMirror, mirror},
    {kInner, inner},
    {kWork, run, Dispatch::kWorker},
};

// The number of messages that core 0 has taken in place.
uint64_t taken_in_place(Runtime& runtime, const std::string& uri) {
  auto& impl = Internals::of(runtime);
  runtime::OpenDevice* const device = impl.open_device(*fabric::find_driver(uri).value());
  return impl.cores[0]->completion_queue(*device).value()->lane_messages();
}

class PlainCalls : public testing::Test {
 protected:
  explicit PlainCalls(const ServerOptions& options = {}, const RuntimeOptions& cores = {},
                      const std::string& where = "shm:" + socket_path())
      : ends_(cores, options, {},
              {{.binding = &kPlain, .procedures = kPlainTable, .context = &deeds_}}, where) {
    deeds_.data = ends_.memory->allocate(kData).value();
    for (uint32_t at = 0; at != kData; ++at)
      deeds_.data.data()[at] = pattern(at);
  }
  ~PlainCalls() override {
    client_.reset();
    others_.clear();
    deeds_.keeper.release();
    deeds_.data = {};
    ends_.end();
  }

  static constexpr uint32_t kData = 4096;  // bytes that kFetch has

  // A client that announces the size of its Receives.
  std::unique_ptr<RawClient> new_client(uint32_t stated_bytes = 4096) {
    auto client = std::make_unique<RawClient>(
        *ends_.memory, ends_.uri, 64,
        proto::PrivateData{.send_size = 4096, .receive_size = stated_bytes});
    until(*client, [&] { return client->up(); });
    return client;
  }
  // The same, after calls until its grant and the server's memory no longer change.
  void settle(uint32_t stated_bytes = 4096) {
    client_ = new_client(stated_bytes);
    for (int calls = 0; calls != 64; ++calls)
      call(*client_, kRun, {0});
    const uint64_t before = in_place();
    call(*client_, kRun, {0});
    ASSERT_EQ(in_place(), before + 1) << "a plain call of this connection is served where it lies";
    deeds_.ran.clear();
  }
  uint32_t send(RawClient& client, uint32_t procedure, const Words& arguments = {}) {
    return send(client, RawCall{.procedure = procedure, .arguments = arguments});
  }
  uint32_t send(RawClient& client, RawCall call) {
    call.xid = ++last_xid_;
    client.send(call.message(kPlain.program, kPlain.version));
    return call.xid;
  }
  Received answer_to(RawClient& client, uint32_t xid) {
    const auto its = [&] { return std::ranges::find(client.received, xid, &Received::xid); };
    until(client, [&] { return its() != client.received.end() || client.down(); });
    if (its() == client.received.end())
      return {};
    const Received answer = *its();
    client.received.erase(its());
    return answer;
  }
  Received call(RawClient& client, uint32_t procedure, const Words& arguments = {}) {
    return answer_to(client, send(client, procedure, arguments));
  }
  // A call of kFetch for all its data, with memory for the data at the key.
  static RawCall fetch_to(uint32_t key, const std::byte* room) {
    return {.procedure = kFetch,
            .arguments = {kData},
            .lists = Words{0, 1, 1} + segment(key, kData, room) + Words{0, 0}};
  }
  void pass(RawClient& client) {
    ends_.runtime->poll(0);
    client.pump();
  }
  template <typename Done>
  void until(RawClient& client, Done&& done) {
    wait_until(done, [&] { return pass(client), 1; });
  }
  uint64_t in_place() { return taken_in_place(*ends_.runtime, ends_.uri); }
  uint32_t available(uint32_t bytes) const { return ends_.memory->audit_fitting(bytes).available; }

  Deeds deeds_;
  Ends ends_;
  std::unique_ptr<RawClient> client_;
  std::vector<std::unique_ptr<RawClient>> others_;

 private:
  uint32_t last_xid_ = 0;
};

// The words of an accepted reply up to its results: transport header, RPC header, accept_stat.
constexpr size_t kAcceptStat = 12;
constexpr size_t kResults = 13;

TEST_F(PlainCalls, HaveNoReplyLongerThanThePeersReceives) {
  constexpr uint32_t kStated = 1024;
  constexpr uint32_t kMost = kStated - 4 * (kResults + 1);  // bytes of the opaque<>
  settle(kStated);
  const Received longest = call(*client_, kBlob, {kMost});
  EXPECT_EQ(longest.type(), 0u);
  EXPECT_EQ(4 * longest.words.size(), kStated);
  EXPECT_TRUE(call(*client_, kBlob, {kMost + 4}).chunk_error()) << "and there is no Reply chunk";

  Buffer room = ends_.memory->get(4096);
  const uint32_t key = client_->expose(room.first(4096));
  const Received in_chunk = answer_to(
      *client_, send(*client_, {.procedure = kBlob,
                                .arguments = {kMost + 4},
                                .lists = Words{0, 0, 1, 1} + segment(key, 4096, room.data())}));
  EXPECT_EQ(in_chunk.type(), 1u) << "RDMA_NOMSG";
  EXPECT_EQ(xdr::load_u32(room.data() + 24), kMost + 4);
}

TEST_F(PlainCalls, EndWithTheirConnection) {
  settle();
  send(*client_, kHold);
  until(*client_, [&] { return deeds_.keeper.kept() == 1; });
  deeds_.act = [this] { deeds_.keeper.drop_one(); };
  const uint64_t before = in_place();
  const uint32_t acting = send(*client_, kAct);
  send(*client_, kRun, {1});
  send(*client_, kRun, {2});
  until(*client_, [&] { return client_->down(); });
  EXPECT_EQ(in_place(), before + 1) << "the call whose handler ended the connection";
  EXPECT_TRUE(deeds_.ran.empty()) << "no handler runs on a connection that is known to end";
  for (const Received& answer : client_->received)
    EXPECT_EQ(answer.xid(), acting) << "nothing else is answered there";
}

// The handler answers a kept call before its own, and that answer grants more: later answers do not
// take that back.
TEST_F(PlainCalls, GrantWhatTheAnswersBeforeThemGrant) {
  deeds_.act = [this] { deeds_.keeper.release(); };
  uint32_t grown = 0;
  for (int calls_between = 0; calls_between != 8; ++calls_between) {
    client_ = new_client();
    uint32_t granted = 0;
    for (int calls = 0; calls != 4; ++calls)
      granted = call(*client_, kRun, {0}).at(2);
    const uint32_t kept = send(*client_, kHold);
    until(*client_, [&] { return deeds_.keeper.kept() == 1; });
    for (int calls = 0; calls != calls_between; ++calls)
      granted = call(*client_, kRun, {0}).at(2);
    const uint32_t acting = send(*client_, kAct);
    const uint32_t behind = send(*client_, kRun, {1});
    const uint32_t grant = answer_to(*client_, kept).at(2);
    EXPECT_GE(answer_to(*client_, acting).at(2), grant) << calls_between << " calls between";
    EXPECT_GE(answer_to(*client_, behind).at(2), grant);
    ASSERT_FALSE(client_->down());
    grown += grant > granted ? 1 : 0;
    others_.push_back(std::move(client_));
  }
  EXPECT_GT(grown, 0u) << "or nothing was tried";
}

// The same if the grant falls, because another client makes most calls meanwhile.
TEST_F(PlainCalls, GrantNoMoreThanTheAnswersBeforeThem) {
  deeds_.act = [this] { deeds_.keeper.release(); };
  uint32_t fallen = 0;
  for (int calls_between = 0; calls_between != 8; ++calls_between) {
    settle();
    const uint32_t granted = call(*client_, kRun, {0}).at(2);
    const uint32_t kept = send(*client_, kHold);
    until(*client_, [&] { return deeds_.keeper.kept() == 1; });
    for (int calls = 0; calls != calls_between; ++calls)
      call(*client_, kRun, {0});
    others_.push_back(new_client());
    for (int calls = 0; calls != 1000; ++calls)
      call(*others_.back(), kRun, {0});
    const uint32_t acting = send(*client_, kAct);
    const uint32_t grant = answer_to(*client_, kept).at(2);
    EXPECT_LE(answer_to(*client_, acting).at(2), grant) << calls_between << " calls between";
    ASSERT_FALSE(client_->down());
    fallen += grant < granted ? 1 : 0;
    others_.push_back(std::move(client_));
  }
  EXPECT_GT(fallen, 0u) << "or nothing was tried";
}

class DrainedPlainCalls : public PlainCalls {
 protected:
  // A call whose result has been written to its client, which takes nothing for now. Then the
  // server drains as far as it can: another connection has closed.
  void drain(uint32_t timeout_ms) {
    settle();
    others_.push_back(new_client());
    room_ = ends_.memory->get(kData);
    const uint64_t before = in_place();
    xid_ = send(*client_, fetch_to(client_->expose(room_.first(kData)), room_.data()));
    polls_until([&] { return in_place() == before + 1; });
    ends_.server->drain_start(
        timeout_ms, [](uint32_t rest, void* to) { *static_cast<uint32_t*>(to) = rest; }, &rest_);
    polls_until([&] { return connections() <= 1; });
    for (int passes = 0; passes != 100; ++passes)
      ends_.runtime->poll(0);
    EXPECT_EQ(connections(), 1u) << "its result is still on its way";
  }
  template <typename Done>
  void polls_until(Done&& done) {
    wait_until(done, [&] { return ends_.runtime->poll(0), 1; });
  }
  bool drained() const { return rest_ != kDraining; }
  uint64_t connections() const { return ends_.server->stats()[Counter::kConnections]; }

  static constexpr uint32_t kDraining = UINT32_MAX;
  uint32_t rest_ = kDraining;  // connections that were closed when the time was up
  uint32_t xid_ = 0;
  Buffer room_;
};

TEST_F(DrainedPlainCalls, CloseWhenTheirResultsWereTaken) {
  drain(60'000);
  until(*client_, [&] { return drained() && client_->down(); });
  EXPECT_EQ(rest_, 0u);
  EXPECT_EQ(answer_to(*client_, xid_).type(), 0u);
  EXPECT_TRUE(std::equal(room_.data(), room_.data() + kData, deeds_.data.data()));
}

TEST_F(DrainedPlainCalls, CloseIfTheirResultsAreNeverTaken) {
  drain(20'000);
  polls_until([&] { return drained(); });
  EXPECT_EQ(rest_, 0u) << "long before that time was up";
  EXPECT_EQ(connections(), 0u);
}

TEST_F(PlainCalls, AreSeenByFaultsThatAHandlerPlans) {
  settle();
  deeds_.act = [this] {
    EXPECT_TRUE(ends_.runtime->set_faults(parse_fault_plan("receive-error=1/1").value()));
  };
  send(*client_, kAct);
  answer_to(*client_, send(*client_, kRun, {1}));
  EXPECT_TRUE(client_->down());
  EXPECT_EQ(ends_.runtime->fault_counts().receive, 1u);
  EXPECT_TRUE(deeds_.ran.empty()) << "the call behind it came in good order";
}

TEST_F(PlainCalls, AreSeenByACaptureThatAHandlerStarts) {
  settle();
  const std::string file = socket_path() + ".pcap";
  deeds_.act = [&] { EXPECT_TRUE(ends_.runtime->start_capture(file)); };
  const uint32_t acting = send(*client_, kAct);
  const uint32_t behind = send(*client_, kRun, {1});
  answer_to(*client_, acting);
  answer_to(*client_, behind);
  EXPECT_EQ(ends_.runtime->stop_capture().captured, 3u) << "two replies and the call behind";
  ::unlink(file.c_str());
}

// The results of two calls in one burst lie in memory that the next call would use again: the
// client checks them after both were given.
TEST_F(PlainCalls, MayAnswerWithBytesOfTheirOwn) {
  for (const uint32_t procedure : {kMirror, kInner}) {
    settle();
    Buffer rooms[] = {ends_.memory->get(4096), ends_.memory->get(4096)};
    uint32_t xids[2];
    const uint64_t before = in_place();
    for (uint32_t i = 0; i != 2; ++i) {
      const uint32_t key = client_->expose(rooms[i].first(4096));
      xids[i] = send(*client_,
                     {.procedure = procedure,
                      .arguments = procedure == kMirror ? Words{4, 70 + i} : Words{70 + i},
                      .lists = Words{0, 1, 1} + segment(key, 4096, rooms[i].data()) + Words{0, 0}});
    }
    const auto replied = [&] { return ends_.server->stats()[Counter::kRepliesSent]; };
    const uint64_t replies = replied();
    wait_until([&] { return replied() == replies + 2; }, [&] { return ends_.runtime->poll(0), 1; });
    EXPECT_GT(in_place(), before);
    for (uint32_t i = 0; i != 2; ++i) {
      EXPECT_EQ(answer_to(*client_, xids[i]).type(), 0u);
      EXPECT_EQ(xdr::load_u32(rooms[i].data()), 70 + i) << "of procedure " << procedure;
    }
  }
}

// A result out of many pieces of memory is written where the client wants it, in one piece.
TEST_F(PlainCalls, MayAnswerOutOfManyPieces) {
  settle();
  Buffer room = ends_.memory->get(kData);
  for (const uint32_t pieces : {2u, 16u, 64u, 1024u}) {
    deeds_.pieces = pieces;
    const uint64_t before = in_place();
    const RawCall fetch = fetch_to(client_->expose(room.first(kData)), room.data());
    const uint32_t xid = send(*client_, fetch);
    EXPECT_EQ(call(*client_, kRun, {pieces}).at(kResults), pieces);
    EXPECT_EQ(answer_to(*client_, xid).type(), 0u);
    EXPECT_EQ(in_place(), before + 2) << pieces << ": the one behind it is, too";
    const uint32_t each = kData / pieces;
    for (uint32_t at = 0; at != kData; ++at)
      ASSERT_EQ(room.data()[at], pattern((pieces - 1 - at / each) * each + at % each)) << at;
  }
}

// Shows: V1-ERR-19
TEST_F(PlainCalls, ARefusedResultEndsTheConnectionOnce) {
  constexpr uint32_t kNoKey = 0x77777777;
  settle();
  RawCall bad = fetch_to(kNoKey, nullptr);
  for (const uint32_t pieces : {1u, 32u}) {
    deeds_.pieces = pieces;
    const uint64_t before = in_place();
    bad.xid = send(*client_, bad);
    send(*client_, kRun, {1});
    until(*client_, [&] { return client_->down(); });
    EXPECT_EQ(in_place(), before + 2);
    EXPECT_TRUE(client_->received.empty()) << "neither its reply nor what is behind that arrives";

    client_ = new_client();
    client_->send(bad.message(kPlain.program, kPlain.version));
    EXPECT_TRUE(answer_to(*client_, bad.xid).chunk_error());
    EXPECT_EQ(call(*client_, kRun, {2}).at(kResults), 2u) << "the connection goes on";
    settle();
  }
  EXPECT_EQ(ends_.server->stats()[Counter::kCallsFailedAgain], 2u);
}

class PlainCallsOfBothWays : public PlainCalls {
 protected:
  PlainCallsOfBothWays() : PlainCalls({.backward_credits = 4}) {}
  ~PlainCallsOfBothWays() override {
    deeds_.told.reset();
    deeds_.back.reset();
  }
};

// The server's own calls, and the replies to these, are sent in between.
TEST_F(PlainCallsOfBothWays, AreServedInPlace) {
  settle();
  const uint64_t before = in_place();
  call(*client_, kTell);
  const auto is_call = [](const Received& one) { return one.at(8) == 0; };
  const auto theirs = [&] { return std::ranges::find_if(client_->received, is_call); };
  until(*client_, [&] { return theirs() != client_->received.end(); });
  send(*client_, kRun, {1});
  client_->send({theirs()->xid(), 1, 1, 0, 0, 0, 0, theirs()->xid(), 1, 0, 0, 0, 0});
  until(*client_, [&] { return deeds_.told_status == CallStatus::kOk; });
  const uint32_t last = send(*client_, kRun, {2});
  EXPECT_EQ(answer_to(*client_, last).at(kResults), 2u);
  EXPECT_EQ(deeds_.ran, (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(in_place(), before + 3) << "all but the reply";
}

class StalledPlainCalls : public PlainCalls {
 protected:
  StalledPlainCalls() : PlainCalls({.send_timeout_ms = 50}) {}
};

// Data written to the client holds memory of the program's until the client takes it.
TEST_F(StalledPlainCalls, EndTheirConnectionWhenItsClientTakesNoResult) {
  settle();
  Buffer room = ends_.memory->get(kData);
  const uint64_t before = in_place();
  send(*client_, fetch_to(client_->expose(room.first(kData)), room.data()));
  const auto stalled = [&] { return ends_.server->stats()[Counter::kClosedStalled] == 1; };
  wait_until(stalled, [&] { return ends_.runtime->poll(0), 1; });
  EXPECT_EQ(in_place(), before + 1);
}

// A handler acts amid a burst of short calls, which have all been received, or of long calls, where
// its own is the last one that the driver receives at once.
class PlainCallsOverIwarp : public PlainCalls {
 protected:
  PlainCallsOverIwarp() : PlainCalls({}, {}, "iwarp://127.0.0.1:0") {}
  void send_burst(bool is_long, std::function<void()> what) {
    constexpr uint32_t kLong = 1001;  // words: 4096 bytes of TCP with all headers
    deeds_.act = std::move(what);
    for (uint32_t word = 1; word <= kBurst; ++word) {
      Words arguments(is_long ? kLong : 1);
      arguments[0] = word;
      xids_.push_back(send(*client_, word == kActing ? kAct : kRun, arguments));
    }
  }

  void start_capture_in_burst(bool is_long) {
    const std::string file = socket_path() + ".pcap";
    settle();
    const uint64_t before = in_place();
    send_burst(is_long, [&] { EXPECT_TRUE(ends_.runtime->start_capture(file)); });
    until(*client_, [&] { return client_->received.size() == kBurst || client_->down(); });
    EXPECT_EQ(in_place(), before + kActing);
    EXPECT_EQ(deeds_.ran, before_ + behind_);
    ASSERT_EQ(client_->received.size(), kBurst);
    for (uint32_t i = 0; i != kBurst; ++i)
      EXPECT_EQ(client_->received[i].xid(), xids_[i]);
    const uint64_t replies = kBurst - kActing + 1;  // from its own on
    EXPECT_GE(ends_.runtime->stop_capture().captured, replies);
    ::unlink(file.c_str());
  }

  static constexpr uint32_t kBurst = 11;
  static constexpr uint32_t kActing = 8;  // of the long ones in 32 KiB
  const Words before_ = {1, 2, 3, 4, 5, 6, 7};
  const Words behind_ = {9, 10, 11};
  Words xids_;
};

TEST_F(PlainCallsOverIwarp, GoTheGeneralWayBehindAHandlerThatStartsACapture) {
  start_capture_in_burst(/*is_long=*/false);
}

TEST_F(PlainCallsOverIwarp, GoTheGeneralWayWhenTheyComeAfterIt) {
  start_capture_in_burst(/*is_long=*/true);
}

TEST_F(PlainCallsOverIwarp, AreSeenByFaultsThatAHandlerPlans) {
  settle();
  send_burst(/*is_long=*/false, [&] {
    EXPECT_TRUE(ends_.runtime->set_faults(parse_fault_plan("receive-error=1/1").value()));
  });
  until(*client_, [&] { return client_->down(); });
  EXPECT_EQ(ends_.runtime->fault_counts().receive, 1u);
  EXPECT_EQ(deeds_.ran, before_) << "those behind it came in good order";
}

class PlainCallsOfWorkers : public PlainCalls {
 protected:
  static constexpr uint32_t kCredits = 4;
  PlainCallsOfWorkers() : PlainCalls({.credits = kCredits}, {.worker_cpus = {-1}}) {}
};

// A client makes as many calls beyond its credits as it may, and then one more, in a burst.
TEST_F(PlainCallsOfWorkers, AreNotRunBehindOneThatEndsTheirConnection) {
  constexpr uint32_t kForgiven = 64;
  settle();
  for (uint32_t beyond = 0; beyond != kForgiven; ++beyond) {
    for (uint32_t calls = 0; calls != kCredits + 1; ++calls)
      send(*client_, kHold);
    until(*client_, [&] { return deeds_.keeper.kept() == kCredits + 1; });
    deeds_.keeper.release();
    until(*client_, [&] { return client_->received.size() == kCredits + 1; });
    client_->received.clear();
  }
  for (uint32_t calls = 0; calls != 8; ++calls)
    call(*client_, kRun, {0});
  deeds_.ran.clear();
  EXPECT_EQ(ends_.server->stats()[Refusal::kCreditOverrun], kForgiven);
  const uint64_t before = in_place();
  for (uint32_t word = 1; word <= 2 * kCredits; ++word)
    send(*client_, kWork, {word});
  until(*client_, [&] { return client_->down(); });
  until(*client_, [&] { return ends_.server->stats()[Counter::kConnections] == 0; });
  EXPECT_EQ(in_place(), before + kCredits + 1);
  EXPECT_LE(deeds_.ran.size(), kCredits + 1);
}

class LargePlainCalls : public PlainCalls {
 protected:
  static constexpr uint32_t kLarge = 16384;
  LargePlainCalls() : PlainCalls({.credits = 8, .inline_size = kLarge}) {}
};

// Each reply has a buffer of kLarge bytes while its handler runs.
TEST_F(LargePlainCalls, KeepNoLargeBufferBehindThem) {
  settle(kLarge);
  uint32_t within = 0;
  deeds_.act = [&] { within = available(kLarge); };
  const uint64_t before = in_place();
  call(*client_, kOwn, {0});  // the general way, whose records keep none
  EXPECT_EQ(in_place(), before);
  const uint32_t idle = available(kLarge);
  call(*client_, kAct);
  EXPECT_EQ(in_place(), before + 1);
  EXPECT_LT(within, idle);
  EXPECT_EQ(available(kLarge), idle);
}

// They do not take a larger class's buffers for arriving data either when their own class has none.
TEST_F(PlainCalls, LeaveTheLargerClassesAlone) {
  constexpr uint32_t kOther = 65536;
  settle();
  std::vector<Buffer> all;
  uint32_t within = 0;
  deeds_.act = [&] { within = available(kOther); };
  const uint32_t acting = send(*client_, kAct);
  while (Buffer one = ends_.memory->get_fitting(4096))
    all.push_back(std::move(one));
  const uint32_t before = available(kOther);
  EXPECT_EQ(answer_to(*client_, acting).type(), 0u);
  EXPECT_EQ(within, before);
}

class SampledPlainCalls : public PlainCalls {
 protected:
  SampledPlainCalls() : PlainCalls({}, {.stamp_every = 1}) {}
};

TEST_F(SampledPlainCalls, NullIsAnsweredBehindARefusedCall) {
  settle();
  for (const AcceptStat expected : {AcceptStat::kSystemErr, AcceptStat::kSuccess}) {
    const uint64_t before = in_place();
    const bool refused = expected != AcceptStat::kSuccess;
    EXPECT_EQ(call(*client_, refused ? kRefuse : 0).at(kAcceptStat),
              static_cast<uint32_t>(expected));
    EXPECT_EQ(in_place(), before + 1);
  }
}

// Clients of one core, each with its own name.
class PlainCallsOfMany : public testing::Test {
 protected:
  static constexpr uint32_t kTurn = 4;  // calls, of a client that is not alone (engine/credits.h)

  // A client that may have all its calls in flight, and had the core for itself.
  std::unique_ptr<RawClient> new_client(uint64_t name) {
    auto client = site_.connect(name);
    for (uint32_t calls = 0; calls != 64; ++calls)
      call(*client, kAgain);
    return client;
  }
  void send(RawClient& client, uint32_t procedure, uint32_t calls = 1) {
    for (; calls != 0; --calls)
      site_.send(client, {.xid = ++last_xid_, .procedure = procedure, .arguments = {0}});
  }
  void call(RawClient& client, uint32_t procedure) {
    send(client, procedure);
    site_.answer(client);
  }
  // The number of calls that run in one pass of the core.
  uint32_t pass() {
    const uint32_t before = site_.service.runs;
    site_.runtime->poll(0);
    return site_.service.runs - before;
  }
  uint64_t in_place() { return taken_in_place(*site_.runtime, site_.uri); }

  Site site_{{}, RuntimeOptions{}};

 private:
  uint32_t last_xid_ = 0;
};

TEST_F(PlainCallsOfMany, ShowThatTheCoreIsNotOneClientsAlone) {
  const auto plain = new_client(1);
  const auto other = new_client(2);
  for (int calls = 0; calls != 4; ++calls)
    call(*other, kAppend);
  send(*other, kAppend, 16);
  EXPECT_EQ(pass(), 16u) << "it was alone";
  for (int answers = 0; answers != 16; ++answers)
    site_.answer(*other);

  const uint64_t before = in_place();
  send(*plain, kAgain);
  EXPECT_EQ(pass(), 1u);
  EXPECT_EQ(in_place(), before + 1);
  send(*other, kAppend, 16);
  EXPECT_EQ(pass(), kTurn) << "it is not any more";
}

TEST_F(PlainCallsOfMany, AreNotAloneAmongOtherCalls) {
  const auto plain = new_client(1);
  const auto one = site_.connect(2);
  const auto two = site_.connect(3);
  for (int calls = 0; calls != 4; ++calls)
    call(*plain, kAgain);
  const uint64_t before = in_place();
  send(*plain, kAgain, 16);
  EXPECT_EQ(pass(), 16u) << "they were alone";
  EXPECT_EQ(in_place(), before + 16);
  for (int answers = 0; answers != 16; ++answers)
    site_.answer(*plain);

  // The first calls of two other clients, which come in one batch of completions.
  send(*one, kAppend);
  send(*two, kAppend);
  EXPECT_EQ(pass(), 2u);
  send(*plain, kAgain, 16);
  EXPECT_EQ(pass(), kTurn) << "they are not any more";
}

// The bytes read for a call are charged as well, before the next call is looked at.
TEST_F(PlainCallsOfMany, EndATurnByTheBytesTheyRead) {
  constexpr uint32_t kCalls = 4;
  constexpr uint32_t kChunk = 8192;
  constexpr uint32_t kBehindTheWord = 44;  // of the RPC message
  const auto plain = new_client(1);
  const auto other = new_client(2);
  Buffer data = site_.memory->get(kChunk);
  const uint32_t key = plain->expose(data.first(kChunk), fabric::Rights::kRemoteRead);
  const auto send_all = [&] {
    for (uint32_t xid = 1000; xid != 1000 + kCalls; ++xid)
      site_.send(*plain, {.xid = xid,
                          .procedure = kAgain,
                          .arguments = {0},
                          .lists = Words{1, kBehindTheWord} + segment(key, kChunk, data.data()) +
                                   Words{0, 0, 0}});
  };
  const uint64_t before = in_place();
  send_all();
  EXPECT_EQ(pass(), kCalls / 2);
  EXPECT_EQ(in_place(), before + kCalls / 2);
  for (uint32_t answers = 0; answers != kCalls; ++answers)
    EXPECT_EQ(site_.answer(*plain).type(), 0u);
  EXPECT_EQ(in_place(), before + kCalls);
}

}  // namespace
}  // namespace rrdk::loopback
