#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <set>
#include <thread>

#include "base/sanitizer.h"
#include "memory_fixture.h"

namespace rrdk {
namespace {

class Pools : public test::MemoryTest {};

std::vector<Buffer> take_all(Memory& memory, uint32_t size) {
  std::vector<Buffer> taken;
  while (Buffer buffer = memory.get(size))
    taken.push_back(std::move(buffer));
  return taken;
}

uint32_t available(const Memory& memory, uint32_t buffer_size) {
  for (const PoolAudit& pool : memory.audit()) {
    if (pool.buffer_size == buffer_size)
      return pool.available;
  }
  return 0;
}

TEST_F(Pools, SmallestFittingClassServes) {
  auto memory = create({{65536, 8}, {64, 8}, {4096, 8}});
  EXPECT_EQ(memory->get(0).capacity(), 64u);
  EXPECT_EQ(memory->get(1).capacity(), 64u);
  EXPECT_EQ(memory->get(64).capacity(), 64u);
  EXPECT_EQ(memory->get(65).capacity(), 4096u);
  EXPECT_EQ(memory->get(4096).capacity(), 4096u);
  EXPECT_EQ(memory->get(4097).capacity(), 65536u);
  EXPECT_EQ(memory->get(65536).capacity(), 65536u);
  EXPECT_FALSE(memory->get(65537));
  EXPECT_FALSE(memory->get(UINT32_MAX));
  EXPECT_EQ(memory->largest_buffer(), 65536u);
  EXPECT_TRUE(memory->whole());
}

// It may still be in the core's caches, and the buffer that has been free for longest is in none.
// This holds for large classes, which have no cache per core, as for others.
TEST_F(Pools, TheLastBufferReturnedIsNext) {
  auto memory = create({{65536, 8}, {4096, 256}});
  for (uint32_t size : {65536u, 4096u}) {
    Buffer first = memory->get(size);
    Buffer second = memory->get(size);
    const std::byte* last = first.data();
    second.reset();
    first.reset();
    EXPECT_EQ(memory->get(size).data(), last);
  }
}

TEST_F(Pools, ExhaustedClassFallsBackToLargerOnesOnly) {
  auto memory = create({{64, 4}, {128, 4}, {256, 4}});
  std::vector<uint32_t> capacities;
  const std::vector<Buffer> taken = take_all(*memory, 100);
  for (const Buffer& buffer : taken)
    capacities.push_back(buffer.capacity());
  EXPECT_THAT(capacities, testing::ElementsAre(128, 128, 128, 128, 256, 256, 256, 256));
  EXPECT_EQ(memory->get(64).capacity(), 64u);
}

TEST_F(Pools, FittingBuffersComeFromOneClassOnly) {
  auto memory = create({{64, 4}, {128, 4}, {256, 4}});
  std::vector<Buffer> taken;
  while (Buffer buffer = memory->get_fitting(100))
    taken.push_back(std::move(buffer));
  ASSERT_EQ(taken.size(), 4u);
  for (const Buffer& buffer : taken)
    EXPECT_EQ(buffer.capacity(), 128u);
  EXPECT_EQ(available(*memory, 256), 4u);
  taken.pop_back();
  EXPECT_EQ(memory->get_fitting(65).capacity(), 128u);
  EXPECT_FALSE(memory->get_fitting(257));
}

TEST_F(Pools, TheFittingClassIsAudited) {
  auto memory = create({{64, 4}, {256, 8}});
  Buffer buffer = memory->get(65);
  PoolAudit pool = memory->audit_fitting(65);
  EXPECT_EQ(pool.buffer_size, 256u);
  EXPECT_EQ(pool.count, 8u);
  EXPECT_EQ(pool.available, 7u);
  EXPECT_EQ(memory->audit_fitting(64).available, 4u);
  EXPECT_EQ(memory->audit_fitting(257).count, 0u);
}

TEST_F(Pools, EveryBufferCanBeHadAndComesBack) {
  auto memory = create({{4096, 1000}});
  for (int round = 0; round < 3; ++round) {
    {
      const std::vector<Buffer> taken = take_all(*memory, 4096);
      EXPECT_EQ(taken.size(), 1000u);
      EXPECT_EQ(available(*memory, 4096), 0u);
      EXPECT_FALSE(memory->whole());
    }
    EXPECT_TRUE(memory->whole());
    EXPECT_EQ(available(*memory, 4096), 1000u);
  }
}

TEST_F(Pools, BuffersAreAlignedDisjointAndWritable) {
  auto memory = create({{64, 100}, {256, 50}, {4096, 20}, {65536, 3}});
  for (uint32_t size : {64u, 256u, 4096u, 65536u}) {
    std::vector<Buffer> taken;
    std::set<std::byte*> starts;
    for (Buffer buffer = memory->get(size); buffer && buffer.capacity() == size;
         buffer = memory->get(size)) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % std::min(size, 4096u), 0u);
      starts.insert(buffer.data());
      std::memset(buffer.data(), static_cast<int>(taken.size()), size);
      taken.push_back(std::move(buffer));
    }
    EXPECT_EQ(starts.size(), taken.size());
    for (std::byte* start : starts)
      EXPECT_FALSE(starts.upper_bound(start) != starts.end() &&
                   *starts.upper_bound(start) < start + size);
    for (size_t i = 0; i < taken.size(); ++i) {
      EXPECT_EQ(taken[i].data()[0], static_cast<std::byte>(i));
      EXPECT_EQ(taken[i].data()[size - 1], static_cast<std::byte>(i));
    }
  }
}

