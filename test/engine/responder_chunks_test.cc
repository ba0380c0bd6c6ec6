// The responder against a scripted requester: what it reads and writes, and what its lists contain.
#include "responder_test.h"

namespace rrdk::engine::test {
namespace {

// Shows: V1-PAD-04, V1-PAD-05, V1-PAD-06, V1-RL-02, V1-RL-07, V1-CHUNK-13, V1-LONG-03
TEST_F(ResponderTest, ReadChunksInAllTheirForms) {
  connect();
  Bytes bytes = pattern(16, 3);
  std::fill(bytes.begin() + 5, bytes.begin() + 8, std::byte{0});
  uint32_t key = peer_side->expose(bytes, Rights::kRemoteRead);
  Bytes expected = Wire{7, 0, 5};
  expected.insert(expected.end(), bytes.begin(), bytes.begin() + 8);
  expected.insert(expected.end(), {std::byte{0}, std::byte{0}, std::byte{0}, std::byte{9}});
  std::vector<std::vector<uint32_t>> forms = {{5}, {8}, {5, 3}, {1, 0, 4}, {2, 2, 1}};
  for (const std::vector<uint32_t>& form : forms) {
    Wire wire{7, 1, 4, kMsg};
    uint32_t skip = 0;
    size_t reads = end->qp.count(Op::kRead);
    for (uint32_t length : form) {
      peer_side->segment(wire.add({1, 12}), key, length, skip);
      skip += length;
    }
    peer_side->say(wire.add({0, 0, 0, 7, 0, 5, 9}));
    only_answer();
    EXPECT_EQ(got, expected);
    EXPECT_EQ(end->qp.count(Op::kRead) - reads,
              form.size() - static_cast<size_t>(std::count(form.begin(), form.end(), 0u)));
  }
  // Positions in any order: 24, 12, 24.
  Wire wire{7, 1, 4, kMsg};
  peer_side->segment(wire.add({1, 24}), key, 2, 8);
  peer_side->segment(wire.add({1, 12}), key, 8, 0);
  peer_side->segment(wire.add({1, 24}), key, 2, 10);
  peer_side->say(wire.add({0, 0, 0, 7, 0, 5, 4}));
  only_answer();
  Bytes sorted = Wire{7, 0, 5};
  sorted.insert(sorted.end(), bytes.begin(), bytes.begin() + 8);
  sorted.insert(sorted.end(), {std::byte{0}, std::byte{0}, std::byte{0}, std::byte{4}});
  sorted.insert(sorted.end(), bytes.begin() + 8, bytes.begin() + 12);
  EXPECT_EQ(got, sorted);
}

// The driver reads the first pieces when it is asked to; the others are posted.
TEST_F(ResponderTest, ReadsNotDoneAtOnceArePosted) {
  connect({.reads_at_once = true});
  const Bytes bytes = pattern(16, 3);
  const uint32_t key = peer_side->expose(bytes, Rights::kRemoteRead);
  Bytes expected = Wire{7, 0, 16};
  expected.insert(expected.end(), bytes.begin(), bytes.end());
  for (const uint32_t at_once : {0u, 1u, 2u, 3u}) {
    const size_t posted = end->qp.count(Op::kRead);
    const uint64_t read = counters().rdma_read_bytes;
    end->qp.reads_now = at_once;
    Wire wire{7, 1, 4, kMsg};
    peer_side->segment(wire.add({1, 12}), key, 7, 0);
    peer_side->segment(wire.add({1, 12}), key, 4, 7);
    peer_side->segment(wire.add({1, 12}), key, 5, 11);
    peer_side->say(wire.add({0, 0, 0, 7, 0, 16}));
    only_answer();
    EXPECT_EQ(got, expected);
    EXPECT_EQ(end->qp.reads_now, 0u);
    EXPECT_EQ(end->qp.count(Op::kRead) - posted, 3 - at_once);
    EXPECT_EQ(counters().rdma_read_bytes - read, bytes.size());
  }
}

TEST_F(ResponderTest, NothingIsReadAtOnceWhereTheDeviceDoesNot) {
  connect();
  end->qp.reads_now = 1;
  const uint32_t key = peer_side->expose(pattern(16, 3), Rights::kRemoteRead);
  Wire wire{7, 1, 4, kMsg};
  peer_side->segment(wire.add({1, 12}), key, 16, 0);
  peer_side->say(wire.add({0, 0, 0, 7, 0, 16}));
  only_answer();
  EXPECT_EQ(end->qp.reads_now, 1u);
  EXPECT_EQ(end->qp.listed_posts, 0u);
}

// The peer can take a reply while the next call's chunk is read.
TEST_F(ResponderTest, AReplyIsPostedBeforeTheNextCallIsRead) {
  connect({.reads_at_once = true});
  expect_alive();  // which grants more than one credit
  results({64});
  const uint32_t from = peer_side->expose(Bytes(8, std::byte{3}), Rights::kRemoteRead);
  const uint32_t to = peer_side->expose(Bytes(256), Rights::kRemoteWrite);
  end->qp.reads_now = 2;
  for (const uint32_t xid : {7u, 8u}) {
    Wire wire{xid, 1, 4, kMsg};
    peer_side->segment(wire.add({1, 12}), from, 8, 0);
    peer_side->segment(wire.add({0, 1, 1}), to, 128, 128 * (xid - 7));
    ASSERT_TRUE(end->qp.receive(wire.add({0, 0, xid, 0, 8}), {}));
  }
  end->run();
  EXPECT_EQ(peer_side->take().size(), 2u);
  EXPECT_EQ(end->qp.reads_now, 0u);
  EXPECT_EQ(end->qp.listed_posts, 1u);
}

// Shows: V1-LONG-02, V1-LONG-15, V1-HDR-18
TEST_F(ResponderTest, ALongCallIsReadAndItsXidChecked) {
  connect();
  Bytes message = Wire{7, 0, 1, 2, 3};
  uint32_t key = peer_side->expose(message, Rights::kRemoteRead);
  for (uint32_t xid : {7u, 8u}) {
    Wire wire{xid, 1, 4, kNoMsg};
    peer_side->segment(wire.add({1, 0}), key, 8);
    peer_side->segment(wire.add({1, 0}), key, 12, 8);
    peer_side->say(wire.add({0, 0, 0, 77, 77}));  // trailing bytes are ignored
    Bytes answer = only_answer();
    EXPECT_EQ(word(answer, 3), xid == 7 ? kMsg : kError);
  }
  EXPECT_EQ(got, message);
  EXPECT_EQ(counters().refusals[Refusal::kTrailingBytes], 2u);
  EXPECT_EQ(end->calls, 1u);
  EXPECT_EQ(counters().refusals[Refusal::kXid], 1u);
}

// Shows: V1-WL-03, V1-WL-04, V1-WL-05, V1-WL-06, V1-WL-07, V1-WL-19, V1-PAD-10, V1-PAD-11,
// V1-RC-09, V1-RC-10, V1-CHUNK-06
TEST_F(ResponderTest, TheWriteListReturnsTheLengthsWritten) {
  connect();
  uint32_t key = peer_side->expose(Bytes(600, std::byte{0x5a}), Rights::kRemoteWrite);
  results({150, 5});
  Wire call{7, 1, 4, kMsg, 0, 1, 3};
  for (uint32_t i = 0; i < 3; ++i)
    peer_side->segment(call, key, 100, 100 * i);
  peer_side->segment(call.add({1, 1}), key, 8, 300);
  peer_side->segment(call.add({1, 1}), key, 8, 400);
  peer_side->segment(call.add({0, 1, 2}), key, 50, 500);
  peer_side->segment(call, key, 50, 550);
  peer_side->say(call.add({7, 0}));
  Wire reply{7, 1, 4, kMsg, 0, 1, 3};
  peer_side->segment(reply, key, 100, 0);
  peer_side->segment(reply, key, 50, 100);
  peer_side->segment(reply, key, 0, 200);
  peer_side->segment(reply.add({1, 1}), key, 5, 300);
  peer_side->segment(reply.add({1, 1}), key, 0, 400);
  peer_side->segment(reply.add({0, 1, 2}), key, 0, 500);
  peer_side->segment(reply, key, 0, 550);
  EXPECT_EQ(only_answer(), reply.add({7, 1, 150, 5}).bytes());
  const Bytes& memory_image = peer_side->at(key).bytes;
  Bytes expected(600, std::byte{0x5a});
  Bytes first = pattern(150, 150), second = pattern(5, 5);
  std::copy(first.begin(), first.end(), expected.begin());
  std::copy(second.begin(), second.end(), expected.begin() + 300);
  EXPECT_EQ(memory_image, expected);
}

// Shows: V1-RC-06, V1-RC-12, V1-RC-16, V1-HDR-10, V1-HDR-13, V1-PAD-14
TEST_F(ResponderTest, ALongReplyFillsTheReplyChunk) {
  connect({}, {true, 4096, 1024});
  uint32_t key = peer_side->expose(Bytes(4096), Rights::kRemoteWrite);
  results({}, 1192);
  Wire call{7, 1, 4, kMsg, 0, 0, 1, 3};
  for (uint32_t i = 0; i < 3; ++i)
    peer_side->segment(call, key, 1000, 1000 * i);
  peer_side->say(call.add({7, 0}));
  Wire reply{7, 1, 4, kNoMsg, 0, 0, 1, 3};
  peer_side->segment(reply, key, 1000, 0);
  peer_side->segment(reply, key, 200, 1000);
  peer_side->segment(reply, key, 0, 2000);
  EXPECT_EQ(only_answer(), reply.bytes());
  EXPECT_EQ(word(peer_side->at(key).bytes, 0), 7u);
  // No chunk, or a chunk that is too small.
  peer_side->say(Wire{8, 1, 4, kMsg, 0, 0, 0, 8, 0});
  EXPECT_EQ(word(only_answer(), 4), kErrChunk);
  Wire small{9, 1, 4, kMsg, 0, 0, 1, 1};
  peer_side->segment(small, key, 1196);
  peer_side->say(small.add({9, 0}));
  EXPECT_EQ(word(only_answer(), 4), kErrChunk);
  // A Reply chunk without segments counts as no Reply chunk (V1-CHUNK-14).
  peer_side->say(Wire{9, 1, 4, kMsg, 0, 0, 1, 0, 9, 0});
  EXPECT_EQ(word(only_answer(), 4), kErrChunk);
}

// The buffers for one call's chunks are bounded (128): a call that needs exactly that many is
// served; a call that needs one more is refused before it takes any.
class ResponderOfSmallBuffers : public ResponderTest {
 protected:
  ResponderOfSmallBuffers() : ResponderTest({{1024, 512}, {4096, 256}}) {}
};

TEST_F(ResponderOfSmallBuffers, TheBuffersOfOneCallAreBounded) {
  constexpr uint32_t kLargest = 4096, kMost = 128;
  connect({.max_call = 4u << 20});
  Bytes bytes = pattern((kMost + 1) * kLargest, 9);
  uint32_t key = peer_side->expose(bytes, Rights::kRemoteRead);
  for (uint32_t length : {kMost * kLargest, kMost * kLargest + 4}) {
    size_t reads = end->qp.count(Op::kRead);
    Wire wire{7, 1, 4, kMsg};
    peer_side->segment(wire.add({1, 12}), key, length);
    end->handler = [&](ServedCall& call) {
      got = flatten(call.message);
      Encoder e(call.reply, *memory, call.inline_size(), call.max_reply());
      e.put_u32(call.xid);
      e.put_u32(1);
      e.finish();
      end->engine->reply(call);
    };
    got.clear();
    peer_side->say(wire.add({0, 0, 0, 7, 0, length}));
    Bytes answer = only_answer();
    if (length == kMost * kLargest) {
      EXPECT_EQ(word(answer, 3), kMsg);
      ASSERT_EQ(got.size(), 12 + length);
      EXPECT_TRUE(std::equal(got.begin() + 12, got.end(), bytes.begin()));
    } else {
      EXPECT_EQ(word(answer, 3), kError);
      EXPECT_EQ(word(answer, 4), kErrChunk);
      EXPECT_EQ(end->qp.count(Op::kRead), reads);
      EXPECT_TRUE(got.empty());
    }
  }
  end->handler = [this](ServedCall& call) { echo(call); };
  expect_alive();
}

// The largest accepted call decides how much the header's Read list may name.
TEST_F(ResponderTest, ACallOfMoreThan64MiBIsNotRefusedForItsHeader) {
  constexpr uint32_t kBytes = (64u << 20) + 4;
  connect({.max_call = 80u << 20});
  const auto say = [&](uint32_t length) {
    Wire wire{7, 1, 4, kMsg};
    peer_side->segment(wire.add({1, 12}), peer_side->expose(Bytes(64), Rights::kRemoteRead),
                       length);
    peer_side->say(wire.add({0, 0, 0, 7, 0, length}));
  };
  say(kBytes);
  EXPECT_EQ(end->engine->counters().refusals[Refusal::kTooManyBytes], 0u);
  say((80u << 20) + 4);
  EXPECT_EQ(end->engine->counters().refusals[Refusal::kTooManyBytes], 1u);
}

// Many chunks that each fill more than half a buffer: no two share a buffer, and none is split.
TEST_F(ResponderOfSmallBuffers, AnItemThatFitsABufferComesInOnePiece) {
  connect({.max_call = 4u << 20});
  constexpr uint32_t kChunks = 15;
  const uint32_t sizes[] = {2500, 1500, 4096, 4, 2000};
  Bytes bytes = pattern(4096, 5);
  uint32_t key = peer_side->expose(bytes, Rights::kRemoteRead);
  Wire wire{7, 1, 4, kMsg};
  uint32_t position = 8;
  for (uint32_t i = 0; i < kChunks; ++i) {
    position += 4;
    peer_side->segment(wire.add({1, position}), key, sizes[i % 5]);
    position += sizes[i % 5];
  }
  wire.add({0, 0, 0, 7, 0});
  for (uint32_t i = 0; i < kChunks; ++i)
    wire.add(sizes[i % 5]);
  uint32_t whole = 0;
  end->handler = [&](ServedCall& call) {
    for (const Fragment& piece : call.message)
      whole += std::ranges::find(sizes, piece.length) != std::end(sizes) && piece.length != 4;
    echo(call);
  };
  peer_side->say(wire);
  EXPECT_EQ(word(only_answer(), 3), kError);  // the echo is too long: the call was served
  EXPECT_EQ(whole, kChunks * 4 / 5);
}

// The pads of a slot's replies are zeros, even after a header that filled its space.
TEST_F(ResponderTest, ALargeHeaderDoesNotSpoilThePadsOfLaterReplies) {
  connect({}, {true, 4096, 4096});
  uint32_t key = peer_side->expose(Bytes(4096), Rights::kRemoteWrite);
  for (uint32_t segments = 1; segments <= 13; ++segments) {
    for (uint32_t extra_chunks = 0; extra_chunks <= 2; ++extra_chunks) {
      for (bool with_reply_chunk : {false, true}) {
        results({4}, 0);
        Wire call{7, 1, 4, kMsg, 0, 1, segments};
        for (uint32_t i = 0; i < segments; ++i)
          peer_side->segment(call, key, 64, 64 * i);
        for (uint32_t i = 0; i < extra_chunks; ++i)
          call.add({1, 0});
        call.add(0);
        if (with_reply_chunk)
          peer_side->segment(call.add({1, 1}), key, 64, 2048);
        else
          call.add(0);
        peer_side->say(call.add({7, 0}));
        EXPECT_EQ(word(only_answer(), 3), kMsg);
        results({5}, 0);  // inline: count, five bytes, three of pad
        peer_side->say(Wire{8, 1, 4, kMsg, 0, 0, 0, 8, 0});
        Bytes answer = only_answer();
        ASSERT_EQ(answer.size(), 28u + 8 + 4 + 8);
        EXPECT_EQ(Bytes(answer.end() - 3, answer.end()), Bytes(3))
            << segments << " segments, " << extra_chunks << " chunks, " << with_reply_chunk;
      }
    }
  }
}

// Shows: PD-26, PD-27, PD-33
TEST_F(ResponderTest, OnlyAnOnlyHandleIsInvalidated) {
  for (bool peer_allows : {true, false}) {
    connect({}, {peer_allows, 4096, 4096});
    results({});
    uint32_t key = peer_side->expose(Bytes(64), Rights::kRemoteWrite);
    Wire one{7, 1, 4, kMsg, 0, 1, 2};
    peer_side->segment(peer_side->segment(one, key, 8), key, 8).add({0, 0, 7, 0});
    peer_side->say(one);
    EXPECT_EQ(peer_side->invalidated, peer_allows ? std::optional(key) : std::nullopt);
    Wire two{7, 1, 4, kMsg, 0, 1, 2};
    peer_side->segment(two, key, 8).segment(key + 1, 8, 0).add({0, 0, 7, 0});
    peer_side->say(two);
    EXPECT_EQ(peer_side->invalidated, std::nullopt);
    end->disconnect();
    end.reset();
  }
}

}  // namespace
}  // namespace rrdk::engine::test
