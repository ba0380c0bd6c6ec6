// A budget in bytes: elastic classes take what they need, give it back, and never exceed it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>

#include "mem/heap_charge.h"
#include "mem/loans.h"
#include "mem/memory_impl.h"
#include "mem/slabs.h"
#include "mem/system_memory.h"
#include "memory_fixture.h"

namespace rrdk {
namespace {

using testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

class Budget : public test::MemoryTest {
 protected:
  static std::unique_ptr<Memory> create(uint64_t bytes, std::vector<SizeClass> classes = {
                                                            {4096}, {65536}, {1u << 20}}) {
    auto memory = Memory::create(
        {.bytes = bytes, .classes = std::move(classes), .hugepages = HugepagePolicy::kNever});
    if (!memory)
      ADD_FAILURE() << memory.error().message;
    return memory ? std::move(*memory) : nullptr;
  }
};

std::set<const std::byte*> used_in_turns(Memory& memory, bool read_by_peer) {
  std::set<const std::byte*> used;
  for (int i = 0; i < 200; ++i) {
    Buffer buffer = memory.get(65536);
    used.insert(buffer.data());
    if (read_by_peer)
      buffer.note_read_by_peer();
  }
  return used;
}

// Cores that send buffers to peers on this host keep enough for each to rest; other cores keep
// as few as before.
TEST_F(Budget, OnlyWhatPeersReadMakesACoreKeepMore) {
  auto memory = create(192 * kMiB);
  std::thread([&] {
    ASSERT_TRUE(register_thread());
    EXPECT_EQ(used_in_turns(*memory, false).size(), 1u);
    EXPECT_GE(used_in_turns(*memory, true).size(), 32u);
    EXPECT_LE(used_in_turns(*memory, true).size(), 64u);
    EXPECT_EQ(used_in_turns(*memory, false).size(), 1u);
  }).join();
}

std::vector<Buffer> all_fitting(Memory& memory, uint32_t size) {
  std::vector<Buffer> taken;
  while (Buffer buffer = memory.get_fitting(size))
    taken.push_back(std::move(buffer));
  return taken;
}

uint64_t bytes_of_classes(const Memory& memory) {
  uint64_t bytes = 0;
  for (const PoolAudit& pool : memory.audit())
    bytes += uint64_t{pool.count} * pool.buffer_size;
  return bytes;
}

// The resident bytes of this process in shared memory, which a memfd's pages are.
uint64_t resident_bytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("RssShmem:"))
      return std::stoull(line.substr(9)) * 1024;
  }
  return 0;
}

TEST_F(Budget, ClassesGrowOnDemand) {
  auto memory = create(64 * kMiB);
  EXPECT_EQ(memory->audit_fitting(1u << 20).count, 0u);
  std::vector<Buffer> large;
  for (int i = 0; i < 40; ++i)
    large.push_back(memory->get(1u << 20));
  for (const Buffer& buffer : large)
    ASSERT_TRUE(buffer);
  EXPECT_EQ(memory->audit_fitting(1u << 20).count, 40u);
  EXPECT_LE(memory->audit_fitting(1u << 20).more, 22u);
  std::vector<Buffer> small;
  for (int i = 0; i < 3000; ++i)
    small.push_back(memory->get(4096));
  for (const Buffer& buffer : small)
    ASSERT_EQ(buffer.capacity(), 4096u);
  EXPECT_FALSE(memory->whole());
  large.clear();
  small.clear();
  EXPECT_TRUE(memory->whole());
}

TEST_F(Budget, IsNeverExceededAndUsedUp) {
  auto memory = create(64 * kMiB);
  for (uint32_t size : {1u << 20, 65536u, 4096u, 65536u}) {
    std::vector<Buffer> taken = all_fitting(*memory, size);
    EXPECT_LE(bytes_of_classes(*memory), 64 * kMiB);
    EXPECT_GE(taken.size() * uint64_t{size}, 64 * kMiB / 16 * 15 - (size == 65536 ? 2 * kMiB : 0));
    EXPECT_EQ(memory->audit_fitting(size).more, 0u);
  }
  EXPECT_TRUE(memory->whole());
}

