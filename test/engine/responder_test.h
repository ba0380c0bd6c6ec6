// A responder under test, and a script that plays its requester.
#pragma once

#include "scripted_test.h"

namespace rrdk::engine::test {

class ResponderTest : public ScriptedTest {
 protected:
  using ScriptedTest::ScriptedTest;

  void connect(ConnectionOptions options = {}, proto::PrivateData peer = {true, 4096, 4096},
               uint32_t reads = 16) {
    options.role = Role::kResponder;
    begin(options, peer, reads);
    end->handler = [this](ServedCall& call) { echo(call); };
  }
  // Answers with the call's bytes behind its first two words.
  void echo(ServedCall& call) {
    got = flatten(call.message);
    Encoder e(call.reply, *memory, call.inline_size(), call.max_reply());
    e.put_u32(call.xid);
    e.put_u32(1);
    e.put_fixed(std::span<const std::byte>(got).subspan(8));
    e.finish();
    end->engine->reply(call);
  }
  // Answers with eligible results of these sizes, each after its count.
  void results(std::vector<uint32_t> sizes, uint32_t plain = 0) {
    end->handler = [this, sizes, plain](ServedCall& call) {
      Encoder e(call.reply, *memory, call.inline_size(), call.max_reply());
      e.put_u32(call.xid);
      e.put_u32(1);
      for (uint32_t size : sizes) {
        Buffer buffer = memory->get(std::max(size, 1u));
        Bytes bytes = pattern(size, size);
        std::copy(bytes.begin(), bytes.end(), buffer.data());
        e.put_item(std::move(buffer), size, Ddp::kEligible);
      }
      e.put_fixed(Bytes(plain));
      e.finish();
      end->engine->reply(call);
    };
  }
  Bytes only_answer() {
    std::vector<Bytes> sent = peer_side->take();
    EXPECT_EQ(sent.size(), 1u);
    return sent.empty() ? Bytes(64) : sent[0];
  }
  void expect_err_chunk(const Bytes& message, uint32_t xid) {
    size_t reads = end->qp.count(Op::kRead);
    uint64_t calls = end->calls;
    peer_side->say(message);
    Bytes answer = only_answer();
    EXPECT_EQ(answer.size(), 20u);
    EXPECT_EQ(word(answer, 0), xid);
    EXPECT_EQ(word(answer, 1), 1u);
    EXPECT_GE(word(answer, 2), 1u);
    EXPECT_EQ(word(answer, 3), kError);
    EXPECT_EQ(word(answer, 4), kErrChunk);
    EXPECT_EQ(end->qp.log.back().op, Op::kSend);
    EXPECT_EQ(end->qp.count(Op::kRead), reads);
    EXPECT_EQ(end->calls, calls);
  }
  // Sends a message of version 2 that is answered by an error without arguments.
  void expect_error(const Bytes& message, uint32_t code) {
    peer_side->say(message);
    Bytes answer = only_answer();
    ASSERT_EQ(answer.size(), 20u);
    EXPECT_EQ(word(answer, 0), word(message, 0));
    EXPECT_EQ(word(answer, 1), 2u);
    EXPECT_GE(word(answer, 2), 1u);
    EXPECT_EQ(word(answer, 3), kError);
    EXPECT_EQ(word(answer, 4), code);
  }
  // The connection still serves.
  void expect_alive() {
    peer_side->say(Wire{99, 1, 4, kMsg, 0, 0, 0, 99, 0, 7});
    Bytes answer = only_answer();
    EXPECT_EQ(answer.size(), 40u);
    EXPECT_EQ(word(answer, 3), kMsg);
    EXPECT_EQ(word(answer, 9), 7u);
    EXPECT_FALSE(end->engine->wants_disconnect());
  }
  void TearDown() override {
    if (end != nullptr) {
      end->disconnect();
      for (ServedCall* call : std::exchange(end->held, {}))
        end->engine->reply(*call);
      EXPECT_TRUE(end->qp.used_keys.empty());  // V1-MEM-13
    }
    ScriptedTest::TearDown();
  }

  Bytes got;
};

}  // namespace rrdk::engine::test
