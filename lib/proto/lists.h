// The three chunk lists, which have the same bytes in every version (RFC 5666 section 4.3).
#pragma once

#include "proto/header.h"
#include "proto/words.h"

namespace rrdk::proto {

// Reads the lists; what is left in `in` afterwards is inline. Not kOk: they are no XDR. `breach` is
// the first limit that they go beyond, in the order of the errors of version 2 (V2D4-ERR-18), or
// kOk; when there is one, only what is within the limits has been kept.
Verdict parse_lists(Cursor& in, const Limits& limits, ChunkLists& lists, Verdict& breach);

// Whether the chunks make a message: of a header without a breach, whose direction is known, and
// which `inline_bytes` follow.
Verdict check_lists(const Header& header, size_t inline_bytes);

void encode_lists(Writer& out, const ChunkLists& lists);
uint32_t lists_length(const ChunkLists& lists);

}  // namespace rrdk::proto