TEST_F(Budget, FreeBuffersMoveToOtherClasses) {
  auto memory = create(32 * kMiB);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(all_fitting(*memory, 4096).size(), 32 * kMiB / 4096);
    EXPECT_EQ(all_fitting(*memory, 1u << 20).size(), 30u);
  }
  // A slab with a buffer that is out stays in its class; others do not.
  std::vector<Buffer> small = all_fitting(*memory, 4096);
  Buffer kept = std::move(small[1000]);
  std::memset(kept.data(), 7, 4096);
  small.clear();
  std::vector<Buffer> large = all_fitting(*memory, 1u << 20);
  EXPECT_EQ(large.size(), 30u);
  for (const Buffer& buffer : large) {
    EXPECT_TRUE(kept.data() + 4096 <= buffer.data() || buffer.data() + (1u << 20) <= kept.data());
    std::memset(buffer.data(), 0, 1u << 20);
  }
  EXPECT_EQ(kept.data()[4095], std::byte{7});
}

TEST_F(Budget, ASixteenthIsTheSmallestClassesAlone) {
  auto memory = create(64 * kMiB);
  std::vector<Buffer> large = all_fitting(*memory, 1u << 20);
  std::vector<Buffer> middle = all_fitting(*memory, 65536);
  EXPECT_EQ(large.size(), 60u);
  EXPECT_EQ(middle.size(), 0u);
  EXPECT_EQ(memory->audit_fitting(4096).count + memory->audit_fitting(4096).more, 4 * kMiB / 4096);
  EXPECT_EQ(all_fitting(*memory, 4096).size(), 4 * kMiB / 4096);
}

// Callers may rely on `more` buffers being available.
TEST_F(Budget, TheSixteenthIsNotForOtherClasses) {
  auto memory = create(64 * kMiB);
  // The whole budget belongs to the smallest class, and is free.
  all_fitting(*memory, 4096).clear();
  const uint32_t could_have = memory->audit_fitting(1u << 20).more;
  EXPECT_EQ(could_have, 60u);
  EXPECT_EQ(all_fitting(*memory, 1u << 20).size(), could_have);
}

TEST_F(Budget, LowWaterAndRefusalsAreCounted) {
  auto memory = create(16 * kMiB, {{65536}, {1u << 20}});
  const PoolAudit fresh = memory->audit_fitting(65536);
  EXPECT_EQ(fresh.available + fresh.more, 256u);
  EXPECT_EQ(fresh.missing, 0u);
  std::vector<Buffer> taken;
  for (int i = 0; i < 200; ++i)
    taken.push_back(memory->get(65536));
  taken.clear();
  const PoolAudit used = memory->audit_fitting(65536);
  EXPECT_EQ(used.available + used.more, 256u);
  EXPECT_LE(used.least_available, 56u);
  EXPECT_GE(used.least_available, 40u);
  EXPECT_EQ(used.missing, 0u);
  all_fitting(*memory, 65536).clear();
  EXPECT_EQ(memory->audit_fitting(65536).least_available, 0u);
  EXPECT_EQ(memory->audit_fitting(65536).missing, 1u);
  std::vector<Buffer> all = all_fitting(*memory, 1u << 20);
  EXPECT_FALSE(memory->get(1u << 20));
  EXPECT_EQ(memory->audit_fitting(1u << 20).missing, 2u);
}

