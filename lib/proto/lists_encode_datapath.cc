#include "proto/lists.h"

namespace rrdk::proto {

namespace {

void put_chunk(Writer& out, const ChunkLists& lists, const WriteChunk& chunk) {
  out.word(1);
  out.word(chunk.count);
  for (const Segment& s : lists.of(chunk))
    out.segment(s);
}

}  // namespace

uint32_t lists_length(const ChunkLists& lists) {
  uint32_t length = 3 * kWord;
  for (uint16_t i = 0; i < lists.num_reads; ++i)
    length += kReadEntryBytes * lists.reads[i].count;
  for (uint16_t i = 0; i < lists.num_writes; ++i)
    length += 2 * kWord + kSegmentBytes * lists.writes[i].count;
  if (lists.has_reply)
    length += kWord + kSegmentBytes * lists.reply.count;
  return length;
}

void encode_lists(Writer& out, const ChunkLists& lists) {
  for (uint16_t i = 0; i < lists.num_reads; ++i) {
    for (const Segment& s : lists.of(lists.reads[i])) {
      out.word(1);
      out.word(lists.reads[i].position);
      out.segment(s);
    }
  }
  out.word(0);
  for (uint16_t i = 0; i < lists.num_writes; ++i)
    put_chunk(out, lists, lists.writes[i]);
  out.word(0);
  if (lists.has_reply)
    put_chunk(out, lists, lists.reply);
  else
    out.word(0);
}

}  // namespace rrdk::proto
