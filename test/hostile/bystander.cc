#include "bystander.h"

#include <utility>

namespace rrdk::hostile {

using loopback::kBinding;
using loopback::pattern;

Bystander::Bystander(std::unique_ptr<ClientConnection> connection, Memory& memory)
    : memory_(memory), connection_(std::move(connection)) {
  loopback::open_window(*connection_);
  for (Slot& slot : slots_) {
    slot.call.emplace(*connection_);
    slot.room = memory_.get(kBulk);
  }
}

void Bystander::pump() {
  for (size_t i = 0; i < kCalls; ++i) {
    Slot& slot = slots_[i];
    if (slot.call->in_flight())
      continue;
    if (std::exchange(slot.started, false))
      verify(slot, i);
    if (!finishing_)
      start(slot, i);
  }
}

bool Bystander::finish() {
  finishing_ = true;
  pump();
  for (Slot& slot : slots_) {
    if (slot.started)
      return false;
  }
  return true;
}

// A third of the calls are inline, a third have results in a Write chunk, a third have arguments in
// a Read chunk.
void Bystander::start(Slot& slot, size_t index) {
  slot.offset = ++made_;
  slot.started = true;
  Call& call = *slot.call;
  switch (index % 3) {
    case 0: {
      Encoder& args = call.begin(kBinding, loopback::kEcho);
      args.put_u32(8);
      args.put_u64(slot.offset);
      break;
    }
    case 1: {
      Encoder& args = call.begin(kBinding, loopback::kRead);
      args.put_u64(slot.offset);
      args.put_u32(kBulk);
      call.offer(slot.room.first(kBulk));
      break;
    }
    default: {
      Encoder& args = call.begin(kBinding, loopback::kWrite);
      args.put_u64(slot.offset);
      args.put_item(loopback::patterned(memory_, slot.offset, kBulk), kBulk, Ddp::kEligible);
    }
  }
  call.submit(nullptr, nullptr);
}

void Bystander::verify(Slot& slot, size_t index) {
  Call& call = *slot.call;
  ASSERT_EQ(call.status(), CallStatus::kOk) << to_string(call.status());
  switch (index % 3) {
    case 0:
      EXPECT_EQ(call.results().get_u32(), 8u);
      EXPECT_EQ(call.results().get_u64(), slot.offset);
      break;
    case 1: {
      EXPECT_EQ(call.results().get_u32(), 7u);
      ItemView data = call.results().get_item(kBulk);
      EXPECT_EQ(data.size(), kBulk);
      uint64_t at = slot.offset;
      uint32_t wrong = 0;
      data.for_each([&](const std::byte* bytes, size_t n) {
        for (size_t i = 0; i < n; ++i)
          wrong += bytes[i] != pattern(at++);
      });
      EXPECT_EQ(wrong, 0u);
      break;
    }
    default:
      EXPECT_EQ(call.results().get_u32(), kBulk);
      EXPECT_EQ(call.results().get_u32(), 0u) << "bytes of the argument were wrong";
  }
  EXPECT_TRUE(call.results().at_end());
  ++verified_;
}

}  // namespace rrdk::hostile
