#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "mem/system_memory.h"
#include "memory_fixture.h"

namespace rrdk::mem {
namespace {

using testing::HasSubstr;

constexpr const char* kMeminfo =
    "MemTotal:       24000000 kB\n"
    "HugePages_Total:     110\n"
    "HugePages_Free:       60\n"
    "HugePages_Rsvd:       20\n"
    "HugePages_Surp:       10\n"
    "Hugepagesize:       2048 kB\n";

TEST(Hugepages, ReservedPagesAreNotAvailableAndSurplusOnesNotInTheTotal) {
  const Hugepages hugepages = parse_hugepages(kMeminfo);
  EXPECT_EQ(hugepages.page_size, size_t{2} << 20);
  EXPECT_EQ(hugepages.total, 100u);
  EXPECT_EQ(hugepages.available, 40u);
}

TEST(Hugepages, SystemWithoutThem) {
  EXPECT_EQ(parse_hugepages("MemTotal: 24000000 kB\n").page_size, 0u);
  EXPECT_THAT(hugepage_shortfall({}, 1), HasSubstr("no hugepages"));
}

TEST(Hugepages, ShortfallNamesTheMissingPagesAndTheCommand) {
  const std::string text = hugepage_shortfall(parse_hugepages(kMeminfo), (size_t{90} << 20) + 1);
  EXPECT_THAT(text, HasSubstr("6 hugepages of 2048 kB are missing (46 needed, 40 available)"));
  EXPECT_THAT(text, HasSubstr("sysctl vm.nr_hugepages=106"));
}

// Each machine has the same memory, and reserves a different part as hugepages.
TEST(Hugepages, NeverShrinkTheDefaultBudget) {
  constexpr uint64_t kAll = uint64_t{24} << 30;
  const uint64_t without = share_of(0, {.bytes = kAll, .source = "a machine"}).bytes;
  for (const uint64_t huge :
       {uint64_t{2} << 20, uint64_t{128} << 20, uint64_t{2} << 30, uint64_t{20} << 30}) {
    const uint64_t ordinary = kAll - huge;
    const uint64_t with = share_of(huge, {.bytes = ordinary, .source = "a machine"}).bytes;
    EXPECT_GE(with, without) << huge;
    EXPECT_LE(with, std::max(huge, ordinary) / 2 + 1) << "one kind alone can bear it";
  }
}

class HugepagePolicies : public test::MemoryTest {
 protected:
  static Result<std::unique_ptr<Memory>> create_with(HugepagePolicy policy, uint32_t megabytes) {
    return Memory::create({.classes = {{1u << 20, megabytes}}, .hugepages = policy});
  }
  // With spare pages for tests that run at the same time.
  static bool system_has(uint64_t pages) {
    const Hugepages hugepages = system_hugepages();
    return hugepages.page_size != 0 && hugepages.available >= pages;
  }
};

TEST_F(HugepagePolicies, NeverTakesOrdinaryPages) {
  const auto memory = create_with(HugepagePolicy::kNever, 2);
  ASSERT_TRUE(memory) << memory.error().message;
  EXPECT_FALSE((*memory)->on_hugepages());
}

TEST_F(HugepagePolicies, PreferWorksWithAndWithoutThem) {
  const bool expected = system_has(16);
  const auto memory = create_with(HugepagePolicy::kPrefer, 2);
  ASSERT_TRUE(memory) << memory.error().message;
  EXPECT_TRUE(!expected || (*memory)->on_hugepages());
  EXPECT_TRUE((*memory)->get(1));
}

TEST_F(HugepagePolicies, RequireTakesThemOrSaysHowManyAreMissing) {
  const auto memory = create_with(HugepagePolicy::kRequire, 2);
  if (memory) {
    EXPECT_TRUE((*memory)->on_hugepages());
    return;
  }
  EXPECT_FALSE(system_has(16)) << memory.error().message;
  EXPECT_EQ(memory.error().code, Errc::kNoMemory);
  EXPECT_THAT(memory.error().message, HasSubstr("hugepages"));
}

// A terabyte is more than the tests' machines have as hugepages.
TEST_F(HugepagePolicies, RequireFailsCleanlyBeyondWhatThereIs) {
  const auto memory = create_with(HugepagePolicy::kRequire, 1u << 20);
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().code, Errc::kNoMemory);
  EXPECT_THAT(memory.error().message, HasSubstr("hugepages"));
  if (system_hugepages().page_size != 0) {
    EXPECT_THAT(memory.error().message, HasSubstr("sysctl vm.nr_hugepages="));
  }
}

TEST_F(HugepagePolicies, FallbackIsSaidOnceInAProcess) {
  const Hugepages hugepages = system_hugepages();
  const uint64_t too_many =
      (hugepages.available + 16) * std::max<size_t>(hugepages.page_size, 4096);
  const MemoryOptions options = {.classes = {{1u << 20, static_cast<uint32_t>(too_many >> 20) + 1}},
                                 .prefault = false};
  for (int i = 0; i < 3; ++i) {
    const auto memory = Memory::create(options);
    ASSERT_TRUE(memory) << memory.error().message;
    EXPECT_FALSE((*memory)->on_hugepages());
    EXPECT_LE(lines(LogLevel::kInfo).size(), 1u);
  }
}

}  // namespace
}  // namespace rrdk::mem
