#include "scenario_steps.h"

namespace rrdk::hostile {

Step say(Message message) {
  return [message](Stage& stage) { stage.peer->say(message.bytes(*stage.peer)); };
}

Step say_times(uint32_t count, Message message) {
  return [=](Stage& stage) {
    for (uint32_t i = 0; i < count; ++i)
      stage.peer->say(message.bytes(*stage.peer));
  };
}

Step say_slowly(uint32_t count, Message message) {
  return [=](Stage& stage) {
    for (uint32_t i = 0; i < count; ++i) {
      stage.peer->say(message.bytes(*stage.peer));
      stage.passes(3);
    }
  };
}

Step say_in_turn(uint32_t count, Message message) {
  return [=](Stage& stage) {
    Peer& peer = *stage.peer;
    for (uint32_t i = 0; i < count && !peer.closed(); ++i) {
      const size_t before = peer.heard.size();
      peer.say(message.bytes(peer));
      if (!stage.until("it is answered",
                       [&] { return peer.heard.size() > before || peer.closed(); }))
        return;
    }
  };
}

Step hear(size_t count) {
  return [count](Stage& stage) {
    stage.until("the victim says something",
                [&] { return stage.peer->heard.size() >= count || stage.peer->closed(); });
  };
}

Step gone() {
  return [](Stage& stage) {
    stage.until("the victim ends the connection", [&] { return stage.peer->closed(); });
  };
}

Step hang_up() {
  return [](Stage& stage) { stage.peer->hang_up(); };
}

Step say_invalidating(Message message, size_t n, size_t word) {
  return [=](Stage& stage) {
    stage.peer->say(message.bytes(*stage.peer), word_at(stage.peer->heard_message(n), word));
  };
}

Step say_invalidating(Message message, uint32_t key) {
  return [=](Stage& stage) { stage.peer->say(message.bytes(*stage.peer), key); };
}

namespace {

void access(Stage& stage, fabric::Op op, size_t n, size_t word, const Bytes& bytes, uint32_t skip,
            fabric::WcStatus outcome) {
  const Bytes& heard = stage.peer->heard_message(n);
  uint64_t address = uint64_t{word_at(heard, word + 2)} << 32 | word_at(heard, word + 3);
  stage.peer->access(op, word_at(heard, word), address + skip, bytes);
  stage.until("the access is done", [&] { return stage.peer->last_access().has_value(); });
  using fabric::WcStatus;
  const bool silent = op == fabric::Op::kWrite && !stage.peer->can().acknowledges;
  // The rest of a long message is flushed when the refusal comes.
  if (silent && outcome != WcStatus::kSuccess && stage.peer->last_access() == WcStatus::kFlushed)
    return;
  EXPECT_STREQ(to_string(*stage.peer->last_access()),
               to_string(silent ? WcStatus::kSuccess : outcome));
}

}  // namespace

Step write_to(size_t n, size_t word, Message message, uint32_t skip, fabric::WcStatus outcome) {
  return [=](Stage& stage) {
    access(stage, fabric::Op::kWrite, n, word, message.bytes(*stage.peer), skip, outcome);
  };
}

Step access_segment(fabric::Op op, size_t n, size_t word, uint32_t length, uint32_t skip,
                    fabric::WcStatus outcome) {
  return [=](Stage& stage) {
    access(stage, op, n, word, Bytes(length, std::byte{0x33}), skip, outcome);
  };
}

Step refused_accesses(uint64_t count) {
  return [count](Stage& stage) {
    if (stage.peer->can().counts_causes) {
      EXPECT_EQ(stage.refused_accesses(), count);
    }
  };
}

Step pause(uint32_t passes) {
  return [passes](Stage& stage) { stage.passes(passes); };
}

Step expose(Message message) {
  return [message](Stage& stage) { stage.peer->expose_request(message.bytes(*stage.peer)); };
}

Step with_ally() {
  return [](Stage& stage) {
    stage.peer->connect_ally();
    stage.until("the second connection is there", [&] { return stage.peer->ally_ready(); });
  };
}

Step revoke(Peer::Memory which) {
  return [which](Stage& stage) { stage.peer->revoke(which); };
}

Step written(uint32_t skip, uint64_t offset, uint32_t length) {
  return [=](Stage& stage) {
    const std::byte* bytes = stage.peer->bytes(Peer::kWritable);
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < Peer::kBytes; ++i) {
      bool inside = i >= skip && i - skip < length;
      wrong += bytes[i] != (inside ? loopback::pattern(offset + i - skip) : std::byte{0x5a});
    }
    EXPECT_EQ(wrong, 0u) << "bytes of the peer's memory";
  };
}

Step untouched() {
  return written(0, 0, 0);
}

}  // namespace rrdk::hostile
