// A requester of version 2 against a scripted responder: how the version is settled, and the words
// of its calls (draft-04 sections 6.2 and 7, draft-00 section 5).
#include "proto/codec.h"
#include "scripted_test.h"

namespace rrdk::engine::test {
namespace {

constexpr uint32_t kCall = 0, kReply = 1;

class Version2Requester : public ScriptedTest {
 protected:
  void connect(Speaks speaks, proto::Wire draft = proto::Wire::kDraft04,
               ConnectionOptions options = {}, proto::PrivateData peer = {true, 4096, 4096}) {
    options.role = Role::kRequester;
    options.speaks = speaks;
    options.limits.versions.two = draft;
    options.properties = false;
    draft_ = draft;
    begin(options, peer, 16);
  }
  Wire reply(uint32_t xid, uint32_t version = 2, uint32_t grant = 4) const {
    Wire wire{xid, version, grant, kMsg};
    if (version == 2 && draft_ == proto::Wire::kDraft04)
      wire.add({kReply, 0});
    return wire.add({0, 0, 0, xid, kReply, 42});
  }
  Wire error(const Bytes& call, std::initializer_list<uint32_t> words) const {
    return Wire{word(call, 0), word(call, 1), 4, kError}.add(words);
  }
  void give_up(OutgoingCall& call) {
    end->engine->cancel(call);
    end->run();
    end->ended.clear();
  }
  void settle() {
    OutgoingCall call;
    peer_side->say(reply(word(send(call), 0)));
    expect_status(call, CallStatus::kOk);
  }
  void expect_status(OutgoingCall& call, CallStatus status) {
    ASSERT_EQ(end->ended.size(), 1u);
    EXPECT_EQ(end->ended[0], &call);
    EXPECT_EQ(call.status, status) << to_string(call.status);
    end->ended.clear();
    EXPECT_TRUE(end->qp.keys.empty());
  }
  // Offers a Write list of two chunks and a Reply chunk.
  void offer(OutgoingCall& call) {
    if (!buffer)
      buffer = memory->get(200);
    spans[0] = buffer.first(100);
    spans[1] = {buffer.data() + 100, 100, spans[0].region};
    rooms[0].spans = {&spans[0], 1};
    rooms[1].spans = {&spans[1], 1};
    call.results = rooms;
    call.max_reply = 8000;
  }
  void TearDown() override {
    if (end != nullptr)
      end->disconnect();
    buffer.reset();
    ScriptedTest::TearDown();
  }