TEST_F(Budget, BuffersAreDisjointAlignedAndKnownInAllExtents) {
  auto memory = create(64 * kMiB, {{4096}, {65536}, {1u << 20}, {4u << 20}});
  std::vector<Buffer> taken;
  std::set<const std::byte*> starts;
  std::set<RegionId> regions;
  for (uint32_t size : {4u << 20, 65536u, 1u << 20, 4096u}) {
    for (int i = 0; i < 4; ++i)
      if (Buffer buffer = memory->get(size))
        taken.push_back(std::move(buffer));
  }
  for (Buffer& buffer : all_fitting(*memory, 4096))
    taken.push_back(std::move(buffer));
  for (const Buffer& buffer : taken) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 4096, 0u);
    std::memset(buffer.data(), 1, buffer.capacity());
    regions.insert(buffer.region());
    const auto above = starts.upper_bound(buffer.data());
    EXPECT_TRUE(above == starts.end() || *above >= buffer.data() + buffer.capacity());
    EXPECT_TRUE(starts.insert(buffer.data()).second);
    EXPECT_TRUE(memory->contains(buffer.span()));
    EXPECT_EQ(memory->span_of(buffer.data() + 1, buffer.capacity() - 1).region, buffer.region());
    EXPECT_EQ(memory->span_of(buffer.data(), 128u << 20).region, kNoRegion);
  }
  EXPECT_GE(regions.size(), 3u);
  EXPECT_LE(regions.size(), 8u);
  EXPECT_EQ(memory->registrations(), regions.size());
  EXPECT_EQ(memory->span_of(reinterpret_cast<const std::byte*>(this), 1).region, kNoRegion);
}

TEST_F(Budget, NothingIsThereBeforeItIsUsed) {
  const uint64_t before = resident_bytes();
  auto memory = create(512 * kMiB);
  EXPECT_LE(resident_bytes(), before + 2 * kMiB);
  std::vector<Buffer> taken;
  for (int i = 0; i < 16; ++i)
    taken.push_back(memory->get(1u << 20));
  EXPECT_GE(resident_bytes(), before + 16 * kMiB) << "what was taken has its pages";
  EXPECT_LE(resident_bytes(), before + 20 * kMiB);
}

TEST_F(Budget, ClassesOfAFixedCountKeepTheirs) {
  auto memory = create(32 * kMiB, {{4096}, {65536, 16}, {1u << 20}});
  std::vector<Buffer> small = all_fitting(*memory, 4096);
  EXPECT_EQ(small.size(), 30 * kMiB / 4096) << "31 MiB, in whole units";
  EXPECT_FALSE(memory->get_fitting(1u << 20));
  EXPECT_EQ(all_fitting(*memory, 65536).size(), 16u);
  small.clear();
  EXPECT_EQ(all_fitting(*memory, 1u << 20).size(), 28u);
  EXPECT_EQ(memory->audit_fitting(65536).more, 0u);
}

TEST_F(Budget, BulkGrowsAsFarAsItMustAndIsAllOrNothing) {
  auto memory = create(16 * kMiB);
  std::vector<Buffer> buffers(3000);
  EXPECT_TRUE(memory->get_bulk(4096, buffers));
  for (Buffer& buffer : buffers)
    buffer.reset();
  std::vector<Buffer> too_many(16 * kMiB / 4096 + 1);
  EXPECT_FALSE(memory->get_bulk(4096, too_many));
  EXPECT_TRUE(memory->whole());
}

TEST_F(Budget, TooLittleIsAnErrorWithTheNumbers) {
  const auto small = Memory::create({.bytes = 5 * kMiB, .classes = {{4096}, {65536}, {1u << 20}}});
  ASSERT_FALSE(small);
  EXPECT_EQ(small.error().code, Errc::kNoMemory);
  EXPECT_THAT(small.error().message, HasSubstr(std::to_string(5 * kMiB)));
  EXPECT_THAT(small.error().message, HasSubstr(std::to_string(6 * kMiB)));
  EXPECT_THAT(small.error().message, HasSubstr("MemoryOptions::bytes"));
  const auto fixed = Memory::create({.bytes = kMiB, .classes = {{4096, 512}}});
  ASSERT_FALSE(fixed);
  EXPECT_EQ(fixed.error().code, Errc::kNoMemory);
  EXPECT_THAT(fixed.error().message, HasSubstr(std::to_string(2 * kMiB)));
}

