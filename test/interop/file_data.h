// The content of a regular file: blocks by number, so that a file may have holes. It has no size
// limit of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

namespace rrdk::interop {

class FileData {
 public:
  static constexpr uint32_t kBlock = 4096;

  uint64_t size() const { return size_; }
  size_t blocks() const { return blocks_.size(); }
  // How many blocks a write of these bytes would add.
  size_t new_blocks(uint64_t offset, uint64_t length) const;

  // Copies the existing data; holes are zero. The caller keeps the range inside size().
  void read(uint64_t offset, std::span<std::byte> to) const;
  void write(uint64_t offset, std::span<const std::byte> from);
  // Makes it shorter, or longer with a hole at its end.
  void resize(uint64_t size);

 private:
  using Block = std::array<std::byte, kBlock>;
  std::map<uint64_t, std::unique_ptr<Block>> blocks_;
  uint64_t size_ = 0;
};

}  // namespace rrdk::interop
