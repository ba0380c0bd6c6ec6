// Calls in both directions of one connection (RFC 8167; draft-04 of version 2, section 3.1): here
// `a` is the client, which connected, and `b` the server, which calls it.

#include "pair.h"
#include "proto/codec.h"
#include "scripted_test.h"

namespace rrdk::engine::test {
namespace {

constexpr uint32_t kCall = 0, kReply = 1;

class BothWays : public Pair, public testing::WithParamInterface<proto::Wire> {
 protected:
  void connect(ConnectionOptions client = {}, ConnectionOptions server = {}) {
    for (ConnectionOptions* end : {&client, &server}) {
      end->properties = false;
      if (end->backward_credits == 0)
        end->backward_credits = 4;
      if (GetParam() != proto::Wire::kVersion1)
        end->limits.versions.two = GetParam();
    }
    if (GetParam() != proto::Wire::kVersion1)
      client.speaks = Speaks::kTwo;
    Pair::connect(client, server);
    a->handler = [this](ServedCall& call) { answer(*a, call); };
    b->handler = [this](ServedCall& call) { answer(*b, call); };
  }
  void answer(End& end, ServedCall& call, const std::vector<Item>& items = {}) {
    write(call.reply, call.xid, kReply, items, id_of(call.message));
    end.engine->reply(call);
  }
  static uint32_t id_of(std::span<const Fragment> message) {
    return xdr::load_u32(message[0].data + 8);
  }
  void submit(End& end, OutgoingCall& call, const std::vector<Item>& items = {}, uint32_t id = 0) {
    write(call.message, 0, kCall, items, id);
    end.engine->submit(call);
  }
  // The client makes the first call: until then the server does not know which version its client
  // speaks.
  void open_up() {
    OutgoingCall call;
    submit(*a, call);
    run();
    ASSERT_EQ(a->ended.size(), 1u);
    ASSERT_EQ(call.status, CallStatus::kOk);
    a->ended.clear();
  }
  static Bytes sent(const End& end, size_t index) {
    size_t n = 0;
    for (const fabric::SendWr& wr : end.qp.log) {
      if (wr.op != fabric::Op::kSend || n++ != index)
        continue;
      Bytes bytes;
      for (const MemorySpan& sge : wr.spans())
        bytes.insert(bytes.end(), sge.data, sge.data + sge.length);
      return bytes;
    }
    ADD_FAILURE() << "no such Send";
    return Bytes(64);
  }
};

INSTANTIATE_TEST_SUITE_P(Wires, BothWays, each_wire(), wire_name);

// Shows: BIDIR-01, BIDIR-02, BIDIR-10, BIDIR-12, V2D0-BIDIR-01, EXP-18
TEST_P(BothWays, AServerCallsItsClientInTheVersionOfItsCalls) {
  connect();
  open_up();
  OutgoingCall call;
  submit(*b, call, {}, 7);
  run();
  ASSERT_EQ(b->ended.size(), 1u);
  EXPECT_EQ(call.status, CallStatus::kOk);
  check(Decoder(call.reply), {}, 7);
  EXPECT_EQ(a->calls, 1u);
  Bytes bytes = sent(*b, 1);  // behind the reply
  Wire words{call.status == CallStatus::kOk ? word(bytes, 0) : 0, proto::version_of(GetParam()), 4,
             kMsg};
  if (GetParam() == proto::Wire::kDraft04)
    words.add({kCall, 0});
  words.add({0, 0, 0, word(bytes, 0), kCall, 7});
  EXPECT_EQ(bytes, words.bytes());
}

// Shows: BIDIR-13
TEST_P(BothWays, AServerDoesNotCallBeforeItWasCalled) {
  connect();
  OutgoingCall call;
  EXPECT_FALSE(b->engine->may_call_back());
  submit(*b, call);
  run();
  EXPECT_TRUE(b->qp.log.empty());
  open_up();
  EXPECT_TRUE(b->engine->may_call_back());
  EXPECT_EQ(b->ended.size(), 1u);
  EXPECT_EQ(call.status, CallStatus::kOk);
}

// Shows: BIDIR-05, BIDIR-06, BIDIR-22, V1-CREDIT-20
TEST_P(BothWays, CreditsOfEachDirectionAreApart) {
  connect({.credits = 32, .backward_credits = 2}, {.credits = 32, .backward_credits = 8});
  open_up();
  EXPECT_EQ(a->engine->requester().window.size(), 32u);
  a->handler = nullptr;
  OutgoingCall calls[5];
  for (OutgoingCall& call : calls)
    submit(*b, call);
  run();
  EXPECT_EQ(a->held.size(), 1u) << "one before the first grant";
  EXPECT_EQ(word(sent(*b, 1), 2), 8u);
  while (!a->held.empty()) {
    answer(*a, *std::exchange(a->held, {}).front());
    run();
    EXPECT_LE(b->engine->requester().window.in_flight(), 2u) << "the client granted 2";
    EXPECT_LE(a->held.size(), 2u);
    if (a->held.size() == 2) {
      ServedCall* second = a->held[1];
      a->held.resize(1);
      answer(*a, *second);
    }
  }
  EXPECT_EQ(b->ended.size(), 5u);
  EXPECT_EQ(b->engine->requester().window.size(), 2u);
  EXPECT_EQ(a->engine->requester().window.size(), 32u);
  EXPECT_EQ(a->engine->counters().refusals[Refusal::kCreditOverrun], 0u);
}

// Shows: BIDIR-03, BIDIR-04, BIDIR-19, V2D0-BIDIR-02
TEST_P(BothWays, TheSameXidCanBeOnItsWayInBothDirections) {
  connect({.credits = 4, .first_xid = 1000}, {.credits = 4, .first_xid = 1000});
  open_up();
  open_up();
  OutgoingCall first, second;
  submit(*b, first);
  submit(*b, second);
  run();
  b->ended.clear();
  a->handler = b->handler = nullptr;
  OutgoingCall forward, backward;
  submit(*a, forward, {}, 1);
  submit(*b, backward, {}, 2);
  run();
  ASSERT_EQ(a->held.size(), 1u);
  ASSERT_EQ(b->held.size(), 1u);
  EXPECT_EQ(a->held[0]->xid, b->held[0]->xid);
  EXPECT_EQ(id_of(a->held[0]->message), 2u);
  EXPECT_EQ(id_of(b->held[0]->message), 1u);
  answer(*a, *std::exchange(a->held, {}).front());
  answer(*b, *std::exchange(b->held, {}).front());
  run();
  check(Decoder(forward.reply), {}, 1);
  check(Decoder(backward.reply), {}, 2);
  EXPECT_EQ(forward.status, CallStatus::kOk);
  EXPECT_EQ(backward.status, CallStatus::kOk);
}

// The fabric fails the test when a Send finds no Receive.
// Shows: BIDIR-07
TEST_P(BothWays, BothDirectionsAtTheirLimitsMeetReceives) {
  connect({.credits = 8, .backward_credits = 8}, {.credits = 8, .backward_credits = 8});
  open_up();
  constexpr uint32_t kCalls = 64;
  OutgoingCall forward[kCalls], backward[kCalls];
  a->handler = b->handler = nullptr;
  for (uint32_t i = 0; i < kCalls; ++i) {
    submit(*a, forward[i], {}, i);
    submit(*b, backward[i], {}, i);
  }
  run();
  for (uint32_t round = 0; round < 2 * kCalls && (!a->held.empty() || !b->held.empty()); ++round) {
    // The calls are answered only when nothing else moves, so that everything that may be on its
    // way is.
    for (End* end : {a.get(), b.get()}) {
      for (ServedCall* call : std::exchange(end->held, {}))
        answer(*end, *call);
    }
    run();
  }
  EXPECT_EQ(a->ended.size(), kCalls);
  EXPECT_EQ(b->ended.size(), kCalls);
  for (uint32_t i = 0; i < kCalls; ++i) {
    EXPECT_EQ(forward[i].status, CallStatus::kOk);
    EXPECT_EQ(backward[i].status, CallStatus::kOk);
    check(Decoder(backward[i].reply), {}, i);
  }
  EXPECT_EQ(a->engine->counters().refusals[Refusal::kCreditOverrun], 0u);
  EXPECT_EQ(b->engine->counters().refusals[Refusal::kCreditOverrun], 0u);
}

// Shows: BIDIR-08, BIDIR-09, V2D0-INL-06
TEST_P(BothWays, TheSmallerThresholdIsTheLargestMessage) {
  const bool is_one = GetParam() == proto::Wire::kVersion1;
  const uint32_t limit = is_one ? 1024 : 4096;
  const uint32_t fixed = proto::min_header(GetParam()) + 12 + 4;
  // The threshold is smaller toward the server first, then toward the client.
  for (bool to_server : {true, false}) {
    if (a != nullptr)
      finish();
    connect({.send_size = 4096, .receive_size = to_server ? 4096u : 1024u},
            {.send_size = 4096, .receive_size = to_server ? 1024u : 4096u});
    open_up();
    OutgoingCall fits, does_not;
    submit(*b, fits, {{limit - fixed}});
    submit(*b, does_not, {{limit - fixed + 4}});
    run();
    EXPECT_EQ(fits.status, CallStatus::kOk);
    EXPECT_EQ(does_not.status, CallStatus::kTooLarge);
    EXPECT_EQ(sent(*b, b->qp.count(fabric::Op::kSend) - 1).size(), limit);

    // The largest reply, too.
    for (uint32_t more : {0u, 4u}) {
      a->handler = [&](ServedCall& call) { answer(*a, call, {{limit - fixed + more}}); };
      OutgoingCall call;
      call.max_reply = 8192;
      submit(*b, call);
      run();
      EXPECT_EQ(call.status, more == 0 ? CallStatus::kOk : CallStatus::kChunkError);
      call.release();
    }
    EXPECT_TRUE(a->engine->established());
    open_up();
  }
}

class BothWaysInDraft04 : public BothWays {
 protected:
  // The client's CONNPROP comes behind the first reply.
  void connect(bool client_has_chunks, bool server_has_chunks, uint32_t client_credits = 4,
               bool server_takes_invalidations = true) {
    ConnectionOptions client{.backward_credits = client_credits,
                             .backward_chunks = client_has_chunks};
    ConnectionOptions server{.backward_credits = 4,
                             .backward_chunks = server_has_chunks,
                             .takes_invalidations = server_takes_invalidations};
    client.chunk_threshold = server.chunk_threshold = 100;
    client.speaks = Speaks::kTwo;
    Pair::connect(client, server);
    a->handler = [this](ServedCall& call) { answer(*a, call); };
    b->handler = [this](ServedCall& call) { answer(*b, call); };
    open_up();
  }
};

INSTANTIATE_TEST_SUITE_P(Draft04, BothWaysInDraft04, testing::Values(proto::Wire::kDraft04));

// Shows: BIDIR-20, V2D4-PROP-29
TEST_P(BothWaysInDraft04, ChunksGoBackwardWhereBothEndsSaySo) {
  for (bool client_has : {false, true}) {
    for (bool server_has : {false, true}) {
      if (a != nullptr)
        finish();
      connect(client_has, server_has);
      Buffer buffer = memory->get(6000);
      MemorySpan span = buffer.first(6000);
      ResultRoom room{{&span, 1}};
      OutgoingCall call;
      call.results = {&room, 1};
      call.max_reply = 100;
      submit(*b, call, {{5000, true}, {8000}});
      a->handler = [&](ServedCall& incoming) {
        check(Decoder(incoming.message), {{5000, true}, {8000}});
        answer(*a, incoming, {{6000, true}});
      };
      run();
      if (client_has && server_has) {
        EXPECT_EQ(call.status, CallStatus::kOk) << to_string(call.status);
        check(Decoder(call.reply, call.placed), {{6000, true}});
        EXPECT_GT(a->qp.count(fabric::Op::kRead), 0u);
        EXPECT_GT(a->qp.count(fabric::Op::kWrite), 0u);
        EXPECT_EQ(a->qp.count(fabric::Op::kSendInvalidate), 1u);
      } else {
        EXPECT_EQ(call.status, CallStatus::kTooLarge);
      }
      EXPECT_TRUE(b->qp.keys.empty());
      call.release();
    }
  }
}

// It still sends invalidations: that is a separate ability.
// Shows: BIDIR-21, V2D4-RINV-02, V2D4-RINV-06
TEST_P(BothWaysInDraft04, AServerWhoseKeysCannotBeInvalidatedNamesNone) {
  for (bool takes : {false, true}) {
    if (a != nullptr)
      finish();
    connect(true, true, 4, takes);
    OutgoingCall call;
    submit(*b, call, {{5000, true}});
    run();
    EXPECT_EQ(call.status, CallStatus::kOk) << to_string(call.status);
    const Bytes header = sent(*b, b->qp.count(fabric::Op::kSend) - 1);
    EXPECT_EQ(word(header, 5) != 0, takes);
    EXPECT_EQ(a->qp.count(fabric::Op::kSendInvalidate), takes ? 1u : 0u);
    EXPECT_TRUE(b->qp.keys.empty());
    OutgoingCall forward;
    submit(*a, forward, {{5000, true}});
    run();
    EXPECT_EQ(forward.status, CallStatus::kOk) << to_string(forward.status);
    EXPECT_EQ(b->qp.count(fabric::Op::kSendInvalidate), 1u);
  }
}

// Shows: V2D4-PROP-28, BIDIR-13
TEST_P(BothWaysInDraft04, NoCallGoesToAClientThatSaysItTakesNone) {
  connect(false, false, 0);
  EXPECT_FALSE(b->engine->may_call_back());
  size_t before = b->qp.log.size();
  OutgoingCall call;
  submit(*b, call);
  run();
  EXPECT_EQ(b->qp.log.size(), before);
  EXPECT_EQ(call.status, CallStatus::kRemoteError);
  open_up();
}

// Data that would move in chunks in the other direction stays inline, or is not sent.
// Shows: BIDIR-10, PD-35, V2D4-PROP-18
TEST_P(BothWays, BackwardCallsHaveNoChunks) {
  connect();
  open_up();
  Buffer buffer = memory->get(2000);
  MemorySpan span = buffer.first(2000);
  ResultRoom room{{&span, 1}};
  OutgoingCall call;
  call.results = {&room, 1};
  call.max_reply = 100;
  submit(*b, call, {{2000, true}});
  a->handler = [&](ServedCall& incoming) {
    EXPECT_EQ(incoming.item_chunks, 0u);
    EXPECT_EQ(incoming.write_chunks(), 0u);
    answer(*a, incoming, {{2000, true}});
  };
  run();
  EXPECT_EQ(call.status, CallStatus::kOk);
  EXPECT_TRUE(call.placed.empty());
  EXPECT_EQ(b->qp.count(fabric::Op::kBindKey), 0u);
  EXPECT_EQ(a->qp.count(fabric::Op::kRead) + a->qp.count(fabric::Op::kWrite), 0u);
  EXPECT_EQ(a->qp.count(fabric::Op::kSendInvalidate), 0u);
  if (GetParam() == proto::Wire::kDraft04) {
    EXPECT_EQ(word(sent(*b, 1), 5), 0u) << "no handle is offered for invalidation";
  }
  OutgoingCall large;
  submit(*b, large, {{8000, true}});
  run();
  EXPECT_EQ(large.status, CallStatus::kTooLarge);
  large.release();
}

// Shows: BIDIR-17
TEST_P(BothWays, ALostConnectionEndsCallsOfBothDirections) {
  connect();
  open_up();
  a->handler = b->handler = nullptr;
  OutgoingCall forward, backward, queued;
  submit(*a, forward);
  submit(*b, backward);
  submit(*b, queued);
  run();
  ASSERT_EQ(a->held.size(), 1u);
  a->disconnect();
  b->disconnect();
  EXPECT_EQ(forward.status, CallStatus::kConnectionLost);
  EXPECT_EQ(backward.status, CallStatus::kConnectionLost);
  EXPECT_EQ(queued.status, CallStatus::kConnectionLost);
  EXPECT_FALSE(a->engine->idle()) << "a handler still has the call";
  answer(*a, *std::exchange(a->held, {}).front());
  EXPECT_TRUE(a->engine->idle());
}

// An unanswered backward call costs a backward credit, but not the connection.
TEST_P(BothWays, ACallThatIsGivenUpOnDoesNotEndTheConnection) {
  connect();
  open_up();
  a->handler = nullptr;
  OutgoingCall late, next;
  submit(*b, late);
  run();
  b->engine->cancel(late);
  submit(*b, next);
  run();
  EXPECT_EQ(late.status, CallStatus::kCancelled);
  EXPECT_FALSE(b->engine->wants_disconnect());
  open_up();
  answer(*a, *std::exchange(a->held, {}).front());
  a->handler = [this](ServedCall& call) { answer(*a, call); };
  run();
  EXPECT_EQ(next.status, CallStatus::kOk);
}

// A client that is never called and a server that makes no calls post no Receives for the other
// direction.
TEST_P(BothWays, WithoutBackwardCallsThereAreNoMoreReceives) {
  ConnectionOptions plain{.role = Role::kRequester, .credits = 8};
  End end(plain, *memory, *pool);
  EXPECT_EQ(end.qp.receives.size(), 8u);
  ConnectionOptions both{.role = Role::kRequester, .credits = 8, .backward_credits = 3};
  End other(both, *memory, *pool);
  EXPECT_EQ(other.qp.receives.size(), 11u);
  end.disconnect();
  other.disconnect();
}

// Kept replies leave Receives without buffers. The remaining buffers are promised once, and calls
// cannot take all of them. The fabric fails the test if a Send finds no Receive.
class FewBuffers : public BothWays {
 protected:
  FewBuffers() : few_(make({{4096, 11}, {65536, 4}})) {}
  static std::unique_ptr<Memory> make(std::vector<SizeClass> classes) {
    return std::move(*Memory::create({.classes = std::move(classes),
                                      .hugepages = HugepagePolicy::kNever,
                                      .numa_nodes = {},
                                      .prefault = false}));
  }
  std::unique_ptr<Memory> few_;
};

TEST_P(FewBuffers, EachDirectionKeepsReceives) {
  CallPool few_calls(*few_, 16);
  a = std::make_unique<End>(
      ConnectionOptions{.role = Role::kRequester, .credits = 4, .backward_credits = 4}, *memory,
      *pool);
  b = std::make_unique<End>(
      ConnectionOptions{.role = Role::kResponder, .credits = 4, .backward_credits = 4}, *few_,
      few_calls);
  a->qp.remote = &b->qp;
  b->qp.remote = &a->qp;
  a->engine->on_established(b->engine->private_data(), 16);
  b->engine->on_established(a->engine->private_data(), 16);
  a->handler = [this](ServedCall& call) { answer(*a, call); };
  b->handler = [this](ServedCall& call) { answer(*b, call); };
  open_up();
  {
    OutgoingCall kept[4];
    for (OutgoingCall& call : kept) {
      submit(*b, call);
      run();
      EXPECT_EQ(call.status, CallStatus::kOk);
    }
    EXPECT_EQ(b->qp.receives.size(), 5u) << "the test is about Receives without buffers";

    // The client still has the grant from when there were more Receives.
    b->handler = nullptr;
    OutgoingCall forward[4], backward[4];
    for (int i = 0; i < 4; ++i) {
      submit(*a, forward[i]);
      submit(*b, backward[i]);
    }
    while (run(), !b->held.empty()) {
      for (ServedCall* call : std::exchange(b->held, {}))
        answer(*b, *call);
    }
    for (const OutgoingCall& call : backward)
      EXPECT_EQ(call.status, CallStatus::kOk);

    // With a lower grant that is fully in use, there is a Receive for the server's calls.
    for (OutgoingCall& call : forward)
      submit(*a, call);
    run();
    EXPECT_LT(b->held.size(), 4u);
    submit(*b, backward[0]);
    run();
    EXPECT_EQ(backward[0].status, CallStatus::kOk);
    finish();
  }
  EXPECT_EQ(few_calls.available(), few_calls.capacity());
}

INSTANTIATE_TEST_SUITE_P(Version1, FewBuffers, testing::Values(proto::Wire::kVersion1));

}  // namespace
}  // namespace rrdk::engine::test
