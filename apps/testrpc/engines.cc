#include "engines.h"

#include <algorithm>
#include <array>

#include "nfs3_work.h"
#include "pattern.h"
#include "perf_program.h"
#include "pieces.h"
#include "rrdk/nfs3.h"

namespace rrdk::testrpc {
namespace {

// The inline items around sandwich's data: lengths that need pads.
constexpr uint32_t kHeadBytes = 9;
constexpr uint32_t kTailBytes = 14;
using Inline = std::array<std::byte, 16>;

uint32_t flags_of(const Draw& draw) {
  return draw.verify ? kPerfVerify : 0;
}

std::span<std::byte> bytes_of(MemorySpan span, uint32_t length) {
  return {span.data, length};
}

MemorySpan part(MemorySpan span, uint32_t offset, uint32_t length) {
  return {span.data + offset, length, span.region};
}

// Prepares the data to send, in place, and sends it.
void put_source(const Draw& draw, Encoder& args, Ddp ddp) {
  if (draw.pieces != 1) [[unlikely]] {
    const Pieces pieces(part(draw.source, 0, draw.size), draw.pieces);
    if (draw.verify)
      pieces.fill(draw.offset);
    return pieces.put(args, ddp);
  }
  if (draw.verify)
    fill_pattern(bytes_of(draw.source, draw.size), draw.offset);
  args.put_item(part(draw.source, 0, draw.size), ddp);
}

uint64_t wrong_bytes(const Draw& draw, const ItemView& data, uint64_t offset, uint32_t crc) {
  if (draw.touch)
    touch(data);
  if (!draw.verify)
    return 0;
  uint64_t wrong = count_wrong(data, offset);
  return wrong == 0 && crc != crc32c(data) ? data.size() + 1 : wrong;
}

// Checks the server's checksum of what we sent; returns the number of wrong bytes.
uint64_t wrong_sent(const Draw& draw, std::span<const std::byte> sent, uint32_t crc) {
  return draw.verify && crc != crc32c(sent) ? std::max<uint64_t>(sent.size(), 1) : 0;
}

// The same for the data.
uint64_t wrong_source(const Draw& draw, uint32_t crc) {
  const bool right =
      !draw.verify || crc == Pieces(part(draw.source, 0, draw.size), draw.pieces).crc();
  return right ? 0 : std::max<uint64_t>(draw.size, 1);
}

// Reads the status; returns false if no results follow.
bool status_ok(Decoder& results, Verdict& verdict) {
  verdict.perf_status = results.get_u32();
  if (results.ok() && verdict.perf_status == static_cast<uint32_t>(PerfStatus::kOk))
    return true;
  verdict.decoded = results.at_end();
  return false;
}

void prepare_null(const Draw&, Encoder&, Call&) {}

Verdict check_null(const Draw&, Decoder& results) {
  return {.decoded = results.at_end()};
}

void prepare_echo(const Draw& draw, Encoder& args, Call& call) {
  put_source(draw, args, Ddp::kNo);
  call.expect_reply(draw.size + xdr_pad(draw.size));
}

Verdict check_echo(const Draw& draw, Decoder& results) {
  ItemView blob = results.get_opaque(draw.size);
  Verdict verdict;
  verdict.decoded = results.at_end() && blob.size() == draw.size;
  if (draw.touch)
    touch(blob);
  if (draw.verify)
    verdict.wrong_bytes = count_wrong(blob, draw.offset);
  return verdict;
}

void prepare_read(const Draw& draw, Encoder& args, Call& call) {
  args.put_u64(draw.offset);
  args.put_u32(draw.size);
  args.put_u32(flags_of(draw));
  args.put_u32(0);
  call.expect_reply(offer(draw, call, part(draw.sink, 0, draw.size)));
}

Verdict check_read(const Draw& draw, Decoder& results) {
  Verdict verdict;
  if (!status_ok(results, verdict))
    return verdict;
  uint32_t crc = results.get_u32();
  ItemView data = results.get_item(draw.size);
  verdict.decoded = results.at_end() && data.size() == draw.size;
  verdict.wrong_bytes = wrong_bytes(draw, data, draw.offset, crc);
  return verdict;
}

void prepare_write(const Draw& draw, Encoder& args, Call&) {
  args.put_u64(draw.offset);
  args.put_u32(flags_of(draw));
  args.put_u32(0);
  put_source(draw, args, Ddp::kEligible);
}

Verdict check_write(const Draw& draw, Decoder& results) {
  Verdict verdict;
  if (!status_ok(results, verdict))
    return verdict;
  uint32_t count = results.get_u32();
  uint32_t crc = results.get_u32();
  verdict.decoded = results.at_end() && count == draw.size;
  verdict.wrong_bytes = wrong_source(draw, crc);
  return verdict;
}

// Head and tail contain the pattern, too, from the data's offset on.
std::span<const std::byte> inline_item(Inline& room, const Draw& draw, uint32_t length) {
  std::span<std::byte> bytes = std::span(room).first(length);
  fill_pattern(bytes, draw.offset);
  return bytes;
}

void prepare_sandwich(const Draw& draw, Encoder& args, Call&) {
  Inline room;
  args.put_opaque(inline_item(room, draw, kHeadBytes));
  args.put_u32(flags_of(draw));
  put_source(draw, args, Ddp::kEligible);
  args.put_opaque(inline_item(room, draw, kTailBytes));
}

Verdict check_sandwich(const Draw& draw, Decoder& results) {
  Verdict verdict;
  if (!status_ok(results, verdict))
    return verdict;
  uint32_t head_crc = results.get_u32();
  uint32_t data_crc = results.get_u32();
  uint32_t tail_crc = results.get_u32();
  uint32_t count = results.get_u32();
  verdict.decoded = results.at_end() && count == draw.size;
  Inline room;
  verdict.wrong_bytes = wrong_sent(draw, inline_item(room, draw, kHeadBytes), head_crc) +
                        wrong_sent(draw, inline_item(room, draw, kTailBytes), tail_crc) +
                        wrong_source(draw, data_crc);
  return verdict;
}

// The first item is the larger one if they cannot be equal.
uint32_t first_part(const Draw& draw) {
  return draw.size - draw.size / 2;
}

void prepare_read2(const Draw& draw, Encoder& args, Call& call) {
  uint32_t first = first_part(draw);
  args.put_u64(draw.offset);
  args.put_u32(first);
  args.put_u32(draw.size - first);
  args.put_u32(flags_of(draw));
  uint32_t inline_bytes = offer(draw, call, part(draw.sink, 0, first));
  inline_bytes += offer(draw, call, part(draw.sink, first, draw.size - first));
  call.expect_reply(inline_bytes);
}

Verdict check_read2(const Draw& draw, Decoder& results) {
  Verdict verdict;
  if (!status_ok(results, verdict))
    return verdict;
  uint32_t first_size = first_part(draw);
  ItemView first = results.get_item(first_size);
  uint32_t first_crc = results.get_u32();
  ItemView second = results.get_item(draw.size - first_size);
  uint32_t second_crc = results.get_u32();
  verdict.decoded =
      results.at_end() && first.size() == first_size && second.size() == draw.size - first_size;
  verdict.wrong_bytes = wrong_bytes(draw, first, draw.offset, first_crc) +
                        wrong_bytes(draw, second, draw.offset + first_size, second_crc);
  return verdict;
}

// One call from the server for each call.
void prepare_callback(const Draw& draw, Encoder& args, Call&) {
  args.put_u32(1);
  args.put_u32(draw.size);
}

Verdict check_callback(const Draw&, Decoder& results) {
  bool right = results.get_u32() == 1;
  return {.decoded = right && results.at_end()};
}

const Binding& nfs3_binding() {
  return nfs3::kBinding;
}

void prepare_nfs3(const Draw& draw, Encoder& args, Call& call) {
  draw.nfs3->prepare(draw, args, call);
}

Verdict check_nfs3(const Draw& draw, Decoder& results) {
  return draw.nfs3->check(draw, results);
}

constexpr Engine kEngines[] = {
    {"null", perf_binding, kPerfNull, false, prepare_null, check_null},
    {"echo", perf_binding, kPerfEcho, true, prepare_echo, check_echo},
    {"read", perf_binding, kPerfRead, true, prepare_read, check_read},
    {"write", perf_binding, kPerfWrite, true, prepare_write, check_write},
    {"sandwich", perf_binding, kPerfSandwich, true, prepare_sandwich, check_sandwich},
    {"read2", perf_binding, kPerfRead2, true, prepare_read2, check_read2},
    {"mixed", perf_binding, 0, true, nullptr, nullptr},
    {"callback", perf_binding, kPerfCallback, true, prepare_callback, check_callback},
    {"nfs3", nfs3_binding, 0, true, prepare_nfs3, check_nfs3},
};
constexpr size_t kMixed = std::size(kEngines) - 3;

}  // namespace

std::span<const Engine> all_engines() {
  return std::span(kEngines).first(kMixed + 2);
}

std::span<const Engine> plain_engines() {
  return std::span(kEngines).first(kMixed);
}

const Engine* find_engine(std::string_view name) {
  auto it = std::ranges::find_if(kEngines, [&](const Engine& e) { return name == e.name; });
  return it == std::end(kEngines) ? nullptr : it;
}

std::string engine_names() {
  std::string names;
  for (const Engine& engine : kEngines)
    names += (names.empty() ? "" : ", ") + std::string(engine.name);
  return names;
}

bool is_nfs3(const Engine& engine) {
  return engine.prepare == prepare_nfs3;
}

bool is_callback(const Engine& engine) {
  return engine.prepare == prepare_callback;
}

// Segments have at least one byte each.
uint32_t offer(const Draw& draw, Call& call, MemorySpan room) {
  if (!draw.place || room.length == 0)
    return room.length + xdr_pad(room.length);
  std::array<MemorySpan, Call::kMaxOfferSegments> segments;
  uint32_t count = std::min({draw.segments, Call::kMaxOfferSegments, room.length});
  uint32_t each = room.length / count;
  for (uint32_t i = 0; i < count; ++i)
    segments[i] = part(room, i * each, i + 1 < count ? each : room.length - i * each);
  call.offer(std::span(segments).first(count));
  return 0;
}

}  // namespace rrdk::testrpc