TEST_F(Budget, MoreThanIsFreeIsAnErrorWithTheNumbers) {
  const uint64_t left = mem::memory_headroom().bytes;
  ASSERT_NE(left, UINT64_MAX);
  const auto memory = Memory::create(
      {.bytes = left + 4096 * kMiB, .classes = {{4096}}, .hugepages = HugepagePolicy::kNever});
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().code, Errc::kNoMemory);
  EXPECT_THAT(memory.error().message, HasSubstr("can be had"));
}

TEST_F(Budget, DefaultIsAShareOfFreeMemoryAndIsLogged) {
  const auto memory = Memory::create({.hugepages = HugepagePolicy::kNever});
  ASSERT_TRUE(memory) << memory.error().message;
  EXPECT_THAT(lines(LogLevel::kInfo),
              testing::ElementsAre(testing::AllOf(HasSubstr("a quarter of what is free"),
                                                  HasSubstr("MemoryOptions::bytes"))));
  const PoolAudit pool = (*memory)->audit_fitting(4096);
  EXPECT_LE(uint64_t{pool.count} + pool.more, mem::memory_headroom().bytes / 4096 / 2);
  EXPECT_GE(uint64_t{pool.count} + pool.more, mem::memory_headroom().bytes / 4096 / 16);
}

TEST_F(Budget, OnePeerCannotTakeAll) {
  auto memory = create(64 * kMiB);
  mem::BorrowerRef greedy = mem::Borrower::create(*memory);
  mem::BorrowerRef modest = mem::Borrower::create(*memory);
  std::vector<Buffer> taken;
  uint64_t bytes = 0;
  for (uint32_t size : {1u << 20, 65536u, 1u << 20}) {
    mem::Shortage shortage = mem::Shortage::kNone;
    while (Buffer buffer = greedy->get(size, false, shortage)) {
      bytes += buffer.capacity();
      taken.push_back(std::move(buffer));
    }
    EXPECT_EQ(shortage, mem::Shortage::kShare);
  }
  EXPECT_GE(bytes, 24 * kMiB);
  EXPECT_LE(bytes, 33 * kMiB) << "half, of all classes together";
  EXPECT_FALSE(greedy->exceeded());
  mem::Shortage shortage = mem::Shortage::kNone;
  std::vector<Buffer> others;
  while (Buffer buffer = modest->get(1u << 20, false, shortage))
    others.push_back(std::move(buffer));
  EXPECT_GE(others.size(), 10u);
  EXPECT_TRUE(greedy->exceeded()) << "it has more than is left, now that there is another";
  EXPECT_TRUE(memory->get(1u << 20)) << "there is one for a peer that has none";
  taken.clear();
  EXPECT_TRUE(greedy->idle());
}

// Peers that take what they can get, of each size in turn, and give nothing back.
struct Crowd {
  explicit Crowd(Memory& memory_in) : memory(memory_in) {}
  ~Crowd() {
    held.clear();
    for (const mem::BorrowerRef& peer : peers)
      peer->part();
  }

  mem::Borrower& join() {
    peers.push_back(mem::Borrower::create(memory));
    peers.back()->join();
    return *peers.back();
  }
  bool get(mem::Borrower& peer, uint32_t size) {
    mem::Shortage shortage = mem::Shortage::kNone;
    Buffer buffer = peer.get(size, peer.idle(), shortage);
    if (!buffer)
      return false;
    held.push_back(std::move(buffer));
    return true;
  }

  Memory& memory;
  std::vector<mem::BorrowerRef> peers;
  std::vector<Buffer> held;
};

