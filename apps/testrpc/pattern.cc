#include "pattern.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace rrdk::testrpc {
namespace {

constexpr size_t kBlock = 256;
using Block = std::array<std::byte, kBlock>;

// Only the three lowest bytes of an offset matter, and within 256 aligned bytes only the lowest one
// changes. So every aligned block is one of 256, selected by the xor of the other two. 64 KB in
// all.
const std::array<Block, 256>& blocks() {
  static const std::array<Block, 256> table = [] {
    std::array<Block, 256> made;
    for (size_t key = 0; key < 256; ++key) {
      for (size_t low = 0; low < kBlock; ++low)
        made[key][low] = static_cast<std::byte>(((low ^ key) * 167 + 13) & 0xff);
    }
    return made;
  }();
  return table;
}

// Calls fn(position in `length`, bytes that belong there) for each run that one block covers.
template <typename Fn>
void for_each_run(uint64_t offset, size_t length, Fn&& fn) {
  const std::array<Block, 256>& table = blocks();
  for (size_t done = 0; done < length;) {
    uint64_t x = offset + done;
    size_t low = x & 0xff;
    size_t n = std::min(kBlock - low, length - done);
    const Block& block = table[((x >> 8) ^ (x >> 16)) & 0xff];
    fn(done, std::span(block).subspan(low, n));
    done += n;
  }
}

uint32_t extend(uint32_t state, const std::byte* data, size_t length) noexcept {
  // ISA-L takes a mutable pointer, and an int for the length: our items are below 2 GB.
  auto* bytes = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(data));
  return crc32_iscsi(bytes, static_cast<int>(length), state);
}

}  // namespace

void fill_pattern(std::span<std::byte> bytes, uint64_t offset) noexcept {
  for_each_run(offset, bytes.size(), [&](size_t at, std::span<const std::byte> right) {
    std::memcpy(bytes.data() + at, right.data(), right.size());
  });
}

uint64_t count_wrong(std::span<const std::byte> bytes, uint64_t offset) noexcept {
  uint64_t wrong = 0;
  for_each_run(offset, bytes.size(), [&](size_t at, std::span<const std::byte> right) {
    if (std::memcmp(bytes.data() + at, right.data(), right.size()) == 0)
      return;
    for (size_t i = 0; i < right.size(); ++i)
      wrong += bytes[at + i] != right[i];
  });
  return wrong;
}

uint64_t count_wrong(const ItemView& bytes, uint64_t offset) noexcept {
  uint64_t wrong = 0;
  bytes.for_each([&](const std::byte* data, size_t length) {
    wrong += count_wrong(std::span(data, length), offset);
    offset += length;
  });
  return wrong;
}

uint32_t crc32c(std::span<const std::byte> bytes) noexcept {
  return ~extend(~0u, bytes.data(), bytes.size());
}

uint32_t crc32c(const ItemView& bytes) noexcept {
  uint32_t state = ~0u;
  bytes.for_each(
      [&](const std::byte* data, size_t length) { state = extend(state, data, length); });
  return ~state;
}

// Reads a cache line at a time into independent sums, so that the cost is that of the memory, not
// of the loop.
void touch(std::span<const std::byte> bytes) noexcept {
  std::array<uint64_t, 8> sums{};
  std::array<uint64_t, 8> line;
  for (; bytes.size() >= sizeof line; bytes = bytes.subspan(sizeof line)) {
    std::memcpy(line.data(), bytes.data(), sizeof line);
    for (size_t i = 0; i < line.size(); ++i)
      sums[i] += line[i];
  }
  for (const std::byte b : bytes)
    sums[0] += std::to_integer<uint64_t>(b);
  for (const uint64_t sum : sums)
    asm volatile("" : : "r"(sum));  // keeps the compiler from removing unused sums
}

void touch(const ItemView& bytes) noexcept {
  bytes.for_each([](const std::byte* data, size_t length) { touch({data, length}); });
}

}  // namespace rrdk::testrpc
