// The transport headers of all versions: pure functions on bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "proto/header.h"

namespace rrdk::proto {

// Returns the four fixed words, in any version. Empty if there are fewer than 16 bytes.
std::optional<FixedWords> peek(std::span<const std::byte> message);

// By far the most common messages: an RDMA_MSG with three empty lists and nothing to invalidate, in
// one of the accepted versions, followed by an RPC message with the same XID and of the direction
// that the header states.
struct Plain {
  uint32_t xid;
  uint32_t credits;
  Wire wire;
  Direction direction;

  uint32_t header_length() const noexcept { return min_header(wire); }
};

// Returns false if it is another message, or if something is wrong with it, which decode() will
// report. It does not return an optional: the compiler stores such a small one byte by byte and
// loads it as two words, and a load that spans several stores waits until they, and all before
// them, have left the core.
bool match_plain(std::span<const std::byte> message, const Versions& versions,
                 Plain& plain) noexcept;

// Fills in the header of such a message as decode() would.
void fill_header(const Plain& plain, Header& header);

// Returns the key of the first Read segment in a header that has not been decoded, as a hint for
// prefetching; 0: none.
uint32_t guess_read_key(std::span<const std::byte> message) noexcept;

// Decodes and checks one whole header. `message` is exactly what was received; `expected` is the
// direction of a message that does not state one.
//
// On any verdict except kTooShort, `header`'s fixed words and its direction are valid (an error
// answer needs them); so is its type, unless the verdict is kBadVersion or kBadType; and its lists
// are empty if the message has none. An ERR_VERS is understood whatever its version word
// (V1-ERR-05). Only those of the other fields that the type has are written: see Header. Bytes
// after a header that no message follows are not checked; they include the eight words that RFC
// 5666 puts after ERR_CHUNK and later texts do not (V1-HDR-18, V1-ERR-09).
Decoded decode(std::span<const std::byte> message, Direction expected, const Limits& limits,
               Header& header);

// Writes a header of kind header.wire; an ERR_VERS has header.version as its version. Returns its
// length, or 0 if `out` is too small. An error that the version lacks is written as its general
// one. ERR_CHUNK is written in its short form, without RFC 5666's extra words. Read chunks are
// written in their order.
uint32_t encode(const Header& header, std::span<std::byte> out);

// The length that encode() would write.
uint32_t encoded_length(const Header& header);

// The same for a header of type kOptional, in version 2, with its data; a message may follow.
uint32_t encode_option(const Header& header, std::span<const std::byte> data,
                       std::span<std::byte> out);

// The part of an RDMA_MSG before its lists.
struct Start {
  Wire wire;
  Direction direction;
  uint32_t xid;
  uint32_t credits;
  uint32_t invalidate;  // 0: none; version 1 has no such field
};

// With three empty lists: writes min_header(wire) bytes.
void encode_plain(const Start& start, std::byte* out);

// Reads the lists of a version 1 header that is an RDMA_MSG with one segment, in the Read list or
// as a Write chunk. Returns false if it has other lists, or if something is wrong with them.
// `header` must have at least kMinHeader + kOneSegmentBytes bytes.
bool decode_one_segment(std::span<const std::byte> header, const Limits& limits,
                        ChunkLists& lists) noexcept;

// How much longer a header with one segment is, in the Read list or as a Write chunk.
constexpr uint32_t kOneSegmentBytes = 24;
void encode_one_read(const Start& start, uint32_t position, const Segment& segment, std::byte* out);
void encode_one_write(const Start& start, const Segment& segment, std::byte* out);

}  // namespace rrdk::proto
