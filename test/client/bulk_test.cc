// Data by reference, in both directions, in all sizes at which errors are likely.
#include <cstring>

#include "../server/loopback.h"

namespace rrdk::loopback {
namespace {

constexpr uint32_t kSizes[] = {0, 1, 3, 4, 1000, 1024, 4096, 65536, 1u << 20, 4u << 20};

class BulkByCores : public testing::TestWithParam<Cores> {};
INSTANTIATE_TEST_SUITE_P(Cores, BulkByCores,
                         testing::Values(Cores::kEmbedded, Cores::kDedicated, Cores::kWorkers));

int wrong_bytes(const ItemView& data, uint64_t at) {
  int wrong = 0;
  data.for_each([&](const std::byte* bytes, size_t n) {
    for (size_t i = 0; i < n; ++i)
      wrong += bytes[i] != pattern(at++);
  });
  return wrong;
}

bool within(const ItemView& data, const RegisteredMemory& memory) {
  return data.empty() || (data.data() >= memory.data() &&
                          data.data() + data.size() <= memory.data() + memory.size());
}

TEST_P(BulkByCores, ReadsLandInTheCallersMemory) {
  World world(GetParam());
  auto connection = world.connect();
  RegisteredMemory room = world.memory->allocate(4u << 20).value();
  {
    Call call(*connection);
    for (uint32_t size : kSizes) {
      SCOPED_TRACE(size);
      std::memset(room.data(), 0, room.size());
      Encoder& args = call.begin(kBinding, kRead);
      args.put_u64(size + 5);
      args.put_u32(size);
      call.offer(room.span(0, size));
      ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
      EXPECT_EQ(call.results().get_u32(), 7u);
      ItemView data = call.results().get_item(size);
      EXPECT_TRUE(call.results().at_end());
      ASSERT_EQ(data.size(), size);
      EXPECT_EQ(wrong_bytes(data, size + 5), 0);
      EXPECT_TRUE(within(data, room));
    }
  }
}

TEST_P(BulkByCores, ReadsComeWithoutOfferedRoomToo) {
  World world(GetParam());
  auto connection = world.connect();
  Call call(*connection);
  for (uint32_t size : kSizes) {
    SCOPED_TRACE(size);
    Encoder& args = call.begin(kBinding, kRead);
    args.put_u64(3);
    args.put_u32(size);
    call.expect_reply(size + 4);
    ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
    call.results().get_u32();
    ItemView data = call.results().get_item(size);
    EXPECT_TRUE(call.results().at_end());
    ASSERT_EQ(data.size(), size);
    EXPECT_EQ(wrong_bytes(data, 3), 0);
  }
}

TEST_P(BulkByCores, WritesAreReadFromTheCallersMemory) {
  World world(GetParam());
  auto connection = world.connect();
  RegisteredMemory source = world.memory->allocate(4u << 20).value();
  for (size_t i = 0; i < source.size(); ++i)
    source.data()[i] = pattern(i);
  {
    Call call(*connection);
    for (uint32_t size : kSizes) {
      SCOPED_TRACE(size);
      Encoder& args = call.begin(kBinding, kWrite);
      args.put_u64(0);
      args.put_item(source.span(0, size), Ddp::kEligible);
      ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
      EXPECT_EQ(call.results().get_u32(), size);
      EXPECT_EQ(call.results().get_u32(), 0u) << "wrong bytes";
      EXPECT_TRUE(call.results().at_end());
    }
  }
}

TEST_P(BulkByCores, TwoResultsGoToTwoRooms) {
  World world(GetParam());
  auto connection = world.connect();
  RegisteredMemory room = world.memory->allocate(2u << 20).value();
  {
    Call call(*connection);
    for (uint32_t first : {0u, 1u, 1000u, 65536u}) {
      for (uint32_t second : {0u, 3u, 4096u, 1u << 20}) {
        SCOPED_TRACE(first);
        SCOPED_TRACE(second);
        Encoder& args = call.begin(kBinding, kRead2);
        args.put_u64(11);
        args.put_u32(first);
        args.put_u32(second);
        call.offer(room.span(0, 65536));
        call.offer(room.span(1u << 20, 1u << 20));
        ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
        ItemView one = call.results().get_item(first);
        EXPECT_EQ(call.results().get_u32(), 99u);
        ItemView two = call.results().get_item(second);
        EXPECT_TRUE(call.results().at_end());
        ASSERT_EQ(one.size(), first);
        ASSERT_EQ(two.size(), second);
        EXPECT_EQ(wrong_bytes(one, 11), 0);
        EXPECT_EQ(wrong_bytes(two, 11 + first), 0);
      }
    }
  }
}

// One Write chunk of several segments, filled in order.
TEST_P(BulkByCores, AResultIsScatteredOverSegments) {
  World world(GetParam());
  auto connection = world.connect();
  RegisteredMemory room = world.memory->allocate(1u << 20).value();
  {
    Call call(*connection);
    const MemorySpan kSegments[] = {room.span(500000, 10), room.span(0, 4096),
                                    room.span(700001, 100000)};
    for (uint32_t size : {0u, 5u, 10u, 11u, 4106u, 100000u}) {
      SCOPED_TRACE(size);
      Encoder& args = call.begin(kBinding, kRead);
      args.put_u64(1);
      args.put_u32(size);
      call.offer(std::span(kSegments));
      ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
      call.results().get_u32();
      ItemView data = call.results().get_item(size);
      ASSERT_EQ(data.size(), size);
      EXPECT_EQ(wrong_bytes(data, 1), 0);
    }
  }
}

TEST_P(BulkByCores, TooLittleRoomIsNamed) {
  World world(GetParam());
  auto connection = world.connect();
  RegisteredMemory room = world.memory->allocate(65536).value();
  {
    Call call(*connection);
    Encoder& args = call.begin(kBinding, kRead);
    args.put_u64(1);
    args.put_u32(65536);
    call.offer(room.span(0, 65532));
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kChunkError);
    call.begin(kBinding, 0);
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
  }
}

}  // namespace
}  // namespace rrdk::loopback
