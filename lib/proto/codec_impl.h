// The building blocks of the codecs: cursors over the words of a header, its chunk lists, and what
// follows the fixed words in each version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "proto/header.h"
#include "rrdk/xdr.h"

namespace rrdk::proto {

// Sizes and numbers of transport headers, and cursors over their words, shared by the codecs.

constexpr uint32_t kWord = 4;
constexpr uint32_t kSegmentBytes = 16;
constexpr uint32_t kReadEntryBytes = 24;  // discriminator, Position, segment
constexpr uint32_t kMinError = 20;
constexpr uint32_t kErrVersBytes = 28;

// The part of the message that has not been parsed yet. Callers must check left() before they take
// anything.
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
  // The word after the next `bytes` bytes.
  uint32_t peek(size_t bytes) const { return xdr::load_u32(at_ + bytes); }

 private:
  const std::byte* at_;
  const std::byte* end_;
};

// Writes words one after the other; encode() has checked that there is enough space.
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

// The three chunk lists, which have the same bytes in every version (RFC 5666 section 4.3).

// Reads the lists; what is left in `in` afterwards is inline. If the result is not kOk, the lists
// are not valid XDR. `breach` is the first limit that they exceed, in the order of version 2's
// errors (V2D4-ERR-18), or kOk. After a breach `lists` has only the part that is within the limits.
Verdict parse_lists(Cursor& in, const Limits& limits, ChunkLists& lists, Verdict& breach);

// Returns whether the chunks make a message. The header must have no breach and a known direction;
// `inline_bytes` follow it.
Verdict check_lists(const Header& header, size_t inline_bytes);

void encode_lists(Writer& out, const ChunkLists& lists);
uint32_t lists_length(const ChunkLists& lists);

// What follows the fixed words, by version (versions_datapath.cc). `header` already has the fixed
// words, `wire`, the expected direction and empty lists.

namespace version1 {
Decoded decode_body(std::span<const std::byte> message, uint32_t proc, const Limits& limits,
                    Header& header);
uint32_t body_length(const Header& header);
void encode_body(Writer& out, const Header& header);
// For a type with lists; draft-00 has the same (V2D0-HDR-03).
Decoded decode_with_lists(std::span<const std::byte> message, const Limits& limits, Header& header);
}  // namespace version1

namespace version2 {
Decoded decode_body(std::span<const std::byte> message, uint32_t proc, const Limits& limits,
                    Header& header);
uint32_t body_length(const Header& header);
void encode_body(Writer& out, const Header& header);
}  // namespace version2

// ERR_VERS, whose code and range are at the same offsets in every version (V2X-15).
constexpr uint32_t kErrVers = 1;
bool is_version_error(std::span<const std::byte> message, uint32_t proc);
Decoded decode_version_error(std::span<const std::byte> message, Header& header);
// Reads the beginning of an error's body, the same for all errors. If the result is empty, `code`
// is one of the version's own.
std::optional<Decoded> decode_error_start(std::span<const std::byte> message, Header& header,
                                          uint32_t& code);

// Returns the direction that an inline RPC message states, for headers without a field for it
// (BIDIR-04); `expected` if it states none. For a message in a chunk, decode_with_lists() uses the
// lists (BIDIR-15). Called before the lists are checked.
Direction direction_of_message(std::span<const std::byte> rpc, Direction expected);

}  // namespace rrdk::proto
