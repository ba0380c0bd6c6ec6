#include <algorithm>
#include <cstring>

#include "proto/version1.h"
#include "proto/version1_words.h"
#include "rrdk/xdr.h"

namespace rrdk::proto::version1 {

namespace {

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

 private:
  const std::byte* at_;
  const std::byte* end_;
};

// Whether one more entry follows. XDR has no booleans but 0 and 1 (V1-HDR-17).
Verdict parse_present(Cursor& in, bool& present) {
  if (in.left() < kWord)
    return Verdict::kTruncated;
  uint32_t word = in.word();
  present = word == 1;
  return word <= 1 ? Verdict::kOk : Verdict::kBadBool;
}

// Puts segments in the order of their keys, which are Position and place in the list: one
// Position's segments stay in list order (V1-RL-07). Not std::stable_sort, since that takes memory.
void sort_segments(std::span<uint64_t> keys, Segment* segments) {
  Segment unsorted[kMaxSegments];
  std::copy_n(segments, keys.size(), unsorted);
  std::sort(keys.begin(), keys.end());
  for (size_t i = 0; i < keys.size(); ++i)
    segments[i] = unsorted[static_cast<uint32_t>(keys[i])];
}

// Makes a chunk of each run of equal Positions.
Verdict group_reads(std::span<const uint64_t> keys, const Limits& limits, ChunkLists& lists) {
  uint16_t max_chunks = std::min(limits.read_chunks, kMaxReadChunks);
  const auto count = static_cast<uint16_t>(keys.size());  // at most kMaxSegments
  for (uint16_t i = 0; i < count; ++i) {
    auto position = static_cast<uint32_t>(keys[i] >> 32);
    if (i == 0 || lists.reads[lists.num_reads - 1].position != position) {
      if (lists.num_reads == max_chunks)
        return Verdict::kTooManyChunks;
      lists.reads[lists.num_reads++] = {position, i, 0, 0};
    }
    ReadChunk& chunk = lists.reads[lists.num_reads - 1];
    ++chunk.count;
    chunk.length += lists.segments[i].length;
    lists.read_length += lists.segments[i].length;
  }
  return lists.read_length > limits.read_bytes ? Verdict::kTooManyBytes : Verdict::kOk;
}

Verdict parse_read_entries(Cursor& in, const Limits& limits, ChunkLists& lists) {
  uint64_t keys[kMaxSegments];
  uint16_t max_segments = std::min({limits.read_segments, limits.segments, kMaxSegments});
  uint16_t count = 0;
  bool sorted = true;
  for (bool present = true; present;) {
    if (in.left() < kReadEntryBytes - kWord)
      return Verdict::kTruncated;
    if (count == max_segments)
      return Verdict::kTooManySegments;
    uint32_t position = in.word();
    if (position % kWord != 0)
      return Verdict::kBadPosition;
    keys[count] = uint64_t{position} << 32 | count;
    sorted = sorted && (count == 0 || keys[count - 1] < keys[count]);
    lists.segments[count++] = in.segment();
    if (Verdict v = parse_present(in, present); v != Verdict::kOk)
      return v;
  }
  lists.num_segments = count;
  if (!sorted)
    sort_segments({keys, count}, lists.segments);
  return group_reads({keys, count}, limits, lists);
}

// A count and that many segments: an entry of the Write list, or the Reply chunk.
Verdict parse_chunk(Cursor& in, const Limits& limits, ChunkLists& lists, WriteChunk& chunk) {
  if (in.left() < kWord)
    return Verdict::kTruncated;
  uint32_t count = in.word();
  if (count > in.left() / kSegmentBytes)
    return Verdict::kTruncated;
  uint32_t max_segments = std::min(limits.segments, kMaxSegments);
  if (lists.num_segments + count > max_segments)
    return Verdict::kTooManySegments;
  chunk = {lists.num_segments, static_cast<uint16_t>(count), 0};
  for (uint32_t i = 0; i < count; ++i) {
    const Segment& s = lists.segments[lists.num_segments++] = in.segment();
    chunk.length += s.length;
  }
  return Verdict::kOk;
}

Verdict parse_write_entries(Cursor& in, const Limits& limits, ChunkLists& lists) {
  uint16_t max_chunks = std::min(limits.write_chunks, kMaxWriteChunks);
  uint64_t length = 0;
  for (bool present = true; present;) {
    if (lists.num_writes == max_chunks)
      return Verdict::kTooManyChunks;
    WriteChunk& chunk = lists.writes[lists.num_writes];
    if (Verdict v = parse_chunk(in, limits, lists, chunk); v != Verdict::kOk)
      return v;
    ++lists.num_writes;
    length += chunk.length;
    if (Verdict v = parse_present(in, present); v != Verdict::kOk)
      return v;
  }
  return length > limits.write_bytes ? Verdict::kTooManyBytes : Verdict::kOk;
}

Verdict parse_reply_chunk(Cursor& in, const Limits& limits, ChunkLists& lists) {
  if (Verdict v = parse_chunk(in, limits, lists, lists.reply); v != Verdict::kOk)
    return v;
  lists.has_reply = true;
  return lists.reply.length > limits.write_bytes ? Verdict::kTooManyBytes : Verdict::kOk;
}

Verdict parse_lists(Cursor& in, const Limits& limits, ChunkLists& lists) {
  bool present;
  Verdict v = parse_present(in, present);
  if (v == Verdict::kOk && present)
    v = parse_read_entries(in, limits, lists);
  if (v == Verdict::kOk)
    v = parse_present(in, present);
  if (v == Verdict::kOk && present)
    v = parse_write_entries(in, limits, lists);
  if (v == Verdict::kOk)
    v = parse_present(in, present);
  if (v == Verdict::kOk && present)
    v = parse_reply_chunk(in, limits, lists);
  return v;
}

// Positions count in the unreduced stream (V1-RL-04): it has `reduced` bytes besides the chunks,
// and each chunk takes its length rounded up, sent with its pad or without (V1-PAD-05).
Verdict check_positions(std::span<const ReadChunk> chunks, uint64_t reduced) {
  uint64_t chunks_end = 0;
  uint64_t in_chunks = 0;
  for (const ReadChunk& chunk : chunks) {
    if (chunk.position < chunks_end)
      return Verdict::kOverlap;
    if (chunk.position - in_chunks > reduced)
      return Verdict::kBeyondStream;
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

Verdict check_nomsg(const ChunkLists& lists, Role role) {
  std::span<const ReadChunk> reads(lists.reads, lists.num_reads);
  if (role == Role::kReply) {
    if (!lists.has_reply || lists.reply.length == 0)
      return Verdict::kNoMessage;
    return check_positions(reads, lists.reply.length);
  }
  if (reads.empty() || reads[0].position != 0 || reads[0].length == 0)
    return Verdict::kNoMessage;
  return check_positions(reads.subspan(1), reads[0].length);
}

// The body of the three types that have lists, from behind the fixed words on.
Decoded decode_lists(std::span<const std::byte> message, Role role, const Limits& limits,
                     Header& header) {
  if (message.size() < kMinHeader)
    return {Verdict::kTooShort, 0};
  Cursor in(message.subspan(kFixedBytes));
  if (header.type == MessageType::kMsgp) {
    header.msgp_align = in.word();
    header.msgp_thresh = in.word();
  }
  Verdict v = parse_lists(in, limits, header.lists);
  if (v == Verdict::kOk) {
    v = header.type == MessageType::kNoMsg ? check_nomsg(header.lists, role)
                                           : check_msg(header.lists, in.left());
  }
  return {v, static_cast<uint32_t>(message.size() - in.left())};
}

Decoded decode_error(std::span<const std::byte> message, Header& header) {
  if (message.size() < kMinError)
    return {Verdict::kTooShort, 0};
  uint32_t code = xdr::load_u32(&message[kFixedBytes]);
  if (code != kErrVers) {
    header.error = {code == kErrChunk ? ErrorCode::kChunk : ErrorCode::kOther, code, 0, 0};
    return {Verdict::kOk, kMinError};
  }
  if (message.size() < kErrVersBytes)
    return {Verdict::kTruncated, 0};
  header.error = {ErrorCode::kVersion, code, xdr::load_u32(&message[kFixedBytes + 4]),
                  xdr::load_u32(&message[kFixedBytes + 8])};
  return {Verdict::kOk, kErrVersBytes};
}

// What other versions keep in place (RFC 5666 section 4.1) is enough to read an ERR_VERS.
Decoded decode_other_version(std::span<const std::byte> message, uint32_t proc, Header& header) {
  bool is_err_vers = proc == static_cast<uint32_t>(MessageType::kError) &&
                     message.size() >= kErrVersBytes &&
                     xdr::load_u32(&message[kFixedBytes]) == kErrVers;
  if (!is_err_vers)
    return {Verdict::kBadVersion, 0};
  header.type = MessageType::kError;
  return decode_error(message, header);
}

}  // namespace

std::optional<FixedWords> peek(std::span<const std::byte> message) {
  if (message.size() < kFixedBytes)
    return std::nullopt;
  const std::byte* p = message.data();
  return FixedWords{xdr::load_u32(p), xdr::load_u32(p + 4), xdr::load_u32(p + 8),
                    xdr::load_u32(p + 12)};
}

bool is_plain(std::span<const std::byte> message) {
  static constexpr std::byte kEmptyLists[kMinHeader - kFixedBytes] = {};
  return message.size() >= kMinHeader && xdr::load_u32(&message[4]) == kVersion &&
         xdr::load_u32(&message[12]) == static_cast<uint32_t>(MessageType::kMsg) &&
         std::memcmp(&message[kFixedBytes], kEmptyLists, sizeof(kEmptyLists)) == 0;
}

Decoded decode(std::span<const std::byte> message, Role role, const Limits& limits,
               Header& header) {
  std::optional<FixedWords> words = peek(message);
  if (!words)
    return {Verdict::kTooShort, 0};
  header.xid = words->xid;
  header.version = words->version;
  header.credits = words->credits;
  header.lists.clear();
  if (is_plain(message)) [[likely]] {
    header.type = MessageType::kMsg;
    return {Verdict::kOk, kMinHeader};
  }
  if (words->version != kVersion) [[unlikely]]
    return decode_other_version(message, words->proc, header);
  if (words->proc > kLastProc) [[unlikely]]
    return {Verdict::kBadProc, 0};
  header.type = static_cast<MessageType>(words->proc);
  if (header.type == MessageType::kDone)
    return {Verdict::kOk, kFixedBytes};
  if (header.type == MessageType::kError)
    return decode_error(message, header);
  return decode_lists(message, role, limits, header);
}

}  // namespace rrdk::proto::version1
