#include <algorithm>

#include "proto/codec_impl.h"

namespace rrdk::proto {

namespace {

// Limits that the lists exceed. Parsing continues after a breach, since invalid XDR takes
// precedence.
struct Breaches {
  bool reads = false, writes = false, segments = false, bytes = false;

  Verdict first() const {
    if (reads)
      return Verdict::kTooManyReadChunks;
    if (writes)
      return Verdict::kTooManyWriteChunks;
    if (segments)
      return Verdict::kTooManySegments;
    return bytes ? Verdict::kTooManyBytes : Verdict::kOk;
  }
};

// Whether one more entry follows. XDR has no booleans other than 0 and 1 (V1-HDR-17).
Verdict parse_present(Cursor& in, bool& present) {
  if (in.left() < kWord)
    return Verdict::kTruncated;
  uint32_t word = in.word();
  present = word == 1;
  return word <= 1 ? Verdict::kOk : Verdict::kBadDiscriminator;
}

// Sorts segments by their keys, which are Position and place in the list, so that the segments of
// one Position stay in list order (V1-RL-07). Not std::stable_sort, since that allocates memory.
void sort_segments(std::span<uint64_t> keys, Segment* segments) {
  Segment unsorted[kMaxSegments];
  std::copy_n(segments, keys.size(), unsorted);
  std::sort(keys.begin(), keys.end());
  for (size_t i = 0; i < keys.size(); ++i)
    segments[i] = unsorted[static_cast<uint32_t>(keys[i])];
}

// Makes a chunk of each run of equal Positions.
void group_reads(std::span<const uint64_t> keys, const Limits& limits, ChunkLists& lists,
                 Breaches& breaches) {
  const auto count = static_cast<uint16_t>(keys.size());  // at most kMaxSegments
  const uint32_t max_items = std::min(limits.read_chunks, kMaxReadChunks);
  uint32_t items = 0;
  for (uint16_t i = 0; i < count; ++i) {
    auto position = static_cast<uint32_t>(keys[i] >> 32);
    if (i == 0 || lists.reads[lists.num_reads - 1].position != position) {
      items += position != 0;
      breaches.reads |= items > max_items;
      if (breaches.reads)
        return;
      lists.reads[lists.num_reads++] = {position, i, 0, 0};
    }
    ReadChunk& chunk = lists.reads[lists.num_reads - 1];
    breaches.segments |= ++chunk.count > limits.chunk_segments;
    chunk.length += lists.segments[i].length;
    lists.read_length += lists.segments[i].length;
  }
  breaches.bytes |= lists.read_length > limits.read_bytes;
}

Verdict parse_reads(Cursor& in, const Limits& limits, ChunkLists& lists, Breaches& breaches) {
  uint64_t keys[kMaxSegments];
  uint16_t max_segments = std::min({limits.read_segments, limits.segments, kMaxSegments});
  uint16_t count = 0;
  bool sorted = true;
  bool present;
  Verdict v;
  while ((v = parse_present(in, present)) == Verdict::kOk && present) {
    if (in.left() < kReadEntryBytes - kWord)
      return Verdict::kTruncated;
    uint32_t position = in.word();
    if (position % kWord != 0)
      return Verdict::kBadPosition;
    Segment segment = in.segment();
    if (count == max_segments) {
      breaches.segments = true;
      continue;
    }
    keys[count] = uint64_t{position} << 32 | count;
    sorted = sorted && (count == 0 || keys[count - 1] < keys[count]);
    lists.segments[count++] = segment;
  }
  lists.num_segments = count;
  if (!sorted)
    sort_segments({keys, count}, lists.segments);
  group_reads({keys, count}, limits, lists, breaches);
  return v;
}

// Parses a count and that many segments: an entry of the Write list, or the Reply chunk.
Verdict parse_chunk(Cursor& in, const Limits& limits, ChunkLists& lists, Breaches& breaches,
                    WriteChunk& chunk) {
  if (in.left() < kWord)
    return Verdict::kTruncated;
  uint32_t count = in.word();
  if (count > in.left() / kSegmentBytes)
    return Verdict::kTruncated;
  uint32_t max_segments = std::min(limits.segments, kMaxSegments);
  chunk = {lists.num_segments, 0, 0};
  if (lists.num_segments + count > max_segments || count > limits.chunk_segments) {
    breaches.segments = true;
    in.skip(size_t{count} * kSegmentBytes);
    return Verdict::kOk;
  }
  for (chunk.count = static_cast<uint16_t>(count); count != 0; --count) {
    const Segment& s = lists.segments[lists.num_segments++] = in.segment();
    chunk.length += s.length;
  }
  return Verdict::kOk;
}

Verdict parse_writes(Cursor& in, const Limits& limits, ChunkLists& lists, Breaches& breaches) {
  uint16_t max_chunks = std::min(limits.write_chunks, kMaxWriteChunks);
  uint64_t length = 0;
  bool present;
  Verdict v;
  while ((v = parse_present(in, present)) == Verdict::kOk && present) {
    WriteChunk chunk;
    if (v = parse_chunk(in, limits, lists, breaches, chunk); v != Verdict::kOk)
      return v;
    if (lists.num_writes == max_chunks) {
      breaches.writes = true;
      continue;
    }
    lists.writes[lists.num_writes++] = chunk;
    length += chunk.length;
  }
  breaches.bytes |= length > limits.write_bytes;
  return v;
}

Verdict parse_reply(Cursor& in, const Limits& limits, ChunkLists& lists, Breaches& breaches) {
  Verdict v = parse_present(in, lists.has_reply);
  if (v == Verdict::kOk && lists.has_reply) {
    v = parse_chunk(in, limits, lists, breaches, lists.reply);
    breaches.bytes |= lists.reply.length > limits.write_bytes;
  }
  return v;
}

// Parses most lists that are not empty: a single Read segment, or one Write chunk of one segment.
// Both take nine words. Returns false if the lists are different, or if something is wrong with
// them.
bool parse_one_segment(Cursor& in, const Limits& limits, ChunkLists& lists) {
  constexpr size_t kBytes = 9 * kWord;
  constexpr size_t kEnd = kBytes - 2 * kWord;  // of the Write list, and no Reply chunk
  if (in.left() < kBytes || (in.peek(kEnd) | in.peek(kEnd + kWord)) != 0 ||
      std::min(limits.segments, limits.chunk_segments) == 0)
    return false;
  if (in.peek(0) == 0) {
    const uint32_t length = in.peek(4 * kWord);
    if (in.peek(kWord) != 1 || in.peek(2 * kWord) != 1 || limits.write_chunks == 0 ||
        length > limits.write_bytes)
      return false;
    in.skip(3 * kWord);
    lists.writes[0] = {0, 1, length};
    lists.num_writes = 1;
  } else {
    const uint32_t position = in.peek(kWord);
    const uint32_t length = in.peek(3 * kWord);
    if (in.peek(0) != 1 || position % kWord != 0 || in.peek(6 * kWord) != 0 ||
        std::min(limits.read_segments, limits.read_chunks) == 0 || length > limits.read_bytes)
      return false;
    in.skip(2 * kWord);
    lists.reads[0] = {position, 0, 1, length};
    lists.num_reads = 1;
    lists.read_length = length;
  }
  lists.segments[0] = in.segment();
  lists.num_segments = 1;
  in.skip(lists.num_reads != 0 ? 3 * kWord : 2 * kWord);
  return true;
}

}  // namespace

bool decode_one_segment(std::span<const std::byte> header, const Limits& limits,
                        ChunkLists& lists) noexcept {
  constexpr size_t kFixed = 4 * kWord;  // XID, version, credits and type
  lists.clear();
  Cursor in(header.subspan(kFixed));
  return parse_one_segment(in, limits, lists);
}

namespace {

// Positions count in the unreduced stream (V1-RL-04): it has `reduced` bytes besides the chunks,
// and each chunk takes its length rounded up, sent with its pad or without (V1-PAD-05).
Verdict check_positions(std::span<const ReadChunk> chunks, uint64_t reduced) {
  uint64_t chunks_end = 0;
  uint64_t in_chunks = 0;
  for (const ReadChunk& chunk : chunks) {
    if (chunk.position < chunks_end)
      return Verdict::kOverlap;
    if (chunk.position - in_chunks > reduced)
      return Verdict::kBeyondMessage;
    uint64_t rounded = (chunk.length + kWord - 1) / kWord * kWord;
    chunks_end = chunk.position + rounded;
    in_chunks += rounded;
  }
  return Verdict::kOk;
}

Verdict check_msg(const ChunkLists& lists, size_t inline_bytes) {
  std::span<const ReadChunk> reads(lists.reads, lists.num_reads);
  if (reads.empty())
    return Verdict::kOk;
  if (reads[0].position == 0)
    return Verdict::kPositionZeroInMsg;
  return check_positions(reads, inline_bytes);
}

Verdict check_nomsg(const ChunkLists& lists, Direction direction) {
  std::span<const ReadChunk> reads(lists.reads, lists.num_reads);
  if (direction == Direction::kReply) {
    if (!lists.has_reply || lists.reply.length == 0)
      return Verdict::kNoMessage;
    return check_positions(reads, lists.reply.length);
  }
  if (reads.empty() || reads[0].position != 0 || reads[0].length == 0)
    return Verdict::kNoMessage;
  return check_positions(reads.subspan(1), reads[0].length);
}

void put_chunk(Writer& out, const ChunkLists& lists, const WriteChunk& chunk) {
  out.word(1);
  out.word(chunk.count);
  for (const Segment& s : lists.of(chunk))
    out.segment(s);
}

}  // namespace

Verdict parse_lists(Cursor& in, const Limits& limits, ChunkLists& lists, Verdict& breach) {
  breach = Verdict::kOk;
  if (parse_one_segment(in, limits, lists)) [[likely]]
    return Verdict::kOk;
  Breaches breaches;
  Verdict v = parse_reads(in, limits, lists, breaches);
  if (v == Verdict::kOk)
    v = parse_writes(in, limits, lists, breaches);
  if (v == Verdict::kOk)
    v = parse_reply(in, limits, lists, breaches);
  breach = breaches.first();
  return v;
}

Verdict check_lists(const Header& header, size_t inline_bytes) {
  return header.type == MessageType::kNoMsg ? check_nomsg(header.lists, header.direction)
                                            : check_msg(header.lists, inline_bytes);
}

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
