// The header decoders of all versions, at both ends. An accepted header stays within the limits and
// the message, and is the same after it was written and read again.
#include <algorithm>
#include <vector>

#include "proto/codec.h"
#include "proto/properties.h"
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
  bool error = a.type != MessageType::kError ||
               (a.error.code == b.error.code && a.error.low == b.error.low &&
                a.error.high == b.error.high && a.error.maximum == b.error.maximum &&
                a.error.index == b.error.index && a.error.length == b.error.length);
  return a.xid == b.xid && a.credits == b.credits && a.type == b.type &&
         a.direction == b.direction && a.invalidate == b.invalidate && lists && error;
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

// A valid header is the same after it was written and read again. The bytes behind it follow it
// again, because Positions refer to them.
void check_round_trip(std::span<const std::byte> message, const Header& header,
                      uint32_t header_length, Direction expected, const Limits& limits) {
  static Header again;
  std::vector<std::byte> out;
  if (header.type == MessageType::kOptional) {
    out.resize(header_length);
    auto data = message.subspan(header.option.offset, header.option.length);
    require(encode_option(header, data, out) == out.size(), "length of what was encoded");
  } else {
    out.resize(encoded_length(header));
    require(encode(header, out) == out.size(), "length of what was encoded");
  }
  out.insert(out.end(), message.begin() + header_length, message.end());
  Decoded redecoded = decode(out, expected, limits, again);
  require(redecoded.verdict == Verdict::kOk, "what was encoded is refused");
  require(same(header, again), "what was encoded says something else");
}

// The body of a property message: all values found in it lie within the message.
void check_properties(std::span<const std::byte> message, MessageType type) {
  PropertyBody body;
  if (decode_properties(message, type, body) != Verdict::kOk)
    return;
  require(body.length <= message.size(), "body longer than its message");
  uint32_t count = 0;
  body.set.for_each([&](uint32_t index, const Property& property) {
    require(index == count++, "index of a property");
    require(property.data.empty() ||
                (property.data.data() >= message.data() &&
                 property.data.data() + property.data.size() <= message.data() + message.size()),
            "data of a property");
    static_cast<void>(body.first.has(index));
    static_cast<void>(body.second.has(index));
  });
  require(count == body.set.count(), "number of properties");
}

void decode_as(Direction expected, const Versions& versions, std::span<const std::byte> message) {
  static Header header;  // lists of an earlier input are still in them
  Limits limits;
  limits.versions = versions;
  Decoded decoded = decode(message, expected, limits, header);
  require(decoded.header_length <= message.size(), "header longer than its message");
  if (decoded.verdict != Verdict::kOk)
    return;
  check_limits(header.lists, limits);
  if (header.type > MessageType::kOptional)
    check_properties(message, header.type);
  else
    check_round_trip(message, header, decoded.header_length, expected, limits);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::span message(reinterpret_cast<const std::byte*>(data), size);
  for (Direction expected : {Direction::kCall, Direction::kReply}) {
    decode_as(expected, {.one = true, .two = Wire::kDraft00}, message);
    decode_as(expected, {.one = false, .two = Wire::kDraft04}, message);
  }
  return 0;
}
