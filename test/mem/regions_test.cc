#include "mem/regions.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <map>

#include "memory_fixture.h"

namespace rrdk::mem {
namespace {

using testing::HasSubstr;

class Listener final : public RegionListener {
 public:
  void region_added(const Region& region) override {
    EXPECT_TRUE(regions.emplace(region.id, region).second) << "id " << region.id << " twice";
  }
  void region_removed(const Region& region) override { EXPECT_EQ(regions.erase(region.id), 1u); }
  std::map<RegionId, Region> regions;
};

constexpr int kGoodSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;

// Memory of the application: a sealed memfd, mapped.
class ApplicationMemory {
 public:
  ApplicationMemory(size_t bytes, int seals) : bytes_(bytes) {
    fd_ = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(bytes)), 0);
    address_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    EXPECT_NE(address_, MAP_FAILED);
    EXPECT_EQ(fcntl(fd_, F_ADD_SEALS, seals), 0);
  }
  ~ApplicationMemory() {
    munmap(address_, bytes_);
    close(fd_);
  }
  ApplicationMemory(const ApplicationMemory&) = delete;
  ApplicationMemory& operator=(const ApplicationMemory&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(address_); }
  int fd() const { return fd_; }

 private:
  size_t bytes_;
  int fd_;
  void* address_;
};

class Regions : public test::MemoryTest {
 protected:
  Listener listener_;  // it is told about the arena's removal, too
  std::unique_ptr<Memory> memory_ = create({{4096, 8}, {64, 8}});
};

TEST_F(Regions, ListenerHearsOfExistingAddedAndRemovedRegions) {
  RegisteredMemory early = memory_->allocate(4096).value();
  listen_regions(*memory_, listener_);
  EXPECT_EQ(listener_.regions.size(), 2u);  // the arena and `early`
  RegisteredMemory late = memory_->allocate(8192).value();
  EXPECT_EQ(listener_.regions.count(late.region()), 1u);
  late = RegisteredMemory();
  EXPECT_EQ(listener_.regions.size(), 2u);
  unlisten_regions(*memory_, listener_);
  early = RegisteredMemory();
  EXPECT_EQ(listener_.regions.size(), 2u);
}

TEST_F(Regions, ListenerHearsOfTheEndOfTheMemory) {
  listen_regions(*memory_, listener_);
  memory_.reset();
  EXPECT_TRUE(listener_.regions.empty());
}

TEST_F(Regions, EveryBufferLiesInItsRegion) {
  listen_regions(*memory_, listener_);
  std::vector<Buffer> taken;
  while (Buffer buffer = memory_->get(1))
    taken.push_back(std::move(buffer));
  ASSERT_EQ(taken.size(), 16u);
  for (const Buffer& buffer : taken) {
    const Region& region = listener_.regions.at(buffer.region());
    EXPECT_GE(buffer.data(), region.base);
    EXPECT_LE(buffer.data() + buffer.capacity(), region.base + region.length);
  }
}

TEST_F(Regions, IdsAreDenseAndReusedAfterRemovalOnly) {
  RegisteredMemory a = memory_->allocate(1).value();
  RegisteredMemory b = memory_->allocate(1).value();
  RegisteredMemory c = memory_->allocate(1).value();
  EXPECT_EQ(a.region(), 1u);
  EXPECT_EQ(b.region(), 2u);
  EXPECT_EQ(c.region(), 3u);
  b = RegisteredMemory();
  EXPECT_EQ(memory_->allocate(1)->region(), 2u);
}

TEST_F(Regions, MemoryKnowsWhatItContains) {
  Buffer buffer = memory_->get(4096);
  RegisteredMemory own = memory_->allocate(8192).value();
  std::byte stranger[16];
  EXPECT_TRUE(memory_->contains(buffer.span()));
  EXPECT_TRUE(memory_->contains(own.span(0, 8192)));
  EXPECT_TRUE(memory_->contains({}));
  EXPECT_FALSE(memory_->contains(own.span(1, 8192)));
  EXPECT_FALSE(memory_->contains({own.data() - 1, 1, own.region()}));
  EXPECT_FALSE(memory_->contains({own.data(), 1, buffer.region()}));
  EXPECT_FALSE(memory_->contains({stranger, 16, own.region()}));
  EXPECT_FALSE(memory_->contains({own.data(), 1, kNoRegion}));
  EXPECT_FALSE(memory_->contains({own.data(), 1, kNoRegion - 1}));
  MemorySpan past = own.span(0, 1);
  own = RegisteredMemory();
  EXPECT_FALSE(memory_->contains(past));
}

