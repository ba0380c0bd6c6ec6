#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <string_view>
#include <vector>

#include "apps/testrpc/pattern.h"

namespace rrdk::testrpc {
namespace {

std::byte by_definition(uint64_t x) {
  return static_cast<std::byte>(((x ^ (x >> 8) ^ (x >> 16)) * 167 + 13) % 256);
}

class PatternAt : public testing::TestWithParam<uint64_t> {};

TEST_P(PatternAt, IsWhatTheProgramDefines) {
  for (size_t length : {0u, 1u, 3u, 255u, 256u, 257u, 1000u, 70000u}) {
    std::vector<std::byte> bytes(length);
    fill_pattern(bytes, GetParam());
    for (size_t i = 0; i < length; ++i)
      ASSERT_EQ(bytes[i], by_definition(GetParam() + i)) << "at " << i << " of " << length;
    EXPECT_EQ(count_wrong(std::span<const std::byte>(bytes), GetParam()), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Offsets, PatternAt,
                         testing::Values(0, 1, 255, 256, 0xffffff, 0x1000000, 0x123456789abcdef,
                                         UINT64_MAX - 500));

TEST(Pattern, EveryWrongByteCounts) {
  std::vector<std::byte> bytes(5000);
  fill_pattern(bytes, 77);
  for (size_t at : {0u, 178u, 179u, 300u, 4999u})
    bytes[at] ^= std::byte{1};
  EXPECT_EQ(count_wrong(std::span<const std::byte>(bytes), 77), 5u);
}

TEST(Pattern, AnItemInPiecesIsReadInOrder) {
  std::vector<std::byte> bytes(1000);
  fill_pattern(bytes, 5);
  std::array<Fragment, 3> pieces = {
      Fragment{bytes.data(), 1}, {bytes.data() + 1, 600}, {bytes.data() + 601, 399}};
  ItemView item(pieces, 0, 1000);
  EXPECT_EQ(count_wrong(item, 5), 0u);
  EXPECT_EQ(crc32c(item), crc32c(std::span<const std::byte>(bytes)));
  EXPECT_GT(count_wrong(item, 6), 900u);
}

TEST(Crc32c, IsCastagnoliWithBothXors) {
  std::string_view digits = "123456789";  // the check value in CRC catalogues
  EXPECT_EQ(crc32c(std::as_bytes(std::span(digits))), 0xe3069283u);
  EXPECT_EQ(crc32c(std::span<const std::byte>()), 0u);
}

// A readable page, and an unreadable one behind it.
class TwoPages {
 public:
  TwoPages() { mprotect(pages_ + size_, size_, PROT_NONE); }
  ~TwoPages() { munmap(pages_, 2 * size_); }
  const std::byte* at(ptrdiff_t before_the_end) const { return pages_ + size_ - before_the_end; }

 private:
  size_t size_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::byte* pages_ = static_cast<std::byte*>(
      mmap(nullptr, 2 * size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
};

TEST(TouchDeathTest, ReadsEveryFragmentToItsLastByteAndNoFurther) {
  TwoPages first;
  TwoPages second;
  for (uint32_t length : {1u, 7u, 8u, 100u}) {
    const Fragment good[] = {{first.at(length), length}, {second.at(3), 3}};
    touch(ItemView(good, 0, length + 3));
    const Fragment bad_end[] = {{first.at(length), length}, {second.at(3), 4}};
    EXPECT_DEATH(touch(ItemView(bad_end, 0, length + 4)), "");
    const Fragment bad_middle[] = {{first.at(length - 1), length}, {second.at(3), 3}};
    EXPECT_DEATH(touch(ItemView(bad_middle, 0, length + 3)), "");
  }
}

}  // namespace
}  // namespace rrdk::testrpc