  proto::Wire draft_ = proto::Wire::kDraft04;
  Buffer buffer;
  MemorySpan spans[2];
  ResultRoom rooms[2];
};

// Shows: V2D4-NEG-01, V2D4-HDR-03, V2D4-HDR-06, V2D4-DIR-01, V2D4-RINV-02
TEST_F(Version2Requester, ACallHasTheWordsOfTheDraft) {
  connect(Speaks::kTwo, proto::Wire::kDraft04, {.credits = 32});
  OutgoingCall call;
  Bytes sent = send(call);
  uint32_t xid = word(sent, 0);
  EXPECT_EQ(sent, Wire({xid, 2, 32, kMsg, kCall, 0, 0, 0, 0, xid, 0}).bytes());
  EXPECT_EQ(end->engine->version(), 2u);
  give_up(call);
}

// Shows: V2D0-HDR-06, V2D0-NEG-01
TEST_F(Version2Requester, ACallHasTheWordsOfDraft00) {
  connect(Speaks::kTwo, proto::Wire::kDraft00, {.credits = 32});
  OutgoingCall call;
  Bytes sent = send(call);
  uint32_t xid = word(sent, 0);
  EXPECT_EQ(sent, Wire({xid, 2, 32, kMsg, 0, 0, 0, xid, 0}).bytes());
  give_up(call);
}

// The pads of a slot's calls are zeros, even after a header that filled its space: a header with
// three Read chunks and a Reply chunk has 128 bytes.
TEST_F(Version2Requester, ALargeHeaderDoesNotSpoilThePadsOfLaterCalls) {
  connect(Speaks::kTwo, proto::Wire::kDraft04, {.credits = 1});
  settle();
  Buffer item = memory->get(4096);
  for (uint32_t chunks = 0; chunks <= 4; ++chunks) {
    for (bool with_reply_chunk : {false, true}) {
      OutgoingCall large;
      large.max_reply = with_reply_chunk ? 8000 : 100;
      {
        Encoder e(large.message, *memory, 1024, 1u << 20);
        e.put_u64(0);
        for (uint32_t i = 0; i < chunks; ++i)
          e.put_item(item.first(2048), Ddp::kEligible);
      }
      end->engine->submit(large);
      end->run();
      Bytes sent = only_sent();
      EXPECT_EQ(sent.size(), 36 + chunks * 24 + (with_reply_chunk ? 20 : 0) + 8 + chunks * 4);
      peer_side->say(reply(word(sent, 0)));
      end->ended.clear();

      OutgoingCall odd;
      {
        Encoder e(odd.message, *memory, 1024, 1u << 20);
        e.put_u64(0);
        e.put_item(item.first(5), Ddp::kEligible);
      }
      end->engine->submit(odd);
      end->run();
      sent = only_sent();
      ASSERT_EQ(sent.size(), 36u + 8 + 4 + 8);
      EXPECT_EQ(Bytes(sent.end() - 3, sent.end()), Bytes(3)) << chunks << " Read chunks before";
      peer_side->say(reply(word(sent, 0)));
      expect_status(odd, CallStatus::kOk);
    }
  }
}

// Shows: V2D4-NEG-01, V2D4-NEG-03, V2D0-NEG-01, V2D0-NEG-04, V2D4-NEG-02, V2D0-NEG-02
TEST_F(Version2Requester, TheFirstMessageIsOfAtMost1024BytesAndAlone) {
  for (proto::Wire draft : {proto::Wire::kDraft00, proto::Wire::kDraft04}) {
    connect(Speaks::kTwo, draft);
    OutgoingCall first, others[3];
    Bytes sent = send(first, 2000);
    EXPECT_LE(sent.size(), 1024u);
    EXPECT_EQ(word(sent, 1), 2u);
    EXPECT_EQ(word(sent, 3), kNoMsg);
    for (OutgoingCall& call : others)
      submit(call, 2000);
    EXPECT_TRUE(peer_side->take().empty());
    EXPECT_FALSE(end->engine->version_settled());
    peer_side->say(reply(word(sent, 0)));
    expect_status(first, CallStatus::kOk);
    EXPECT_TRUE(end->engine->version_settled());
    std::vector<Bytes> rest = peer_side->take();
    ASSERT_EQ(rest.size(), 3u);
    for (const Bytes& message : rest)
      EXPECT_EQ(word(message, 3), kMsg);  // 2000 bytes inline
    OutgoingCall largest, larger;
    uint32_t room = 4096 - proto::min_header(draft) - 8;
    EXPECT_EQ(send(largest, room).size(), 4096u);
    for (const Bytes& message : rest)
      peer_side->say(reply(word(message, 0)));
    EXPECT_EQ(word(send(larger, room + 4), 3), kNoMsg);
    for (OutgoingCall* call : {&others[0], &others[1], &others[2], &largest, &larger})
      give_up(*call);
    end->disconnect();
    end.reset();
  }
}

// Shows: V2D4-NEG-05, V2D4-NEG-12, V2D0-NEG-06, V2D4-NEG-02
TEST_F(Version2Requester, AVersionErrorMakesItSendTheCallAgainInVersion1) {
  connect(Speaks::kAuto);
  OutgoingCall call, waits;
  offer(call);
  Bytes sent = send(call);
  EXPECT_EQ(word(sent, 1), 2u);
  submit(waits);
  peer_side->say(error(sent, {kErrVers, 1, 1}));
  Bytes again = only_sent();
  EXPECT_EQ(word(again, 0), word(sent, 0));
  EXPECT_EQ(word(again, 1), 1u);
  EXPECT_EQ(again.size(), sent.size() - 8);
  EXPECT_TRUE(end->ended.empty());
  EXPECT_EQ(end->engine->version(), 1u);
  EXPECT_TRUE(end->engine->version_settled());
  EXPECT_FALSE(end->engine->wants_disconnect());
  peer_side->say(Wire{word(sent, 0), 1, 4, kMsg, 0, 0, 0, word(sent, 0), 1, 42});
  ASSERT_EQ(end->ended.size(), 1u);
  EXPECT_EQ(call.status, CallStatus::kOk);
  end->ended.clear();
  Bytes next = only_sent();
  EXPECT_EQ(word(next, 1), 1u);
  peer_side->say(reply(word(next, 0), 1));
  expect_status(waits, CallStatus::kOk);
}

// Shows: V2X-03
TEST_F(Version2Requester, AnEndOfTheOtherDraftIsSpokenToInVersion1) {
  for (uint32_t code : {2u, 3u}) {
    connect(Speaks::kAuto);
    OutgoingCall call;
    Bytes sent = send(call);
    peer_side->say(error(sent, {code}));
    Bytes again = only_sent();
    EXPECT_EQ(word(again, 0), word(sent, 0));
    EXPECT_EQ(word(again, 1), 1u);
    peer_side->say(reply(word(again, 0), 1));
    expect_status(call, CallStatus::kOk);
    end->disconnect();
    end.reset();
  }
}

TEST_F(Version2Requester, OnceSettledTheVersionStays) {
  connect(Speaks::kAuto);
  settle();
  OutgoingCall call;
  Bytes sent = send(call);
  peer_side->say(error(sent, {2}));
  expect_status(call, CallStatus::kChunkError);
  EXPECT_EQ(end->engine->version(), 2u);
  EXPECT_EQ(word(send(call), 1), 2u);  // V2D4-NEG-11
  give_up(call);
}

TEST_F(Version2Requester, PinnedToVersion2ItDoesNotFallBack) {
  connect(Speaks::kTwo);
  OutgoingCall call;
  Bytes sent = send(call);
  peer_side->say(error(sent, {kErrVers, 1, 1}));
  expect_status(call, CallStatus::kVersionError);
  EXPECT_TRUE(peer_side->take().empty());
  EXPECT_TRUE(end->engine->wants_disconnect());
  EXPECT_EQ(counters().refusals[Refusal::kNoCommonVersion], 1u);
}

TEST_F(Version2Requester, ARangeWithoutEitherVersionEndsTheConnection) {
  connect(Speaks::kAuto);
  OutgoingCall call;
  Bytes sent = send(call);
  peer_side->say(error(sent, {kErrVers, 3, 5}));
  expect_status(call, CallStatus::kVersionError);
  EXPECT_TRUE(end->engine->wants_disconnect());
}

TEST_F(Version2Requester, ACallThatIsToBeSentAgainCanStillBeGivenUp) {
  connect(Speaks::kAuto);
  OutgoingCall call;
  offer(call);
  Bytes sent = send(call);
  EXPECT_TRUE(end->qp.receive(error(sent, {kErrVers, 1, 1}), {}));
  end->qp.deliver(*end->engine, end->qp.receive_completions, 1);  // its keys are still bound
  EXPECT_TRUE(end->ended.empty());
  end->engine->cancel(call);
  end->run();
  expect_status(call, CallStatus::kCancelled);
  EXPECT_TRUE(peer_side->take().empty());
}

// Shows: V2D4-RINV-01, V2D4-RINV-10
TEST_F(Version2Requester, OneHandleOfTheCallIsOfferedForInvalidation) {
  connect(Speaks::kTwo);
  settle();
  OutgoingCall call;
  offer(call);
  Bytes sent = send(call);
  uint32_t handle = word(sent, 5);
  EXPECT_EQ(handle, word(sent, 9));  // of the first Write chunk
  uint32_t xid = word(sent, 0);
  size_t before = end->qp.count(Op::kInvalidateKey);
  peer_side->say(Wire{xid, 2, 4, kMsg, kReply, 123, 0, 0, 0, xid, kReply, 42}, handle);
  expect_status(call, CallStatus::kOk);
  EXPECT_EQ(end->qp.count(Op::kInvalidateKey) - before, 2u);
}

// Shows: V2D4-RINV-02, V2D4-RINV-05, V2D4-RINV-06
TEST_F(Version2Requester, WithoutTheAbilityNoHandleIsOffered) {
  connect(Speaks::kTwo, proto::Wire::kDraft04, {.takes_invalidations = false});
  OutgoingCall call;
  offer(call);
  EXPECT_EQ(word(send(call), 5), 0u);
  give_up(call);
}

// Shows: V2D4-ERR-15, V2D4-ERR-24, V2X-05
TEST_F(Version2Requester, ErrorsEndTheirCallAndNoOther) {
  connect(Speaks::kTwo);
  settle();
  struct {
    Wire words;
    CallStatus status;
  } errors[] = {
      {{2}, CallStatus::kChunkError},         {{3}, CallStatus::kRemoteError},
      {{7, 1, 100}, CallStatus::kChunkError}, {{8, 100}, CallStatus::kChunkError},
      {{9}, CallStatus::kRemoteError},        {{10}, CallStatus::kRemoteError},
      {{11}, CallStatus::kRemoteError},       {{0}, CallStatus::kRemoteError},
      {{7, 1}, CallStatus::kMalformedReply},
  };
  for (const auto& one : errors) {
    OutgoingCall call;
    Bytes sent = send(call);
    peer_side->say(Wire{word(sent, 0), 2, 4, kError}.raw(one.words));
    expect_status(call, one.status);
    EXPECT_TRUE(peer_side->take().empty());  // V2D4-ERR-04
  }
  settle();
}

// Shows: V2D4-ERR-04, V2D4-ERR-23, V2D4-DIR-07, BIDIR-19
TEST_F(Version2Requester, MessagesThatAreNoAnswerChangeNothing) {
  connect(Speaks::kTwo);
  settle();
  OutgoingCall call;
  Bytes sent = send(call);
  uint32_t xid = word(sent, 0);
  peer_side->say(Wire{xid, 2, 0xffff, kMsg});                            // cut short
  peer_side->say(Wire{xid, 2, 9, kMsg, 9, 0, 0, 0, 0, xid, kReply, 1});  // neither
  peer_side->say(Wire{xid, 2, 9, 5, kReply, 77, 0});                     // an option
  EXPECT_TRUE(end->ended.empty());
  EXPECT_TRUE(peer_side->take().empty());
  EXPECT_EQ(end->engine->requester().window.size(), 4u);
  peer_side->say(reply(xid));
  expect_status(call, CallStatus::kOk);
}

// How the answer to a call with two Read chunks or two Write chunks changes the next call.
class Limits : public Version2Requester {
 protected:
  // Two eligible arguments of 2000 bytes, and buffers for two results.
  void submit_large(OutgoingCall& call) {
    offer(call);
    Encoder e(call.message, *memory, 1024, 1u << 20);
    e.put_u64(0);
    for (int i = 0; i < 2; ++i)
      e.put_item(memory->get(2000), 2000, Ddp::kEligible);
    e.finish();
    end->engine->submit(call);
    end->run();
  }
  struct Counts {
    uint32_t reads = 0, writes = 0;
    bool has_reply = false;
    uint64_t reply_length = 0;
  };
  static Counts counts(const Bytes& message) {
    proto::Header header;
    proto::decode(message, proto::Direction::kCall, {}, header);
    const proto::ChunkLists& lists = header.lists;
    uint32_t zero = lists.num_reads != 0 && lists.reads[0].position == 0 ? 1 : 0;
    return {lists.num_reads - zero, lists.num_writes, lists.has_reply, lists.reply.length};
  }
  Bytes send_large(OutgoingCall& call) {
    submit_large(call);
    return only_sent();
  }
};

// Shows: V2D4-ERR-08, V2D4-ERR-09, V2D4-ERR-20
TEST_F(Limits, AreKeptToFromThenOn) {
  connect(Speaks::kTwo, proto::Wire::kDraft04, {.chunk_threshold = 1000});
  settle();
  OutgoingCall call;
  Bytes sent = send_large(call);
  EXPECT_EQ(counts(sent).reads, 2u);
  EXPECT_EQ(counts(sent).writes, 2u);
  peer_side->say(error(sent, {4, 1}));
  Bytes again = only_sent();
  EXPECT_EQ(word(again, 0), word(sent, 0));
  EXPECT_EQ(counts(again).reads, 1u);
  EXPECT_EQ(counts(again).writes, 2u);
  peer_side->say(error(again, {5, 1}));
  again = only_sent();
  EXPECT_EQ(counts(again).reads, 1u);
  EXPECT_EQ(counts(again).writes, 1u);
  peer_side->say(error(again, {5, 0}));
  again = only_sent();
  EXPECT_EQ(counts(again).writes, 0u);
  EXPECT_GE(counts(again).reply_length, 8200u);
  EXPECT_TRUE(end->ended.empty());
  peer_side->say(reply(word(again, 0)));
  expect_status(call, CallStatus::kOk);

  sent = send_large(call);
  EXPECT_EQ(counts(sent).reads, 1u);
  EXPECT_EQ(counts(sent).writes, 0u);
  // An answer without new information ends the call.
  peer_side->say(error(sent, {4, 1}));
  expect_status(call, CallStatus::kChunkError);
  EXPECT_EQ(call.error.maximum, 1u);
}

// Shows: V2D4-ERR-10, V2D4-ERR-20
TEST_F(Limits, WithoutReadChunksTheCallIsALongOne) {
  connect(Speaks::kTwo, proto::Wire::kDraft04, {.chunk_threshold = 1000});
  settle();
  OutgoingCall call;
  Bytes sent = send_large(call);
  peer_side->say(error(sent, {4, 0}));
  Bytes again = only_sent();
  EXPECT_EQ(counts(again).reads, 0u);
  EXPECT_EQ(word(again, 3), kNoMsg);
  // If the peer takes no segments at all, the call cannot be sent again.
  peer_side->say(error(again, {6, 0}));
  expect_status(call, CallStatus::kChunkError);
  EXPECT_TRUE(peer_side->take().empty());
}

// Shows: V2D4-ERR-13, V2D4-ERR-16
TEST_F(Limits, ALargerReplyChunkIsOfferedOnceToACallThatMayBeRepeated) {
  connect(Speaks::kTwo);
  settle();
  OutgoingCall call;
  call.max_reply = 100;
  call.repeatable = true;
  Bytes sent = send(call);
  EXPECT_FALSE(counts(sent).has_reply);
  peer_side->say(error(sent, {8, 10000}));
  Bytes again = only_sent();
  EXPECT_EQ(word(again, 0), word(sent, 0));
  EXPECT_EQ(counts(again).reply_length, 10000u);
  peer_side->say(error(again, {8, 20000}));
  expect_status(call, CallStatus::kChunkError);
  EXPECT_EQ(call.error.length, 20000u);
  EXPECT_TRUE(peer_side->take().empty());

  call.repeatable = false;
  sent = send(call);
  EXPECT_FALSE(counts(sent).has_reply);
  peer_side->say(error(sent, {8, 10000}));
  expect_status(call, CallStatus::kChunkError);
  EXPECT_EQ(call.error.length, 10000u);
  EXPECT_TRUE(peer_side->take().empty());

  call.repeatable = true;
  for (uint32_t length : {0u, 50u, 0xffffffffu}) {  // unknown, no more than expected, too much
    sent = send(call);
    peer_side->say(error(sent, {8, length}));
    expect_status(call, CallStatus::kChunkError);
    EXPECT_EQ(call.error.length, length);
    EXPECT_TRUE(peer_side->take().empty());
  }
}

// Shows: V2D4-ERR-13
TEST_F(Limits, AResultWithoutRoomComesInTheReply) {
  connect(Speaks::kTwo);
  settle();
  OutgoingCall call;
  call.repeatable = true;
  offer(call);
  Bytes sent = send(call);
  EXPECT_EQ(counts(sent).writes, 2u);
  peer_side->say(error(sent, {7, 2, 5001}));
  Bytes again = only_sent();
  EXPECT_EQ(counts(again).writes, 1u);
  EXPECT_GE(counts(again).reply_length, 8000u + 5004u);
  peer_side->say(reply(word(again, 0)));
  expect_status(call, CallStatus::kOk);
  for (uint32_t index : {0u, 3u}) {
    sent = send(call);
    peer_side->say(error(sent, {7, index, 5001}));
    expect_status(call, CallStatus::kChunkError);
  }
}

// Two calls wait to be sent again behind a third one, whose memory is not fenced yet. They end
// together, and the callback of the first cancels the second: neither counts afterwards.
TEST_F(Limits, CallsThatEndBeforeTheyAreSentAgainHoldNoOthersUp) {
  connect(Speaks::kTwo);
  settle();
  const auto refuse = [&](const Bytes& sent, std::initializer_list<uint32_t> why) {
    EXPECT_TRUE(end->qp.receive(error(sent, why), {}));
    end->qp.deliver(*end->engine, end->qp.receive_completions, 1);
  };
  OutgoingCall fenced, first, second;
  fenced.repeatable = first.repeatable = second.repeatable = true;
  first.deadline_ns = second.deadline_ns = 100;
  offer(fenced);
  first.max_reply = second.max_reply = 100;
  const Bytes with_rooms = send(fenced);
  const Bytes sent[] = {send(first), send(second)};
  refuse(with_rooms, {7, 2, 5001});
  for (const Bytes& message : sent)
    refuse(message, {8, 10000});
  EXPECT_TRUE(end->ended.empty());
  end->on_ended = [&](OutgoingCall& call) {
    end->engine->cancel(&call == &first ? second : first);
  };
  end->engine->on_tick(100);
  end->on_ended = nullptr;
  EXPECT_EQ(end->ended.size(), 2u);
  EXPECT_EQ(first.status, CallStatus::kTimeout);
  EXPECT_EQ(second.status, CallStatus::kTimeout);
  end->ended.clear();
  end->run();
  const Bytes again = only_sent();
  EXPECT_EQ(word(again, 0), word(with_rooms, 0));
  OutgoingCall behind;
  const Bytes next = send(behind);
  peer_side->say(reply(word(again, 0)));
  expect_status(fenced, CallStatus::kOk);
  peer_side->say(reply(word(next, 0)));
  expect_status(behind, CallStatus::kOk);
}

}  // namespace
}  // namespace rrdk::engine::test