void find_buffers_beside(Memory& memory, uint32_t peers, const std::vector<uint32_t>& sizes,
                         bool all_at_once) {
  Crowd crowd(memory);
  for (uint32_t i = 0; all_at_once && i < peers; ++i)
    crowd.join();
  for (uint32_t i = 0; i < peers; ++i) {
    if (!all_at_once)
      crowd.join();
    for (uint32_t size : sizes) {
      while (crowd.get(*crowd.peers[i], size))
        continue;
    }
  }
  const uint32_t largest = *std::ranges::max_element(sizes);
  mem::Borrower& newcomer = crowd.join();
  EXPECT_TRUE(crowd.get(newcomer, largest)) << "for its call, beside " << peers;
  Buffer result = memory.get(largest);
  EXPECT_TRUE(result) << "for its result, beside " << peers;
  newcomer.lend(result);
  crowd.held.push_back(std::move(result));
}

// However many peers hold borrowed buffers, and whatever they took first, a new peer finds buffers.
TEST_F(Budget, LeavesBuffersForANewcomer) {
  std::vector<uint32_t> sizes = {4096, 65536, 262144};
  auto elastic = create(256 * kMiB, {{4096}, {65536}, {262144}});
  auto fixed = create(0, {{4096, 1024}, {65536, 512}, {262144, 512}});
  do {
    for (uint32_t peers = 1; peers <= 40; ++peers) {
      for (bool all_at_once : {false, true}) {
        find_buffers_beside(*elastic, peers, sizes, all_at_once);
        find_buffers_beside(*fixed, peers, sizes, all_at_once);
      }
      if (HasFailure())
        return;
    }
  } while (std::ranges::next_permutation(sizes).found);
}

// Connected peers that hold nothing do not keep others from half of the budget.
TEST_F(Budget, IsNotReservedForIdlePeers) {
  auto memory = create(64 * kMiB);
  Crowd crowd(*memory);
  for (int i = 0; i < 1000; ++i)
    crowd.join();
  while (crowd.get(*crowd.peers[0], 1u << 20))
    continue;
  EXPECT_GE(crowd.held.size(), 24u);
}

// One call may take nearly everything if the others have nearly nothing.
TEST_F(Budget, ForOneLargeCall) {
  auto memory = create(64 * kMiB);
  Crowd crowd(*memory);
  mem::Borrower& only = crowd.join();
  crowd.join();
  mem::Shortage shortage = mem::Shortage::kNone;
  for (int i = 0; i < 58; ++i) {
    crowd.held.push_back(only.get(1u << 20, true, shortage));
    ASSERT_TRUE(crowd.held.back()) << i;
  }
}

// What each class has and could have.
std::vector<uint64_t> what_is_left(const Memory& memory) {
  std::vector<uint64_t> left;
  for (const PoolAudit& pool : memory.audit())
    left.push_back(uint64_t{pool.available} + pool.more);
  return left;
}

TEST_F(Budget, ThatIsChargedForTheHeapComesBack) {
  auto memory = create(64 * kMiB);
  const std::vector<uint64_t> before = what_is_left(*memory);
  {
    mem::HeapCharge charge(*memory);
    for (int i = 0; i < 400; ++i) {  // a hundred times the whole budget
      ASSERT_TRUE(charge.take(16 * kMiB)) << i;
      charge.give(16 * kMiB);
    }
    std::vector<Buffer> all;
    while (Buffer buffer = memory->get(1u << 20))
      all.push_back(std::move(buffer));
    EXPECT_GE(all.size() * kMiB, before.back() * kMiB - 2 * kMiB) << "all but one unit";
  }
  EXPECT_EQ(what_is_left(*memory), before);
  for (int i = 0; i < 400; ++i) {
    mem::HeapCharge charge(*memory, 4 * kMiB);
    ASSERT_TRUE(charge.take(16 * kMiB)) << i;
  }
  EXPECT_EQ(what_is_left(*memory), before);
  // No buffers that peers may read are lost either.
  mem::BorrowerRef peer = mem::Borrower::create(*memory);
  for (int i = 0; i < 400; ++i) {
    ASSERT_TRUE(peer->expose(16 * kMiB, 64 * kMiB)) << i;
    EXPECT_FALSE(peer->expose(64 * kMiB, 64 * kMiB));
    peer->unexpose(16 * kMiB);
  }
}

