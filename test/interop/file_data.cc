#include "file_data.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace rrdk::interop {
namespace {

// Calls fn(block's number, offset in it, offset in the whole, length) for each block touched.
template <typename Fn>
void for_each_block(uint64_t offset, size_t length, Fn&& fn) {
  for (size_t done = 0; done < length;) {
    uint64_t at = offset + done;
    auto within = static_cast<size_t>(at % FileData::kBlock);
    size_t n = std::min(FileData::kBlock - within, length - done);
    fn(at / FileData::kBlock, within, done, n);
    done += n;
  }
}

}  // namespace

size_t FileData::new_blocks(uint64_t offset, uint64_t length) const {
  if (length == 0)
    return 0;
  uint64_t first = offset / kBlock;
  uint64_t last = (offset + length - 1) / kBlock;
  auto there = std::distance(blocks_.lower_bound(first), blocks_.upper_bound(last));
  return static_cast<size_t>(last - first + 1) - static_cast<size_t>(there);
}

void FileData::read(uint64_t offset, std::span<std::byte> to) const {
  for_each_block(offset, to.size(), [&](uint64_t number, size_t within, size_t at, size_t n) {
    auto block = blocks_.find(number);
    if (block == blocks_.end())
      std::memset(to.data() + at, 0, n);
    else
      std::memcpy(to.data() + at, block->second->data() + within, n);
  });
}

void FileData::write(uint64_t offset, std::span<const std::byte> from) {
  for_each_block(offset, from.size(), [&](uint64_t number, size_t within, size_t at, size_t n) {
    std::unique_ptr<Block>& block = blocks_[number];
    if (block == nullptr)
      block = std::make_unique<Block>();
    std::memcpy(block->data() + within, from.data() + at, n);
  });
  if (!from.empty())
    size_ = std::max(size_, offset + from.size());
}

void FileData::resize(uint64_t size) {
  if (size < size_) {
    blocks_.erase(blocks_.lower_bound((size + kBlock - 1) / kBlock), blocks_.end());
    // Data that was cut off must not come back when the file grows again.
    if (auto last = blocks_.find(size / kBlock); last != blocks_.end())
      std::fill(last->second->begin() + static_cast<ptrdiff_t>(size % kBlock), last->second->end(),
                std::byte{0});
  }
  size_ = size;
}

}  // namespace rrdk::interop
