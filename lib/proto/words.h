// Sizes and numbers of transport headers, and cursors over their words, shared by the codecs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "proto/header.h"
#include "proto/wire.h"
#include "rrdk/xdr.h"

namespace rrdk::proto {

constexpr uint32_t kWord = 4;
constexpr uint32_t kSegmentBytes = 16;
constexpr uint32_t kReadEntryBytes = 24;  // discriminator, Position, segment
constexpr uint32_t kMinError = 20;
constexpr uint32_t kErrVersBytes = 28;

// The part of the message that is not parsed yet. Whoever takes has compared with left().
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes)
      : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  size_t left() const { return static_cast<size_t>(end_ - at_); }
  uint32_t word() {
    uint32_t value = xdr::load_u32(at_);
    at_ += kWord;
    return value;
  }
  Segment segment() {
    Segment s = {xdr::load_u32(at_), xdr::load_u32(at_ + 4), xdr::load_u64(at_ + 8)};
    at_ += kSegmentBytes;
    return s;
  }
  void skip(size_t bytes) { at_ += bytes; }
  // The word behind `bytes` others.
  uint32_t peek(size_t bytes) const { return xdr::load_u32(at_ + bytes); }

 private:
  const std::byte* at_;
  const std::byte* end_;
};

// Writes words one after the other; encode() has made sure of the room.
class Writer {
 public:
  explicit Writer(std::byte* at) : at_(at) {}

  void word(uint32_t value) {
    xdr::store_u32(at_, value);
    at_ += kWord;
  }
  void zeros(size_t words) {
    std::memset(at_, 0, words * kWord);
    at_ += words * kWord;
  }
  void segment(const Segment& s) {
    word(s.handle);
    word(s.length);
    xdr::store_u64(at_, s.offset);
    at_ += 2 * kWord;
  }
  // XDR's opaque<>: length, bytes, zeros up to a multiple of four.
  void opaque(std::span<const std::byte> bytes) {
    word(static_cast<uint32_t>(bytes.size()));
    for (std::byte b : bytes)
      *at_++ = b;
    for (uint32_t pad = xdr_pad(bytes.size()); pad != 0; --pad)
      *at_++ = std::byte{};
  }

 private:
  std::byte* at_;
};

}  // namespace rrdk::proto