// The buffers that threads hold together, as each reports after it took and before it gives back:
// never more than they really hold. (An audit reads one class after another, and counts a slab
// twice that moves from one to the next meanwhile.)
struct Held {
  std::atomic<uint64_t> bytes{0}, most{0};

  void took(const Buffer& buffer) {
    const uint64_t now = bytes += buffer.capacity();
    for (uint64_t before = most; before < now && !most.compare_exchange_weak(before, now);)
      continue;
  }
  void gives(const Buffer& buffer) { bytes -= buffer.capacity(); }
};

// While threads take and give back, slabs move between classes.
void take_and_give(Memory& memory, unsigned seed, Held& all, std::atomic<uint32_t>& faults) {
  constexpr uint32_t kSizes[] = {4096, 65536, 1u << 20};
  std::vector<Buffer> held;
  for (int round = 0; round < 3000; ++round) {
    seed = seed * 1103515245 + 12345;
    const uint32_t size = kSizes[(round / 200 + seed / 65536 % 2) % 3];
    Buffer buffer = memory.get(size);
    if (buffer) {
      all.took(buffer);
      std::memcpy(buffer.data(), &seed, sizeof(seed));
      std::memcpy(buffer.data() + buffer.capacity() - sizeof(seed), &seed, sizeof(seed));
      held.push_back(std::move(buffer));
    }
    if (held.size() > 30 || (!held.empty() && seed / 65536 % 3 == 0)) {
      const size_t which = seed / 65536 % held.size();
      unsigned front = 0, back = 0;
      const std::byte* data = held[which].data();
      std::memcpy(&front, data, sizeof(front));
      std::memcpy(&back, data + held[which].capacity() - sizeof(back), sizeof(back));
      faults += front != back;
      std::swap(held[which], held.back());
      all.gives(held.back());
      held.pop_back();
    }
  }
  for (const Buffer& buffer : held)
    all.gives(buffer);
}

TEST_F(Budget, ManyThreadsShareIt) {
  auto memory = create(24 * kMiB);
  Held all;
  std::atomic<uint32_t> faults{0};
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      EXPECT_TRUE(i % 2 != 0 || register_thread());
      take_and_give(*memory, i + 1, all, faults);
    });
  }
  std::thread watcher([&] {
    while (!done) {
      for (const PoolAudit& pool : memory->audit())
        EXPECT_LE(uint64_t{pool.count} * pool.buffer_size, 24 * kMiB);
      std::this_thread::yield();
    }
  });
  for (std::thread& thread : threads)
    thread.join();
  done = true;
  watcher.join();
  EXPECT_EQ(faults, 0u);
  EXPECT_EQ(all.bytes, 0u);
  EXPECT_GT(all.most, 12 * kMiB) << "they never came near it";
  EXPECT_LE(all.most, 24 * kMiB);
  EXPECT_LE(bytes_of_classes(*memory), 24 * kMiB);
  EXPECT_TRUE(memory->whole());
  EXPECT_EQ(all_fitting(*memory, 4096).size(), 24 * kMiB / 4096);
}

// One thread takes a whole new slab into its cache, while the others have seen that there is one.
TEST_F(Budget, ManyThreadsThatTakeAtOnceAllHaveSome) {
  constexpr uint32_t kThreads = 4, kEach = 20;
  std::atomic<uint32_t> without{0};
  for (int round = 0; round < 30; ++round) {
    auto memory = create(512 * kMiB);
    std::barrier start(kThreads);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        EXPECT_TRUE(register_thread());
        std::vector<Buffer> held;
        start.arrive_and_wait();
        for (uint32_t k = 0; k < kEach; ++k) {
          held.push_back(memory->get_fitting(65536));
          without += !held.back();
        }
      });
    }
    for (std::thread& thread : threads)
      thread.join();
  }
  EXPECT_EQ(without, 0u);
}

}  // namespace
}  // namespace rrdk
