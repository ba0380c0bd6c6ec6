// Decoding and encoding one version 1 transport header, by its shape.
#include <benchmark/benchmark.h>

#include <array>
#include <cstdint>

#include "proto/codec.h"

namespace {

using namespace rrdk::proto;

// Bytes of the RPC message behind the header, into which Positions point.
constexpr uint32_t kRpcBytes = 128;

void add_segments(Header& header, uint16_t count) {
  for (uint16_t i = 0; i < count; ++i) {
    header.lists.segments[header.lists.num_segments++] = {
        .handle = 0x1000u + i, .length = 4096, .offset = 0x7f00'0000'0000u + i * 4096u};
  }
}

void add_write_chunk(Header& header, uint16_t segments) {
  ChunkLists& lists = header.lists;
  lists.writes[lists.num_writes++] = {lists.num_segments, segments, uint64_t{segments} * 4096};
  add_segments(header, segments);
}

void add_read_chunk(Header& header, uint32_t position, uint16_t segments) {
  ChunkLists& lists = header.lists;
  uint64_t length = uint64_t{segments} * 4096;
  lists.reads[lists.num_reads++] = {position, lists.num_segments, segments, length};
  lists.read_length += length;
  add_segments(header, segments);
}

Header plain() {
  Header header;
  header.xid = 0x12345678;
  header.credits = 32;
  return header;
}

Header no_chunks() {
  return plain();
}

Header one_write_chunk() {
  Header header = plain();
  add_write_chunk(header, 1);
  return header;
}

Header one_read_chunk() {
  Header header = plain();
  add_read_chunk(header, 72, 1);
  return header;
}

Header sixteen_segments() {
  Header header = plain();
  add_write_chunk(header, 16);
  return header;
}

// As many segments as the default limits allow, in both lists.
Header full() {
  Header header = plain();
  for (uint32_t chunk = 0; chunk < 16; ++chunk)
    add_read_chunk(header, 64 + chunk * 8 * 4096, 8);  // one behind the other
  for (uint32_t chunk = 0; chunk < 16; ++chunk)
    add_write_chunk(header, 8);
  return header;
}

void encode(benchmark::State& state, Header (*make)()) {
  Header header = make();
  std::array<std::byte, 16384> bytes;
  uint32_t length = 0;
  for (auto _ : state) {
    length = encode(header, bytes);
    benchmark::DoNotOptimize(bytes);
    benchmark::ClobberMemory();
  }
  state.counters["header_bytes"] = length;
  if (length == 0)
    state.SkipWithError("the header does not fit");
}

void decode(benchmark::State& state, Header (*make)()) {
  std::array<std::byte, 16384> bytes = {};
  uint32_t length = encode(make(), bytes);
  uint32_t message = length + kRpcBytes;
  Limits limits;
  Header header;
  Verdict verdict = Verdict::kOk;
  for (auto _ : state) {
    verdict = decode(std::span(bytes).first(message), Direction::kCall, limits, header).verdict;
    benchmark::DoNotOptimize(header);
  }
  state.counters["header_bytes"] = length;
  if (verdict != Verdict::kOk)
    state.SkipWithError(to_string(verdict));
}

BENCHMARK_CAPTURE(encode, no_chunks, no_chunks);
BENCHMARK_CAPTURE(encode, one_write_chunk, one_write_chunk);
BENCHMARK_CAPTURE(encode, one_read_chunk, one_read_chunk);
BENCHMARK_CAPTURE(encode, sixteen_segments, sixteen_segments);
BENCHMARK_CAPTURE(encode, full, full);
BENCHMARK_CAPTURE(decode, no_chunks, no_chunks);
BENCHMARK_CAPTURE(decode, one_write_chunk, one_write_chunk);
BENCHMARK_CAPTURE(decode, one_read_chunk, one_read_chunk);
BENCHMARK_CAPTURE(decode, sixteen_segments, sixteen_segments);
BENCHMARK_CAPTURE(decode, full, full);

}  // namespace