TEST_F(Pools, BulkIsAllOrNothingOfOneClass) {
  auto memory = create({{64, 100}, {128, 200}});
  std::vector<Buffer> most(150);
  ASSERT_TRUE(memory->get_bulk(64, most));  // more than the first class has
  for (const Buffer& buffer : most)
    EXPECT_EQ(buffer.capacity(), 128u);
  std::vector<Buffer> more(101);
  EXPECT_FALSE(memory->get_bulk(64, more));
  for (const Buffer& buffer : more)
    EXPECT_FALSE(buffer);
  EXPECT_EQ(available(*memory, 64), 100u);
  EXPECT_EQ(available(*memory, 128), 50u);
  EXPECT_TRUE(memory->get_bulk(64, std::span(more).first(100)));
  EXPECT_TRUE(memory->get_bulk(64, {}));
}

TEST_F(Pools, BulkNeverDropsWhatItOverwrites) {
  auto memory = create({{64, 8}});
  std::vector<Buffer> buffers(4);
  ASSERT_TRUE(memory->get_bulk(64, buffers));
  ASSERT_TRUE(memory->get_bulk(64, buffers));
  EXPECT_EQ(available(*memory, 64), 4u);
}

TEST_F(Pools, HandleOwnsUntilMovedReleasedOrReset) {
  auto memory = create({{64, 4}});
  Buffer first = memory->get(1);
  std::byte* data = first.data();
  Buffer second = std::move(first);
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): what it is for
  EXPECT_EQ(second.data(), data);
  second = memory->get(1);  // gives the first one back
  EXPECT_EQ(available(*memory, 64), 3u);
  mem::BufferSlot* slot = second.release();
  EXPECT_FALSE(second);
  EXPECT_FALSE(memory->whole());
  Buffer(slot).reset();
  EXPECT_TRUE(memory->whole());
}

TEST_F(Pools, MemoryThatIsNotWholeSaysSoWhenItGoes) {
  auto memory = create({{64, 4}, {128, 4}, {4096, 4}});
  memory->get(64).release();
  memory->get(4096).release();
  memory->get(4096).release();
  memory.reset();
  EXPECT_THAT(lines(LogLevel::kError),
              testing::UnorderedElementsAre(testing::HasSubstr("1 of 4 buffers of 64 bytes"),
                                            testing::HasSubstr("2 of 4 buffers of 4096 bytes")));
}

TEST_F(Pools, WholeMemoryGoesQuietly) {
  create({{64, 4}})->get(64).reset();
  EXPECT_THAT(lines(LogLevel::kError), testing::IsEmpty());
}

TEST_F(Pools, SeveralMemoriesLiveSideBySide) {
  auto one = create({{64, 4}});
  auto other = create({{64, 4}});
  const std::vector<Buffer> all_of_one = take_all(*one, 64);
  EXPECT_TRUE(other->whole());
  EXPECT_EQ(take_all(*other, 64).size(), 4u);
}

// Threads hand buffers to one another: each takes one, marks it, checks it, and drops it elsewhere.
// A buffer that two threads held at once would show the other's mark.
void take_and_pass(Memory& memory, int rounds, unsigned mark, std::atomic<mem::BufferSlot*>& box,
                   std::atomic<int>& faults) {
  for (int round = 0; round < rounds; ++round) {
    Buffer buffer = memory.get(64);
    if (!buffer)
      continue;
    std::memcpy(buffer.data(), &mark, sizeof(mark));
    Buffer passed(box.exchange(buffer.release()));
    if (!passed)
      continue;
    unsigned found = 0;
    std::memcpy(&found, passed.data(), sizeof(found));
    if (found >= 4)
      ++faults;
    const unsigned scratch = mark;
    std::memcpy(passed.data(), &scratch, sizeof(scratch));
  }
}

