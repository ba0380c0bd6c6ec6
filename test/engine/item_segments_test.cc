// Items in several runs of memory (Encoder::put_item() of a list): whatever way they move, the peer
// sees one item.
#include "pair.h"
#include "proto/codec.h"

namespace rrdk::engine::test {
namespace {

using fabric::Op;

struct Way {
  proto::Wire wire;
  bool lists;  // a key can stand for several runs
};

class ItemSegments : public Pair, public testing::WithParamInterface<Way> {
 protected:
  void connect(ConnectionOptions client = {}, ConnectionOptions server = {}) {
    client.binds_lists = GetParam().lists;
    connect_in(GetParam().wire, client, server);
    OutgoingCall call;  // in version 2 the first call is limited to 1024 bytes
    call_once(call, {}, {});
    a->qp.log.clear();
    b->qp.log.clear();
  }
  void call_once(OutgoingCall& call, const std::vector<Item>& arguments,
                 const std::vector<Item>& results) {
    call.max_reply = stream_length(results);
    for (const ResultRoom& room : call.results) {
      for (const MemorySpan& span : room.spans)
        call.max_reply -= std::min<uint64_t>(call.max_reply, span.length);
    }
    Pair::call_once(call, arguments, results);
  }
};

std::string way_name(const testing::TestParamInfo<Way>& way) {
  return wire_name({way.param.wire, 0}) + (way.param.lists ? "Lists" : "Segments");
}
INSTANTIATE_TEST_SUITE_P(
    Ways, ItemSegments,
    testing::Values(Way{proto::Wire::kVersion1, false}, Way{proto::Wire::kVersion1, true},
                    Way{proto::Wire::kDraft00, false}, Way{proto::Wire::kDraft00, true},
                    Way{proto::Wire::kDraft04, false}, Way{proto::Wire::kDraft04, true}),
    way_name);

// Shows: V1-RL-01, V1-PAD-01
TEST_P(ItemSegments, ArgumentsMoveInOneReadChunk) {
  connect();
  OutgoingCall call;
  for (uint32_t segments : {2u, 3u, 17u, 80u}) {
    for (uint32_t length : {5000u, 5001u, 5002u, 30003u}) {
      a->qp.log.clear();
      b->qp.log.clear();
      call_once(call, {{length, true, true, segments}, {7}}, {});
      const uint32_t binds = GetParam().lists ? 1 : segments;
      EXPECT_EQ(a->qp.count(Op::kBindKey), binds);
      EXPECT_EQ(sent_type(*a, 0), proto::MessageType::kMsg);
      EXPECT_EQ(b->qp.count(Op::kRead), GetParam().lists ? 1 : segments);
    }
  }
  EXPECT_EQ(a->engine->counters().long_calls, 0u);
}

// Two items in segments, and one that is whole, each in its own chunk.
TEST_P(ItemSegments, SeveralItemsHaveAChunkEach) {
  connect();
  OutgoingCall call;
  call_once(call, {{9001, true, true, 3}, {5}, {3000, true}, {2, true}, {7003, true, true, 5}, {9}},
            {});
  EXPECT_EQ(a->qp.count(Op::kBindKey), GetParam().lists ? 3u : 9u);
  EXPECT_EQ(sent_type(*a, 0), proto::MessageType::kMsg);
}

// More segments than a header has place for, or than the server takes: the whole call is read.
TEST_P(ItemSegments, WhatDoesNotFitTheHeaderMovesWithTheMessage) {
  connect();
  OutgoingCall call;
  call_once(call, {{60001, true, true, 300}, {7}}, {});
  EXPECT_EQ(sent_type(*a, 0),
            GetParam().lists ? proto::MessageType::kMsg : proto::MessageType::kNoMsg);
  a->qp.log.clear();
  call_once(call, {{5000, true, true, 300}, {7}}, {});
  call_once(call, {{30001, true, true, 60}, {30001, true, true, 60}}, {});
  EXPECT_EQ(a->engine->counters().calls_sent, 4u);
}

TEST_P(ItemSegments, ArgumentsInlineAndInALongCall) {
  connect();
  OutgoingCall call;
  call_once(call, {{101, true, true, 5}, {33, false, true, 3}}, {});  // inline
  EXPECT_EQ(sent_type(*a, 0), proto::MessageType::kMsg);
  EXPECT_EQ(a->qp.count(Op::kBindKey), 0u);
  call_once(call, {{203, false, true, 40}, {900}}, {});  // inline, as a copy
  call_once(call, {{50001, false, true, 5}, {2}}, {});
  call_once(call, {{50000, false, true, 3}}, {});
  call_once(call, {{50000, false, true, 70}, {3001, true, true, 7}}, {});
  call.no_ddp = true;
  call_once(call, {{30001, true, true, 4}, {9}}, {});
  call.no_ddp = false;
  call.force_long = true;
  call_once(call, {{101, true, true, 5}, {33, false, true, 3}}, {});
  EXPECT_EQ(a->engine->counters().long_calls, 5u);
}

// Client segments whose bounds lie within pieces, and pieces whose bounds lie within client
// segments. Shows: V1-WL-04
TEST_P(ItemSegments, ResultsFillTheClientsSegmentsInOrder) {
  connect();
  Buffer buffer = memory->get(65536);
  OutgoingCall call;
  for (const std::vector<uint32_t>& lengths :
       {std::vector<uint32_t>{40000}, {1, 40000}, {999, 1001, 7, 40000}}) {
    std::vector<MemorySpan> spans;
    uint32_t at = 0;
    for (uint32_t length : lengths) {
      spans.push_back({buffer.data() + at, length, buffer.region()});
      at += length + 5;
    }
    ResultRoom room{spans};
    call.results = {&room, 1};
    for (uint32_t segments : {2u, 15u, 16u, 17u, 100u}) {
      for (uint32_t length : {2000u, 40000u, 39999u}) {
        b->qp.log.clear();
        call_once(call, {}, {{length, true, true, segments}});
        const uint64_t writes = b->qp.count(Op::kWrite);
        EXPECT_LE(writes, (segments + 2 * lengths.size()) / fabric::kMaxSges + lengths.size());
        EXPECT_EQ(sent_type(*b, 0), proto::MessageType::kMsg);
      }
    }
  }
  call.results = {};
  call.release();
}

TEST_P(ItemSegments, ResultsInlineAndInAReplyChunk) {
  connect();
  OutgoingCall call;
  call_once(call, {}, {{301, true, true, 6}, {33, false, true, 3}});
  EXPECT_EQ(sent_type(*b, 0), proto::MessageType::kMsg);
  call_once(call, {}, {{303, false, true, 40}});
  call_once(call, {}, {{50001, true, true, 100}, {30001, false, true, 7}});
  EXPECT_EQ(a->engine->counters().long_replies, 1u);
}

// A result in a chunk beside one in the Reply chunk, and a placeholder for an empty one.
TEST_P(ItemSegments, ResultsInSeveralChunks) {
  connect();
  Buffer buffers[2] = {memory->get(16384), memory->get(16384)};
  MemorySpan spans[] = {buffers[0].first(16000), buffers[1].first(16000)};
  ResultRoom rooms[] = {{{&spans[0], 1}}, {{&spans[1], 1}}};
  OutgoingCall call;
  call.results = rooms;
  call_once(call, {}, {{9001, true, true, 30}, {5}, {12003, true, true, 20}});
  call_once(call, {}, {{0, true}, {5}, {12003, true, true, 20}});
  call.results = {};
  call.release();
}

// The message keeps its own list: the driver may overwrite the one that it gets.
TEST_P(ItemSegments, ACallCanBeSubmittedAgainAsItIs) {
  connect();
  b->handler = nullptr;
  OutgoingCall call;
  const std::vector<Item> items = {{20001, true, true, 9}};
  write(call.message, 0, 0, items);
  for (int i = 0; i < 2; ++i) {
    a->engine->submit(call);
    run();
    ASSERT_EQ(b->held.size(), 1u);
    ServedCall* held = std::exchange(b->held, {})[0];
    check(Decoder(held->message), items);
    write(held->reply, held->xid, 1, {});
    b->engine->reply(*held);
    run();
    EXPECT_EQ(call.status, CallStatus::kOk);
  }
}

}  // namespace
}  // namespace rrdk::engine::test
