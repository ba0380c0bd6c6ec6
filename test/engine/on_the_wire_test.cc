// What an engine puts on the wire, rule by rule: every Send, every segment, every RDMA operation of
// both ends.
#include <set>

#include "pair.h"
#include "proto/codec.h"
#include "script.h"

namespace rrdk::engine::test {
namespace {

using fabric::Op;
using fabric::Rights;
using proto::MessageType;
using proto::ReadChunk;
using proto::Segment;

struct ReadEntry {
  uint32_t position;
  Segment segment;
};

// One Send, as its receiver decodes it.
struct Sent {
  proto::Header header;
  std::vector<ReadEntry> reads;  // in the order of the wire: the decoder sorts them
  Bytes stream;                  // behind the header
  uint32_t length = 0;
};

// Version 1 only.
std::vector<ReadEntry> read_list(const Bytes& message) {
  auto word_at = [&](size_t at) { return xdr::load_u32(&message[at]); };
  std::vector<ReadEntry> entries;
  for (size_t at = 16; word_at(at) == 1; at += 24)
    entries.push_back({word_at(at + 4),
                       {.handle = word_at(at + 8),
                        .length = word_at(at + 12),
                        .offset = xdr::load_u64(&message[at + 16])}});
  return entries;
}

bool is_send(const fabric::SendWr& wr) {
  return wr.op == Op::kSend || wr.op == Op::kSendInvalidate;
}

class OnTheWire : public Pair {
 protected:
  // Keeps a copy of the Sends; their buffers are used again.
  struct Tap final : RemoteSide {
    Tap(RemoteSide& to_in, proto::Direction role_in) : to(to_in), role(role_in) {}
    std::byte* access(uint32_t key, uint64_t address, uint32_t length, Rights rights) override {
      return to.access(key, address, length, rights);
    }
    bool receive(const Bytes& message, std::optional<uint32_t> invalidate) override {
      auto one = std::make_unique<Sent>();
      proto::Decoded decoded = proto::decode(message, role, proto::Limits{}, one->header);
      EXPECT_EQ(decoded.verdict, proto::Verdict::kOk) << to_string(decoded.verdict);
      if (one->header.type != MessageType::kError)
        one->reads = read_list(message);
      EXPECT_TRUE(std::ranges::is_sorted(one->reads, {}, &ReadEntry::position));
      one->stream.assign(message.begin() + decoded.header_length, message.end());
      one->length = static_cast<uint32_t>(message.size());
      sent.push_back(std::move(one));
      return to.receive(message, invalidate);
    }
    RemoteSide& to;
    proto::Direction role;
    std::vector<std::unique_ptr<Sent>> sent;
  };

  void connect(ConnectionOptions client = {}, ConnectionOptions server = {}) {
    Pair::connect(client, server);
    calls_tap = std::make_unique<Tap>(b->qp, proto::Direction::kCall);
    replies_tap = std::make_unique<Tap>(a->qp, proto::Direction::kReply);
    a->qp.remote = calls_tap.get();
    b->qp.remote = replies_tap.get();
  }
  const Sent& last_call() const { return *calls_tap->sent.back(); }
  const Sent& last_reply() const { return *replies_tap->sent.back(); }

  void call_once(OutgoingCall& call, const std::vector<Item>& arguments,
                 const std::vector<Item>& results, uint64_t max_reply = 0) {
    call.max_reply = max_reply != 0 ? max_reply : stream_length(results);
    Pair::call_once(call, arguments, results);
  }
  // A mixture of everything that a connection carries.
  void everything() {
    OutgoingCall call;
    Buffer room = memory->get(5000);
    MemorySpan span = room.first(5000);
    ResultRoom rooms[] = {{{&span, 1}}};
    call_once(call, {}, {});
    call_once(call, {{5000, true}, {7}}, {{9}});
    call_once(call, {{20000}, {3001, true}}, {{20001}});
    call.results = rooms;
    call_once(call, {{5, true}}, {{4999, true}, {6000}}, 7000);
    call.results = {};
    call.release();
  }