TEST_F(Pools, ManyThreadsGetAndPutWithAndWithoutCaches) {
  auto memory = create({{64, 256}});
  std::atomic<mem::BufferSlot*> box{nullptr};
  std::atomic<int> faults{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      EXPECT_TRUE(i % 2 != 0 || register_thread());
      take_and_pass(*memory, 20'000, i, box, faults);
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  Buffer(box.load()).reset();
  EXPECT_EQ(faults, 0);
  EXPECT_TRUE(memory->whole());
}

// The peer's processor core has it in its caches, and writing to it is slow. So it waits behind the
// buffers that the core has taken from the depot, whatever else comes back.
TEST_F(Pools, BuffersReadByAPeerAreTakenLast) {
  for (uint32_t size : {4096u, 65536u}) {
    auto memory = create({{size, 256}});
    std::thread([&] {
      EXPECT_TRUE(register_thread());
      std::vector<Buffer> others;
      Buffer read = memory->get(size);
      const std::byte* bytes = read.data();
      read.note_read_by_peer();
      memory->get(size).reset();
      read.reset();
      for (Buffer next = memory->get(size); next.data() != bytes; next = memory->get(size))
        others.push_back(std::move(next));
      EXPECT_EQ(others.size(), 7u);
      Buffer again = memory->get(size);
      EXPECT_EQ(again.data(), bytes) << "it was not read since";
    }).join();
  }
}

// A thread that has ended must not keep buffers in its cache.
TEST_F(Pools, CachesOfEndedThreadsAreEmptied) {
  auto memory = create({{64, 320}});
  std::thread([&] {
    EXPECT_TRUE(register_thread());
    take_all(*memory, 64).clear();
  }).join();
  std::vector<Buffer> all(320);
  EXPECT_TRUE(memory->get_bulk(64, all));
}

#ifndef NDEBUG
TEST_F(Pools, PuttingABufferBackTwiceIsCaught) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  auto memory = create({{64, 4}});
  mem::BufferSlot* slot = memory->get(64).release();
  Buffer(slot).reset();
  EXPECT_DEATH(Buffer(slot).reset(), "twice");
}
#endif

#if RRDK_ASAN
TEST_F(Pools, UseOfABufferThatWasPutBackIsCaughtByAsan) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  auto memory = create({{64, 4}});
  Buffer buffer = memory->get(64);
  volatile std::byte* data = buffer.data();
  *data = std::byte{1};
  buffer.reset();
  EXPECT_DEATH(*data = std::byte{1}, "use-after-poison");
}
#endif

struct BadOptions {
  MemoryOptions options;
  const char* fault;
};

TEST_F(Pools, BadOptionsAreRefusedByName) {
  const std::vector<BadOptions> table = {
      {{.classes = {}}, "no size classes"},
      {{.classes = {{100, 1}}}, "100 bytes"},
      {{.classes = {{32, 1}}}, "32 bytes"},
      {{.classes = {{4096, 1}, {64, 1}, {4096, 2}}}, "twice"},
      {{.classes = {{64, 1}}, .numa_nodes = {77}}, "77"},
      {{.classes = {{64, 1}}, .numa_nodes = {-1}}, "-1"},
      {{.classes = {{64, 1}}, .numa_nodes = {0, 0}}, "twice"},
  };
  for (const BadOptions& bad : table) {
    const Result<std::unique_ptr<Memory>> memory = Memory::create(bad.options);
    ASSERT_FALSE(memory) << bad.fault;
    EXPECT_EQ(memory.error().code, Errc::kInvalidArgument);
    EXPECT_THAT(memory.error().message, testing::HasSubstr(bad.fault));
  }
}

TEST_F(Pools, MoreThanTheMachineHasIsAnErrorNotACrash) {
  const Result<std::unique_ptr<Memory>> memory = Memory::create(
      {.classes = {{1u << 31, 1u << 20}}, .hugepages = HugepagePolicy::kNever, .prefault = false});
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().code, Errc::kNoMemory) << memory.error().message;
}

}  // namespace
}  // namespace rrdk
