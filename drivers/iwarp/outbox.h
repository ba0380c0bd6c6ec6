// What one system call gives to TCP: headers and small messages, copied one after another into one
// buffer, and large payloads, which stay where they are. A completion queue has one, for the queue
// pair that sends; nothing is kept in it from one call to the next.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/assert.h"
#include "fabric/work.h"

namespace rrdk::iwarp {

class Outbox {
 public:
  // A payload of up to this length is copied, which costs less than describing its location to the
  // kernel.
  static constexpr uint32_t kMostCopied = 4096;

  void clear() noexcept { first_ = pieces_ = used_ = length_ = 0; }
  bool empty() const noexcept { return length_ == 0; }
  size_t length() const noexcept { return length_; }
  // Whether one more FPDU fits, and it is still worth adding one.
  bool has_room() const noexcept {
    return used_ <= kBytes - kMostFramed && pieces_ <= kPieces - kMostPieces &&
           length_ < kMostBytes;
  }

  // Returns space for `length` bytes of headers or of a small message, to be filled in.
  std::byte* extend(size_t length) noexcept {
    RRDK_ASSERT(length <= kBytes - used_ && pieces_ <= kPieces, length, used_);
    std::byte* to = bytes_.data() + used_;
    if (pieces_ == 0 ||
        static_cast<std::byte*>(list_[pieces_ - 1].iov_base) + list_[pieces_ - 1].iov_len != to)
      list_[pieces_++] = {to, 0};
    list_[pieces_ - 1].iov_len += length;
    used_ += length;
    length_ += length;
    return to;
  }
  void lend(void* data, size_t length) noexcept {
    RRDK_ASSERT(pieces_ < kPieces, pieces_);
    list_[pieces_++] = {data, length};
    length_ += length;
  }
  // Removes the first bytes: TCP has them.
  void drop_front(size_t length) noexcept {
    RRDK_ASSERT(length <= length_, length, length_);
    length_ -= length;
    while (length != 0) {
      iovec& piece = list_[first_];
      const size_t part = std::min(length, piece.iov_len);
      piece.iov_base = static_cast<std::byte*>(piece.iov_base) + part;
      piece.iov_len -= part;
      length -= part;
      first_ += piece.iov_len == 0;
    }
  }

  // Returns how many bytes TCP took, or -errno.
  ssize_t send(int socket) noexcept;

 private:
  static constexpr size_t kBytes = 64 << 10;
  static constexpr size_t kPieces = 128;  // kMostBytes in pages of 4 KiB, and their frames
  static constexpr size_t kMostBytes = 256 << 10;
  // For one FPDU: head, payload and tail, and what was there before it.
  static constexpr size_t kMostPieces = fabric::kMaxSges + 3;
  static constexpr size_t kMostFramed = kMostCopied + 64;

  size_t first_ = 0;  // in list_: not yet dropped
  size_t pieces_ = 0;
  size_t used_ = 0;    // of bytes_
  size_t length_ = 0;  // of everything that is not dropped
  std::array<iovec, kPieces> list_;
  std::array<std::byte, kBytes> bytes_;
};

}  // namespace rrdk::iwarp
