// Streams cut into pieces, for tests of their readers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "rrdk/xdr.h"
#include "test/seed.h"

namespace rrdk::test {

using Bytes = std::vector<std::byte>;

inline Bytes bytes_of(std::span<const std::byte> from) {
  return {from.begin(), from.end()};
}

inline Bytes bytes_of(const ItemView& item) {
  Bytes out(item.size());
  item.copy_to(out.data());
  return out;
}

inline void append_u32(Bytes& to, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8)
    to.push_back(static_cast<std::byte>(value >> shift));
}

inline Bytes words_of(std::initializer_list<uint32_t> values) {
  Bytes out;
  for (uint32_t value : values)
    append_u32(out, value);
  return out;
}

inline Bytes random_bytes(std::mt19937_64& random, size_t length) {
  Bytes out(length);
  for (std::byte& b : out)
    b = static_cast<std::byte>(random());
  return out;
}

// A stream in its own fragments. Each is a heap block of exactly its size, so that AddressSanitizer
// sees a read one byte too far.
class Scattered {
 public:
  // Cut after each of `lengths` bytes; the rest is the last fragment.
  Scattered(std::span<const std::byte> stream, std::span<const size_t> lengths) {
    for (size_t length : lengths) {
      size_t n = std::min(length, stream.size());
      add(stream.first(n));
      stream = stream.subspan(n);
    }
    add(stream);
  }
  explicit Scattered(std::span<const std::byte> stream) { add(stream); }
  // Cut at random; some fragments are empty.
  Scattered(std::span<const std::byte> stream, std::mt19937_64& random) {
    while (!stream.empty()) {
      size_t longest = random() % 4 == 0 ? 200 : 9;
      size_t n = std::min<size_t>(random() % longest, stream.size());
      add(stream.first(n));
      stream = stream.subspan(n);
    }
  }
  std::span<const Fragment> fragments() const { return fragments_; }

 private:
  void add(std::span<const std::byte> bytes) {
    auto block = std::make_unique<std::byte[]>(bytes.size());
    std::copy(bytes.begin(), bytes.end(), block.get());
    fragments_.push_back({block.get(), static_cast<uint32_t>(bytes.size())});
    blocks_.push_back(std::move(block));
  }
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::vector<Fragment> fragments_;
};

}  // namespace rrdk::test