  std::unique_ptr<Tap> calls_tap;
  std::unique_ptr<Tap> replies_tap;
};

// Replies: inline, with results written beside them, and long.
// Shows: V1-RL-14, V1-RL-15, V1-LONG-12, V1-MEM-13, V1-DONE-05, V1-DONE-08, V1-DONE-09, EXP-02
TEST_F(OnTheWire, AResponderExposesNoMemoryAndRepliesHaveNoReadList) {
  connect();
  everything();
  EXPECT_EQ(b->qp.count(Op::kBindKey), 0u);
  EXPECT_TRUE(b->qp.used_keys.empty());
  std::set<MessageType> types;
  for (const auto& sent : replies_tap->sent) {
    EXPECT_EQ(sent->header.lists.num_reads, 0u);
    types.insert(sent->header.type);
  }
  EXPECT_EQ(types, (std::set{MessageType::kMsg, MessageType::kNoMsg}));
  // One Send for each call and one for each reply: replies are not acknowledged.
  EXPECT_EQ(calls_tap->sent.size(), 4u);
  EXPECT_EQ(replies_tap->sent.size(), 4u);
}

// Shows: V1-HDR-21, V1-MEM-03, SEC-15
TEST_F(OnTheWire, HeadersTravelInRegisteredSends) {
  connect();
  everything();
  std::vector<MemorySpan> headers;
  for (const End* end : {a.get(), b.get()}) {
    for (const fabric::SendWr& wr : end->qp.log) {
      if (is_send(wr))
        headers.push_back({wr.sges[0].data, proto::kMinHeader, wr.sges[0].region});
    }
  }
  auto overlaps = [](const MemorySpan& one, const MemorySpan& other) {
    return one.data < other.data + other.length && other.data < one.data + one.length;
  };
  for (const End* end : {a.get(), b.get()}) {
    for (const fabric::SendWr& wr : end->qp.log) {
      if (wr.op == Op::kInvalidateKey)
        continue;
      for (const MemorySpan& sge : wr.spans()) {
        EXPECT_TRUE(memory->contains(sge));
        if (wr.op == Op::kBindKey) {
          for (const MemorySpan& header : headers)
            EXPECT_FALSE(overlaps(sge, header)) << "a header's memory was exposed";
        }
      }
    }
  }
}

// Shows: V1-LONG-07, V1-INLINE-11, EXP-06
TEST_F(OnTheWire, PositionsTellLongCallsFromInlineOnes) {
  connect();
  OutgoingCall call;
  call_once(call, {{5000, true}, {900, false, true}}, {});
  EXPECT_EQ(last_call().header.type, MessageType::kMsg);
  ASSERT_EQ(last_call().header.lists.num_reads, 1u);
  EXPECT_EQ(last_call().header.lists.reads[0].position, 16u);
  call_once(call, {{9000}, {5000, true}}, {});
  EXPECT_EQ(last_call().header.type, MessageType::kNoMsg);
  const proto::ChunkLists& lists = last_call().header.lists;
  ASSERT_EQ(lists.num_reads, 2u);
  EXPECT_EQ(lists.reads[0].position, 0u);
  EXPECT_EQ(lists.reads[1].position, 12u + 4 + 9000 + 4);
  EXPECT_TRUE(last_call().stream.empty());
}

// Shows: V1-LONG-10, EXP-20
TEST_F(OnTheWire, ALongCallCarriesIneligibleDataAndIsCounted) {
  connect();
  OutgoingCall call;
  call_once(call, {{30000}, {30001, false, true}}, {{20000}});
  EXPECT_EQ(last_call().header.lists.num_reads, 1u);
  EXPECT_EQ(a->engine->counters().long_calls, 1u);
  EXPECT_EQ(b->engine->counters().long_calls, 1u);
  EXPECT_EQ(a->engine->counters().long_replies, 1u);
  EXPECT_EQ(b->engine->counters().long_replies, 1u);
}

// Its segments are the message's own runs, unless a pad lies between these, or they are short.
// Shows: V1-PAD-03
TEST_F(OnTheWire, ALongCallIsReadOutOfTheMessageItself) {
  connect();
  for (const bool has_pad : {false, true}) {
    OutgoingCall call;
    call_once(call, {{30000}, {has_pad ? 30001u : 30000u, false, true}}, {});
    std::span<const Piece> pieces = call.message.pieces();
    const Sent& sent = last_call();
    ASSERT_FALSE(sent.reads.empty());
    bool is_itself = sent.reads.size() == pieces.size();
    for (size_t i = 0; is_itself && i < pieces.size(); ++i)
      is_itself =
          sent.reads[i].segment.offset == reinterpret_cast<uint64_t>(pieces[i].bytes.data) &&
          sent.reads[i].segment.length == pieces[i].bytes.length;
    EXPECT_EQ(is_itself, !has_pad);
  }
  OutgoingCall call;
  call.force_long = true;
  call_once(call, {{1000}, {1000, false, true}}, {});
  EXPECT_EQ(last_call().reads.size(), 1u);
}

// Shows: V1-RC-04, V1-WL-20, EXP-34
TEST_F(OnTheWire, MessagesThatFitInlineAreSentInline) {
  connect();
  OutgoingCall call;
  call_once(call, {}, {{100}}, 9000);
  EXPECT_TRUE(last_call().header.lists.has_reply);
  EXPECT_EQ(last_reply().header.type, MessageType::kMsg);
  call_once(call, {}, {{500, true}});
  EXPECT_EQ(last_call().header.lists.num_writes, 0u);
  EXPECT_EQ(last_reply().header.type, MessageType::kMsg);
  EXPECT_EQ(b->qp.count(Op::kWrite), 0u);
}

// Shows: V1-WL-01, EXP-12
TEST_F(OnTheWire, EligibleResultsComeWithAndWithoutAWriteList) {
  connect();
  Buffer buffers[2] = {memory->get(3000), memory->get(3000)};
  MemorySpan spans[] = {buffers[0].first(3000), buffers[1].first(3000)};
  ResultRoom rooms[] = {{{&spans[0], 1}}, {{&spans[1], 1}}};
  OutgoingCall call;
  // No result buffers: as a long reply, or inline.
  call_once(call, {}, {{3000, true}, {2000, true}});
  // A union whose arm has two eligible items, one item or no items: the k-th item has the k-th
  // chunk.
  call.results = rooms;
  for (uint32_t present : {2u, 1u, 0u}) {
    std::vector<Item> items(present, Item{2999, true});
    call_once(call, {}, items, 100);
    EXPECT_EQ(last_call().header.lists.num_writes, 2u);
    ASSERT_EQ(last_reply().header.lists.num_writes, 2u);
    for (uint32_t k = 0; k != 2; ++k) {
      const proto::ChunkLists& lists = last_reply().header.lists;
      EXPECT_EQ(lists.of(lists.writes[k])[0].length, k < present ? 2999u : 0u);
    }
  }
}

// Shows: V1-RC-03
TEST_F(OnTheWire, NoReplyChunkNoLongReply) {
  connect();
  serve({}, {{6000}});
  OutgoingCall call;
  call.max_reply = 500;
  write(call.message, 0, 0, {});
  a->engine->submit(call);
  run();
  EXPECT_EQ(call.status, CallStatus::kChunkError);
  EXPECT_EQ(last_reply().header.type, MessageType::kError);
}

// Shows: V1-RC-17
TEST_F(OnTheWire, TheReplyChunkIsAsLargeAsTheCallersBound) {
  connect();
  OutgoingCall call;
  for (uint64_t bound : {5000u, 70000u, 200001u}) {
    call_once(call, {}, {{10}}, bound);
    const proto::ChunkLists& lists = last_call().header.lists;
    ASSERT_TRUE(lists.has_reply);
    uint64_t offered = 0;
    for (const Segment& segment : lists.of(lists.reply))
      offered += segment.length;
    EXPECT_EQ(offered, bound + xdr_pad(bound));
  }
}

// One entry for each item, in the stream's order, with all its bytes and no others. Inline calls,
// and long calls, whose own chunk comes first.
// Shows: V1-CHUNK-07, EXP-05
TEST_F(OnTheWire, EachChunkIsOneWholeItemInTheStreamsOrder) {
  connect();
  b->handler = nullptr;
  const std::vector<std::vector<Item>> calls = {
      {{3000, true}, {4001, true}, {7}, {5002, true}, {1}},
      {{9000}, {3001, true}, {900, false, true}, {60000, true}, {70}, {4000, true}}};
  for (const std::vector<Item>& items : calls) {
    OutgoingCall call;
    write(call.message, 0, 0, items);
    a->engine->submit(call);
    run();
    ASSERT_EQ(b->held.size(), 1u);
    std::vector<ReadEntry> entries = last_call().reads;
    std::erase_if(entries, [](const ReadEntry& entry) { return entry.position == 0; });
    size_t next = 0;
    uint32_t at = 12;
    for (uint32_t i = 0; i != items.size(); ++i) {
      const uint32_t length = items[i].length;
      if (items[i].eligible) {
        ASSERT_LT(next, entries.size());
        const auto& [position, segment] = entries[next++];
        EXPECT_EQ(position, at + 4);
        ASSERT_EQ(segment.length, length);
        const std::byte* bytes =
            a->qp.access(segment.handle, segment.offset, length, Rights::kRemoteRead);
        ASSERT_NE(bytes, nullptr);
        EXPECT_EQ(Bytes(bytes, bytes + length), pattern(length, i));
      }
      at += 4 + length + xdr_pad(length);
    }
    EXPECT_EQ(next, entries.size());
    ServedCall* held = std::exchange(b->held, {})[0];
    write(held->reply, held->xid, 1, {});
    b->engine->reply(*held);
    run();
    EXPECT_EQ(call.status, CallStatus::kOk);
  }
}

// Shows: V1-CHUNK-08
TEST_F(OnTheWire, ACountStaysInTheStream) {
  connect();
  OutgoingCall call;
  call_once(call, {{5001, true}, {8}}, {});
  const proto::ChunkLists& lists = last_call().header.lists;
  ASSERT_EQ(lists.num_reads, 1u);
  EXPECT_EQ(lists.of(lists.reads[0])[0].length, 5001u);
  ASSERT_EQ(last_call().stream.size(), 12u + 4 + 4 + 8);
  EXPECT_EQ(xdr::load_u32(&last_call().stream[12]), 5001u);
}

// Shows: V1-PAD-03
TEST_F(OnTheWire, NoSegmentHoldsOnlyAPad) {
  connect();
  OutgoingCall call;
  // Sizes around the largest buffer, where only a pad could be left for another segment.
  for (uint32_t more = 0; more != 9; ++more) {
    call_once(call, {{65536 - 20 + more}, {5, true}, {1}}, {});
    call_once(call, {{5000 + more, true}}, {});
    call_once(call, {{65536 - 20 + more, false, true}}, {});
  }
  for (const auto& sent : calls_tap->sent) {
    const proto::ChunkLists& lists = sent->header.lists;
    for (uint32_t i = 0; i != lists.num_reads; ++i) {
      for (const Segment& segment : lists.of(lists.reads[i]))
        EXPECT_GE(segment.length, 4u);
    }
  }
}

// Shows: V1-PAD-08
TEST_F(OnTheWire, PadsAreCountedFromTheStartOfTheStream) {
  connect();
  Buffer buffer = memory->get(4096);
  MemorySpan spans[] = {buffer.first(100), {buffer.data() + 100, 100, buffer.span().region}};
  ResultRoom one{{spans, 1}};
  ResultRoom two{{spans, 2}};
  OutgoingCall call;
  call_once(call, {{5}, {3}, {1}}, {});
  Bytes plain(last_call().stream.begin() + 4, last_call().stream.end());
  std::set<uint32_t> header_lengths;
  for (const ResultRoom* room : {&one, &two}) {
    call.results = {room, 1};
    call_once(call, {{5}, {3}, {1}}, {});
    header_lengths.insert(last_call().length - static_cast<uint32_t>(last_call().stream.size()));
    EXPECT_EQ(Bytes(last_call().stream.begin() + 4, last_call().stream.end()), plain);
  }
  EXPECT_EQ(header_lengths, (std::set<uint32_t>{52, 68}));
}

// Shows: V1-INLINE-09
TEST_F(OnTheWire, TheThresholdStaysWhatItWas) {
  connect();
  auto largest_inline = [&] {
    OutgoingCall call;
    call_once(call, {{4096 - 28 - 16}}, {});
    EXPECT_EQ(last_call().header.type, MessageType::kMsg);
    EXPECT_EQ(last_call().length, 4096u);
    call_once(call, {{4096 - 28 - 12}}, {});
    EXPECT_EQ(last_call().header.type, MessageType::kNoMsg);
  };
  largest_inline();
  OutgoingCall call;
  for (int i = 0; i != 10000; ++i)
    call_once(call, {}, {});
  largest_inline();
}

// Shows: V1-RL-11
TEST_F(OnTheWire, SourcesAreKeptUntilTheReply) {
  connect();
  // The server reads into its own memory, so memory that is missing here is the client's.
  std::unique_ptr<Memory> servers = std::move(*Memory::create({.classes = {{4096, 64}, {16384, 8}},
                                                               .hugepages = HugepagePolicy::kNever,
                                                               .numa_nodes = {},
                                                               .prefault = false}));
  CallPool servers_calls(*servers, 16);
  b->disconnect();
  b = std::make_unique<End>(ConnectionOptions{.role = Role::kResponder}, *servers, servers_calls);
  calls_tap = std::make_unique<Tap>(b->qp, proto::Direction::kCall);
  a->qp.remote = calls_tap.get();
  b->qp.remote = replies_tap.get();
  b->engine->on_established(a->engine->private_data(), 16);
  size_t before = memory->audit_fitting(5000).available;
  OutgoingCall call;
  write(call.message, 0, 0, {{5000, true}});
  a->engine->submit(call);
  run();
  ASSERT_EQ(b->held.size(), 1u);
  EXPECT_EQ(a->qp.send_completions.size(), 0u) << "its Send is done, too";
  EXPECT_EQ(memory->audit_fitting(5000).available, before - 1);
  EXPECT_EQ(a->qp.bound_keys(), 1u);
  ServedCall* held = std::exchange(b->held, {})[0];
  write(held->reply, held->xid, 1, {});
  b->engine->reply(*held);
  run();
  ASSERT_EQ(a->ended.size(), 1u);
  EXPECT_EQ(a->qp.bound_keys(), 0u);
  call.release();
  EXPECT_EQ(memory->audit_fitting(5000).available, before);
  finish();
}

// A responder that writes the pad behind a result, one that leaves it, and one that fills it up.
// Shows: V1-PAD-13, EXP-10
TEST_F(OnTheWire, RoomForPadsIsOfferedOnlyOnRequest) {
  for (bool pad : {false, true}) {
    ConnectionOptions options;
    options.pad_write_chunks = pad;
    connect(options);
    Buffer buffer = memory->get(4096);
    std::fill_n(buffer.data(), 4096, std::byte{0x5a});
    MemorySpan spans[] = {buffer.first(101), {buffer.data() + 104, 8, buffer.span().region}};
    ResultRoom rooms[] = {{{&spans[0], 1}}, {{&spans[1], 1}}};
    OutgoingCall call;
    call.results = rooms;
    call_once(call, {}, {{101, true}, {8, true}});
    const proto::ChunkLists& lists = last_call().header.lists;
    ASSERT_EQ(lists.num_writes, 2u);
    std::span<const Segment> first = lists.of(lists.writes[0]);
    ASSERT_EQ(first.size(), pad ? 2u : 1u);
    EXPECT_EQ(first[0].length, 101u);
    EXPECT_EQ(lists.of(lists.writes[1]).size(), 1u) << "its room needs no pad";
    if (pad) {
      EXPECT_EQ(first[1].length, 3u);
      auto at = reinterpret_cast<const std::byte*>(first[1].offset);
      EXPECT_TRUE(at < buffer.data() || at >= buffer.data() + 4096);
    }
    for (uint32_t i : {101u, 102u, 103u, 112u})
      EXPECT_EQ(buffer.data()[i], std::byte{0x5a});
    call.release();
    finish();
  }
}

// Shows: EXP-10
TEST_F(OnTheWire, PadsThatAResponderWritesAreNoData) {
  ConnectionOptions options{.role = Role::kRequester, .pad_write_chunks = true};
  End end(options, *memory, *pool);
  Script responder(end);
  end.engine->on_established({true, 4096, 4096}, 16);
  Buffer buffer = memory->get(4096);
  MemorySpan span = buffer.first(5);
  ResultRoom room{{&span, 1}};
  OutgoingCall call;
  call.results = {&room, 1};
  for (uint32_t pad_length : {0u, 3u}) {
    write(call.message, 0, 0, {});
    end.engine->submit(call);
    end.run();
    Bytes sent = responder.take().at(0);
    // One Write chunk of two segments, which come back with the lengths that were written.
    constexpr size_t kFirst = 7, kSecond = 11;
    ASSERT_EQ(word(sent, 6), 2u);
    ASSERT_EQ(word(sent, kSecond + 1), 3u);
    Wire reply{word(sent, 0), 1, 8, 0, 0, 1, 2};
    reply.add({word(sent, kFirst), 5, word(sent, kFirst + 2), word(sent, kFirst + 3)});
    reply.add({word(sent, kSecond), pad_length, word(sent, kSecond + 2), word(sent, kSecond + 3)});
    reply.add({0, 0, word(sent, 0), 1, 0, 5});
    std::byte* pad = end.qp.access(
        word(sent, kSecond), uint64_t{word(sent, kSecond + 2)} << 32 | word(sent, kSecond + 3),
        pad_length, Rights::kRemoteWrite);
    ASSERT_NE(pad, nullptr);
    std::fill_n(pad, pad_length, std::byte{0xee});
    responder.say(reply);
    ASSERT_EQ(call.status, CallStatus::kOk) << to_string(call.status);
    Decoder results(call.reply, call.placed);
    for (int i = 0; i != 3; ++i)
      results.get_u32();
    EXPECT_EQ(results.get_item(100).size(), 5u);
    EXPECT_TRUE(results.at_end());
  }
  // Bytes that a responder wrote there are never sent as one of our pads.
  write(call.message, 0, 0, {{5, false, true}});
  call.results = {};
  end.engine->submit(call);
  end.run();
  Bytes sent = responder.take().at(0);
  EXPECT_EQ(word(sent, sent.size() / 4 - 1) & 0xffffff, 0u);
  end.disconnect();
}

// Shows: EXP-32
TEST_F(OnTheWire, NoChunkHasSeveralSegmentsForPeersThatTakeOne) {
  ConnectionOptions options;
  options.one_segment = true;
  connect(options);
  OutgoingCall call;
  call_once(call, {{40000}, {5000, true}}, {{30000}});
  for (const auto& sent : calls_tap->sent) {
    const proto::ChunkLists& lists = sent->header.lists;
    for (uint32_t i = 0; i != lists.num_reads; ++i)
      EXPECT_EQ(lists.reads[i].count, 1u);
    EXPECT_TRUE(!lists.has_reply || lists.reply.count == 1);
  }
  auto refused = [&](const std::vector<Item>& arguments, uint64_t max_reply) {
    write(call.message, 0, 0, arguments);
    call.max_reply = max_reply;
    a->engine->submit(call);
    EXPECT_EQ(call.status, CallStatus::kTooLarge);
  };
  refused({{70000}}, 100);  // above the largest buffer: two segments
  refused({}, 70000);
  Buffer buffer = memory->get(4096);
  MemorySpan spans[] = {buffer.first(100), {buffer.data() + 100, 100, buffer.span().region}};
  ResultRoom room{spans};
  call.results = {&room, 1};
  refused({}, 100);
  a->ended.clear();
}

// Shows: EXP-33
TEST_F(OnTheWire, ACallThatMayNotBeLongIsNotSent) {
  connect();
  OutgoingCall call;
  call.only_short = true;
  call_once(call, {{5000, true}}, {{9000}});  // it does not interpret chunks
  write(call.message, 0, 0, {{5000}});
  a->engine->submit(call);
  EXPECT_EQ(call.status, CallStatus::kTooLarge);
  EXPECT_EQ(a->ended.size(), 1u);
  a->ended.clear();
  EXPECT_EQ(calls_tap->sent.size(), 1u);
}

// Shows: SEC-04
TEST_F(OnTheWire, ATransformedBodyMovesAsAWhole) {
  connect();
  OutgoingCall call;
  call.no_ddp = true;
  call_once(call, {{5000, true}, {3000, true}}, {{9000, true}});
  EXPECT_EQ(last_call().header.type, MessageType::kNoMsg);
  ASSERT_EQ(last_call().header.lists.num_reads, 1u);
  EXPECT_EQ(last_call().header.lists.reads[0].position, 0u);
  EXPECT_EQ(last_call().header.lists.num_writes, 0u);
  EXPECT_EQ(last_reply().header.type, MessageType::kNoMsg);
  call_once(call, {{1000, true}}, {{1000, true}});
  EXPECT_EQ(last_call().header.type, MessageType::kMsg);
  EXPECT_EQ(last_call().header.lists.num_reads, 0u);
}

}  // namespace
}  // namespace rrdk::engine::test
