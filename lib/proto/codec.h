// The transport headers of all versions: pure functions on bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "proto/header.h"

namespace rrdk::proto {

// The four fixed words, whatever the version. Empty below 16 bytes.
std::optional<FixedWords> peek(std::span<const std::byte> message);

// Most messages by far: an RDMA_MSG with three empty lists and nothing to invalidate, of one of the
// versions that are taken, and behind it an RPC message under the same XID, of the direction that
// the header says.
struct Plain {
  uint32_t xid;
  uint32_t credits;
  Wire wire;
  Direction direction;

  uint32_t header_length() const noexcept { return min_header(wire); }
};

// False: it is another message, or there is something wrong with it; decode() says what. It does
// not return an optional: the compiler stores such a small one byte by byte and loads it as two
// words, and a load that spans several stores waits until they, and all before them, have left the
// core.
bool match_plain(std::span<const std::byte> message, const Versions& versions,
                 Plain& plain) noexcept;

// The header of such a message as decode() would fill it in.
void fill_header(const Plain& plain, Header& header);

// The key of the first Read segment in a header that has not been decoded: a guess, to prefetch by.
// 0: it has none.
uint32_t guess_read_key(std::span<const std::byte> message) noexcept;

// Decodes and checks one whole header. `message` is exactly what was received; `expected` is the
// direction of a message that does not say which it has.
//
// On any verdict but kTooShort, `header`'s fixed words and its direction are valid (an error answer
// needs them); its type too unless the verdict is kBadVersion or kBadType; and its lists are empty
// where the message has none. An ERR_VERS is understood whatever its version word (V1-ERR-05). Of
// the other fields only those that the type has are written: see Header. Bytes behind a header that
// no message follows are not looked at; they include the eight words that RFC 5666 puts behind
// ERR_CHUNK and later texts do not (V1-HDR-18, V1-ERR-09).
Decoded decode(std::span<const std::byte> message, Direction expected, const Limits& limits,
               Header& header);

// Writes a header of kind header.wire; an ERR_VERS has header.version as its version. Returns its
// length, or 0 when `out` is too small. An error that the version does not have is written as its
// general one. ERR_CHUNK is written in its short form, without RFC 5666's extra words. Read chunks
// are written in the order they have.
uint32_t encode(const Header& header, std::span<std::byte> out);

// The length that encode() would write.
uint32_t encoded_length(const Header& header);

// The same for a header of type kOptional, of version 2, with its data; a message may follow.
uint32_t encode_option(const Header& header, std::span<const std::byte> data,
                       std::span<std::byte> out);

// What an RDMA_MSG says in front of its lists.
struct Start {
  Wire wire;
  Direction direction;
  uint32_t xid;
  uint32_t credits;
  uint32_t invalidate;  // 0: none; version 1 says nothing of it
};

// With three empty lists: min_header(wire) bytes.
void encode_plain(const Start& start, std::byte* out);

// The lists of a header of version 1 that is RDMA_MSG with one segment, in the Read list or as a
// Write chunk. False: it has others, or there is something wrong with them. `header` has at least
// kMinHeader + kOneSegmentBytes bytes.
bool decode_one_segment(std::span<const std::byte> header, const Limits& limits,
                        ChunkLists& lists) noexcept;

// With one segment, in the Read list or as a Write chunk: so many bytes more.
constexpr uint32_t kOneSegmentBytes = 24;
void encode_one_read(const Start& start, uint32_t position, const Segment& segment, std::byte* out);
void encode_one_write(const Start& start, const Segment& segment, std::byte* out);

}  // namespace rrdk::proto