// More regions than there are places at first.
TEST_F(Regions, MemoryKnowsManyRegions) {
  std::vector<RegisteredMemory> many;
  for (int i = 0; i < 300; ++i)
    many.push_back(memory_->allocate(4096).value());
  for (const RegisteredMemory& one : many) {
    EXPECT_TRUE(memory_->contains(one.span(0, 4096)));
    EXPECT_FALSE(memory_->contains(one.span(0, 4097)));
  }
}

TEST_F(Regions, RegistrationsAreCounted) {
  const uint64_t before = memory_->registrations();
  EXPECT_EQ(before, 1u);
  memory_->get(1).reset();
  EXPECT_EQ(memory_->registrations(), before);
  EXPECT_TRUE(memory_->allocate(1));
  EXPECT_EQ(memory_->registrations(), before + 1);
}

// A process that gets a descriptor can read and not write; and no process can take pages from under
// a mapping, which would end the next access in SIGBUS. A peer checks these seals.
TEST_F(Regions, DescriptorsAreForReadingAndTheirPagesStay) {
  const RegisteredMemory extra = memory_->allocate(100'000).value();
  listen_regions(*memory_, listener_);
  for (const auto& [id, region] : listener_.regions) {
    const int seals = fcntl(region.fd, F_GET_SEALS);
    EXPECT_EQ(seals & kGoodSeals, kGoodSeals);
    EXPECT_NE(ftruncate(region.fd, 0), 0);
    const std::string path = "/proc/self/fd/" + std::to_string(region.fd);
    const int again = open(path.c_str(), O_RDWR | O_CLOEXEC);
    for (const int fd : {region.fd, again}) {
      EXPECT_NE(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
      EXPECT_LT(pwrite(fd, "x", 1, 0), 0);
      EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    }
    EXPECT_NE(madvise(region.base, 4096, MADV_REMOVE), 0);
    close(again);
    struct stat st{};
    EXPECT_EQ(fstat(region.fd, &st), 0);
    EXPECT_EQ(st.st_mode & 0777, 0600);
  }
  std::memset(extra.data(), 1, 100'000);  // our own mapping is for writing
}

TEST_F(Regions, AnotherMappingOfTheDescriptorSeesTheSameBytes) {
  listen_regions(*memory_, listener_);
  const Buffer buffer = memory_->get(4096);
  const RegisteredMemory extra = memory_->allocate(100'000).value();
  const MemorySpan extra_span = extra.span(99'000, 1000);
  for (const MemorySpan& span : {buffer.first(1000), extra_span}) {
    const Region& region = listener_.regions.at(span.region);
    void* other = mmap(nullptr, region.length, PROT_READ, MAP_SHARED, region.fd,
                       static_cast<off_t>(region.fd_offset));
    ASSERT_NE(other, MAP_FAILED);
    std::memset(span.data, 0x5a, span.length);
    EXPECT_EQ(std::memcmp(static_cast<std::byte*>(other) + (span.data - region.base), span.data,
                          span.length),
              0);
    munmap(other, region.length);
  }
}

TEST_F(Regions, AllocatedMemoryHasTheSizeAskedForOnWholePages) {
  for (size_t size : {size_t{1}, size_t{4096}, size_t{5000}, size_t{5} << 20}) {
    Result<RegisteredMemory> memory = memory_->allocate(size);
    ASSERT_TRUE(memory) << memory.error().message;
    EXPECT_EQ(memory->size(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % 4096, 0u);
    std::memset(memory->data(), 1, size);
  }
  EXPECT_EQ(memory_->allocate(0).error().code, Errc::kInvalidArgument);
  EXPECT_EQ(memory_->allocate(size_t{1} << 60).error().code, Errc::kNoMemory);
}

TEST_F(Regions, MovingRegisteredMemoryMovesTheOwnership) {
  listen_regions(*memory_, listener_);
  RegisteredMemory first = memory_->allocate(1).value();
  RegisteredMemory second = std::move(first);
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): what it is for
  EXPECT_TRUE(second);
  second = memory_->allocate(1).value();
  EXPECT_EQ(listener_.regions.size(), 2u);
}

TEST_F(Regions, AdoptedMemoryIsSharedByADescriptorOfItsOwn) {
  listen_regions(*memory_, listener_);
  const ApplicationMemory application(16384, kGoodSeals);
  {
    Result<RegisteredMemory> adopted =
        memory_->adopt(application.data() + 4096, 8192, application.fd(), 4096);
    ASSERT_TRUE(adopted) << adopted.error().message;
    EXPECT_EQ(adopted->data(), application.data() + 4096);
    const Region& region = listener_.regions.at(adopted->region());
    EXPECT_EQ(region.length, 8192u);
    EXPECT_EQ(region.fd_offset, 4096u);
    EXPECT_NE(region.fd, application.fd());
  }
  EXPECT_EQ(listener_.regions.size(), 1u);
  std::memset(application.data(), 1, 16384);  // still the application's
}

TEST_F(Regions, MemoryWithoutADescriptorIsAdoptedButNotShared) {
  listen_regions(*memory_, listener_);
  const ApplicationMemory application(4096, kGoodSeals);
  const Result<RegisteredMemory> adopted = memory_->adopt(application.data(), 4096, -1, 0);
  ASSERT_TRUE(adopted) << adopted.error().message;
  EXPECT_EQ(listener_.regions.at(adopted->region()).fd, -1);
}

TEST_F(Regions, AdoptRefusesUnsealedOrMisalignedMemory) {
  const ApplicationMemory good(16384, kGoodSeals);
  const ApplicationMemory unsealed(16384, F_SEAL_GROW);
  const ApplicationMemory growing(16384, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE);
  const ApplicationMemory open_to_writers(16384, F_SEAL_SHRINK | F_SEAL_GROW);
  const int frozen = memfd_create("frozen", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(fcntl(frozen, F_ADD_SEALS, kGoodSeals | F_SEAL_WRITE), 0);
  const int no_memfd = open("/dev/zero", O_RDWR | O_CLOEXEC);
  struct Case {
    std::byte* address;
    size_t bytes;
    int fd;
    uint64_t offset;
    const char* fault;
  };
  const std::vector<Case> table = {
      {nullptr, 4096, good.fd(), 0, "empty"},
      {good.data(), 0, good.fd(), 0, "empty"},
      {good.data() + 64, 4096, good.fd(), 0, "whole pages"},
      {good.data(), 4095, good.fd(), 0, "whole pages"},
      {good.data(), 4096, good.fd(), 100, "offset"},
      {good.data(), 16384, good.fd(), 4096, "beyond"},
      {good.data(), 4096, good.fd(), UINT64_MAX - 4095, "beyond"},
      {unsealed.data(), 4096, unsealed.fd(), 0, "F_SEAL_SHRINK"},
      {growing.data(), 4096, growing.fd(), 0, "F_SEAL_GROW"},
      {open_to_writers.data(), 4096, open_to_writers.fd(), 0, "F_SEAL_FUTURE_WRITE"},
      {good.data(), 4096, frozen, 0, "writing"},
      {good.data(), 4096, no_memfd, 0, "F_SEAL_SHRINK"},
      {good.data(), 4096, 1'000'000, 0, "not open"},
  };
  for (const Case& c : table) {
    const Result<RegisteredMemory> adopted = memory_->adopt(c.address, c.bytes, c.fd, c.offset);
    ASSERT_FALSE(adopted) << c.fault;
    EXPECT_EQ(adopted.error().code, Errc::kInvalidArgument);
    EXPECT_THAT(adopted.error().message, HasSubstr(c.fault));
  }
  close(no_memfd);
  close(frozen);
}

TEST_F(Regions, NoDescriptorIsLeftOpen) {
  const auto open_descriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto before = open_descriptors();
  {
    auto memory = create({{64, 8}});
    const ApplicationMemory application(4096, kGoodSeals);
    EXPECT_TRUE(memory->allocate(1));
    EXPECT_TRUE(memory->adopt(application.data(), 4096, application.fd(), 0));
  }
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace rrdk::mem
