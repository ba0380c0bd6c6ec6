// The version 1 header decoder, in both roles. What it accepts stays within the limits and the
// message, and says the same when it is written and read again.
#include <algorithm>
#include <vector>

#include "proto/codec.h"
#include "require.h"

namespace {

using namespace rrdk::proto;
using rrdk::fuzz::require;

bool same(const Header& a, const Header& b) {
  const ChunkLists &x = a.lists, &y = b.lists;
  auto chunk = [](const auto& c, const auto& d) {
    return c.first == d.first && c.count == d.count && c.length == d.length;
  };
  bool lists = x.num_segments == y.num_segments && x.num_reads == y.num_reads &&
               x.num_writes == y.num_writes && x.has_reply == y.has_reply &&
               std::equal(x.segments, x.segments + x.num_segments, y.segments) &&
               std::equal(x.reads, x.reads + x.num_reads, y.reads, chunk) &&
               std::equal(x.writes, x.writes + x.num_writes, y.writes, chunk) &&
               (!x.has_reply || chunk(x.reply, y.reply));
  bool error =
      a.type != MessageType::kError ||
      (a.error.code == b.error.code && a.error.low == b.error.low && a.error.high == b.error.high);
  return a.xid == b.xid && a.credits == b.credits && a.type == b.type && lists && error;
}

void check_limits(const ChunkLists& lists, const Limits& limits) {
  require(lists.num_segments <= limits.segments, "more segments than the limit");
  require(lists.num_reads <= limits.read_chunks + 1, "more Read chunks than the limit");
  require(lists.num_writes <= limits.write_chunks, "more Write chunks than the limit");
  require(lists.read_length <= limits.read_bytes, "more bytes to be read than the limit");
  for (uint16_t i = 0; i < lists.num_reads; ++i)
    require(lists.reads[i].first + lists.reads[i].count <= lists.num_segments, "Read chunk");
  for (uint16_t i = 0; i < lists.num_writes; ++i)
    require(lists.writes[i].first + lists.writes[i].count <= lists.num_segments, "Write chunk");
}

void decode_as(Direction role, std::span<const std::byte> message) {
  static Header header, again;  // lists of an earlier input are still in them
  Limits limits;
  limits.versions.two.reset();
  Decoded decoded = decode(message, role, limits, header);
  require(decoded.header_length <= message.size(), "header longer than its message");
  if (decoded.verdict != Verdict::kOk)
    return;
  check_limits(header.lists, limits);
  std::vector<std::byte> out(encoded_length(header));
  require(encode(header, out) == out.size(), "length of what was encoded");
  // What follows the header counts too: Positions lie in it.
  out.insert(out.end(), message.begin() + decoded.header_length, message.end());
  Decoded redecoded = decode(out, role, limits, again);
  if (header.version == 1 || header.type == MessageType::kError) {
    require(redecoded.verdict == Verdict::kOk, "what was encoded is refused");
    require(same(header, again), "what was encoded says something else");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::span message(reinterpret_cast<const std::byte*>(data), size);
  decode_as(Direction::kCall, message);
  decode_as(Direction::kReply, message);
  return 0;
}
