// The faults of a header according to the specifications, as far as XDR does not express them.
#include <algorithm>
#include <map>

#include "reference.h"
#include "rrdk/xdr.h"

namespace rrdk::proto {

namespace {

constexpr uint32_t kMsg = 0, kNoMsg = 1, kMsgp = 2, kError = 4, kOptional = 5;
constexpr uint32_t kErrVers = 1;
constexpr size_t kDirectionAt = 16;  // draft-04

uint64_t total(const std::vector<Segment>& segments) {
  uint64_t sum = 0;
  for (const Segment& s : segments)
    sum += s.length;
  return sum;
}

size_t largest_chunk(const ReferenceHeader& header) {
  std::map<uint32_t, size_t> reads;  // Position to segments
  size_t largest = header.reply ? header.reply->size() : 0;
  for (const ReferenceRead& read : header.reads)
    largest = std::max(largest, ++reads[read.position]);
  for (const std::vector<Segment>& chunk : header.writes)
    largest = std::max(largest, chunk.size());
  return largest;
}

void check_limits(const ReferenceHeader& header, const Limits& limits, std::set<Verdict>& out) {
  size_t segments = header.reads.size();
  uint64_t read_bytes = 0;
  uint64_t write_bytes = 0;
  std::set<uint32_t> positions;
  for (const ReferenceRead& read : header.reads) {
    read_bytes += read.segment.length;
    positions.insert(read.position);
  }
  for (const std::vector<Segment>& chunk : header.writes) {
    segments += chunk.size();
    write_bytes += total(chunk);
  }
  segments += header.reply ? header.reply->size() : 0;
  if (header.reads.size() > limits.read_segments || segments > limits.segments)
    out.insert(Verdict::kTooManySegments);
  if (largest_chunk(header) > limits.chunk_segments)
    out.insert(Verdict::kTooManySegments);
  positions.erase(0);  // the message's own chunk is no argument's
  if (positions.size() > limits.read_chunks)
    out.insert(Verdict::kTooManyReadChunks);
  if (header.writes.size() > limits.write_chunks)
    out.insert(Verdict::kTooManyWriteChunks);
  if (read_bytes > limits.read_bytes || write_bytes > limits.write_bytes ||
      (header.reply && total(*header.reply) > limits.write_bytes))
    out.insert(Verdict::kTooManyBytes);
}

// Reconstructs the stream: where each part lies, and what remains between the chunks.
void check_stream(const ReferenceHeader& header, size_t behind, Direction role,
                  std::set<Verdict>& out) {
  std::map<uint32_t, uint64_t> chunks;  // Position to length
  for (const ReferenceRead& read : header.reads) {
    chunks[read.position] += read.segment.length;
    if (read.position % 4 != 0)
      out.insert(Verdict::kBadPosition);
  }
  uint64_t left = behind;
  bool is_long = header.proc == kNoMsg;
  if (!is_long && chunks.contains(0))
    out.insert(Verdict::kPositionZeroInMsg);
  if (is_long && role == Direction::kReply) {
    left = header.reply ? total(*header.reply) : 0;
    if (left == 0)
      out.insert(Verdict::kNoMessage);
  }
  if (is_long && role == Direction::kCall) {
    left = chunks.contains(0) ? chunks[0] : 0;
    if (left == 0)
      out.insert(Verdict::kNoMessage);
    chunks.erase(0);
  }
  uint64_t here = 0;
  for (auto [position, length] : chunks) {
    if (position < here) {
      out.insert(Verdict::kOverlap);
      return;
    }
    if (position - here > left) {
      out.insert(Verdict::kBeyondMessage);
      return;
    }
    left -= position - here;
    here = position + length;
    while (here % 4 != 0)
      ++here;
  }
}

// A long reply has no Position-Zero chunk.
bool shows_call(const ReferenceHeader& header) {
  return header.proc == kNoMsg &&
         std::ranges::count(header.reads, 0u, &ReferenceRead::position) != 0;
}

}  // namespace

std::set<Verdict> faults(const ReferenceHeader& header, size_t behind, Direction role,
                         const Limits& limits) {
  bool is_err_vers = header.proc == kError && header.error == kErrVers;
  if (header.version != 1 && !is_err_vers)
    return {Verdict::kBadVersion};
  std::set<Verdict> out;
  if (!header.canonical)
    out.insert(Verdict::kBadDiscriminator);
  if (header.proc == kMsg || header.proc == kNoMsg || header.proc == kMsgp) {
    check_limits(header, limits, out);
    check_stream(header, behind, shows_call(header) ? Direction::kCall : role, out);
  }
  return out;
}

// Version 2: the first of these that finds a fault decides (V2D4-ERR-18).
std::set<Verdict> faults_of_version2(Wire wire, const ReferenceHeader& header,
                                     std::span<const std::byte> message, Direction role,
                                     const Limits& limits) {
  bool is_err_vers = header.proc == kError && header.error == kErrVers;
  if (header.version != 2 && !is_err_vers)
    return {Verdict::kBadVersion};
  bool has_lists = header.proc == kMsg || header.proc == kNoMsg;
  bool says_direction = wire == Wire::kDraft04 && (has_lists || header.proc == kOptional);
  uint32_t direction = says_direction ? xdr::load_u32(&message[kDirectionAt]) : 0;
  if (direction > 1)
    return {Verdict::kBadDirection};
  if (!has_lists)
    return {};

  std::set<Verdict> out;
  if (!header.canonical)
    out.insert(Verdict::kBadDiscriminator);
  for (const ReferenceRead& read : header.reads) {
    if (read.position % 4 != 0)
      out.insert(Verdict::kBadPosition);
  }
  if (!out.empty())
    return out;

  std::span<const std::byte> behind = message.subspan(header.length);
  if (says_direction && header.proc == kMsg && behind.size() >= 8) {
    uint32_t msg_type = xdr::load_u32(&behind[4]);
    if (msg_type <= 1 && msg_type != direction)
      return {Verdict::kBadDirection};
  }
  check_limits(header, limits, out);
  if (!out.empty())
    return out;

  if (says_direction)
    role = direction == 0 ? Direction::kCall : Direction::kReply;
  else if (shows_call(header))
    role = Direction::kCall;
  check_stream(header, behind.size(), role, out);
  return out;
}

}  // namespace rrdk::proto
