#include "perf_program.h"

#include <algorithm>
#include <array>
#include <utility>

#include "pattern.h"
#include "pieces.h"
#include "rrdk/runtime.h"

namespace rrdk::testrpc {
namespace {

constexpr uint32_t kLargestInline = 262144;  // of any connection

constexpr ProcedureBinding kProcedures[] = {
    {.procedure = kPerfNull, .name = "NULL"},
    {.procedure = kPerfEcho, .name = "ECHO", .fixed_results = 4},
    {.procedure = kPerfRead, .name = "READ", .eligible_results = 1, .fixed_results = 12},
    {.procedure = kPerfWrite, .name = "WRITE", .eligible_args = 1, .fixed_results = 12},
    {.procedure = kPerfSandwich, .name = "SANDWICH", .eligible_args = 1, .fixed_results = 20},
    {.procedure = kPerfRead2, .name = "READ2", .eligible_results = 2, .fixed_results = 20},
    {.procedure = kPerfCallback, .name = "CALLBACK", .fixed_results = 4},
};

constexpr Binding kBinding = {
    .program = 0x20005666, .version = 1, .name = "perf", .procedures = kProcedures};

PerfServer& server_of(void* context) {
  return *static_cast<PerfServer*>(context);
}

void garbage(ServerCall call) {
  std::move(call).reject(AcceptStat::kGarbageArgs);
}

// Answers with an arm of the result unions that has no content.
void answer(ServerCall call, PerfStatus status) {
  call.results().put_u32(static_cast<uint32_t>(status));
  std::move(call).reply();
}

void finish(ServerCall call, uint32_t delay_us) {
  if (delay_us == 0)
    return std::move(call).reply();
  std::move(call).reply_after(uint64_t{delay_us} * 1000);
}

// One item of read data, made in a pool buffer if its bytes matter.
struct ReadData {
  Buffer buffer;
  MemorySpan bytes;
  uint32_t crc = 0;
  bool ok = true;
};

ReadData make_data(ServerCall& call, const PerfServer& server, uint64_t offset, uint32_t count,
                   uint32_t flags) {
  ReadData data;
  if ((flags & kPerfVerify) == 0) {
    data.bytes = server.anything(count);
    return data;
  }
  data.buffer = call.result_buffer(std::max<uint32_t>(count, 1));
  if (!data.buffer) {
    data.ok = false;
    return data;
  }
  data.bytes = data.buffer.first(count);
  const Pieces pieces(data.bytes, server.pieces());
  pieces.fill(offset);
  data.crc = pieces.crc();
  return data;
}

// Data in pieces is borrowed: a buffer of it must be kept.
void put_data(Encoder& results, const PerfServer& server, ReadData& data) {
  if (server.pieces() != 1) [[unlikely]]
    Pieces(data.bytes, server.pieces()).put(results, Ddp::kEligible);
  else if (data.buffer)
    results.put_item(std::move(data.buffer), data.bytes.length, Ddp::kEligible);
  else
    results.put_item(data.bytes, Ddp::kEligible);
}

void keep_until_released(ServerCall& call, Buffer first, Buffer second = {}) {
  if (!first && !second) [[likely]]
    return;
  using Kept = std::pair<Buffer, Buffer>;
  call.on_released([](void* kept) { delete static_cast<Kept*>(kept); },
                   new Kept(std::move(first), std::move(second)));
}

// Returns the data's checksum, if the caller wants it.
uint32_t read_data(const PerfServer& server, uint32_t flags, const ItemView& bytes) {
  if (server.touches())
    touch(bytes);
  return (flags & kPerfVerify) != 0 ? crc32c(bytes) : 0;
}

void null(ServerCall call, void*) {
  if (!call.args().at_end())
    return garbage(std::move(call));
  std::move(call).reply();
}

void echo(ServerCall call, void* context) {
  ItemView blob = call.args().get_opaque(server_of(context).max_size());
  if (!call.args().at_end())
    return garbage(std::move(call));
  read_data(server_of(context), 0, blob);
  call.results().put_view(blob);
  std::move(call).reply();
}

void read(ServerCall call, void* context) {
  const PerfServer& server = server_of(context);
  Decoder& args = call.args();
  uint64_t offset = args.get_u64();
  uint32_t count = args.get_u32();
  uint32_t flags = args.get_u32();
  uint32_t delay_us = args.get_u32();
  if (!args.at_end())
    return garbage(std::move(call));
  if (delay_us > kPerfMaxDelayUs)
    return answer(std::move(call), PerfStatus::kInval);
  if (count > server.max_size())
    return answer(std::move(call), PerfStatus::kTooBig);
  ReadData data = make_data(call, server, offset, count, flags);
  if (!data.ok)
    return std::move(call).reject(AcceptStat::kSystemErr);
  Encoder& results = call.results();
  results.put_u32(static_cast<uint32_t>(PerfStatus::kOk));
  results.put_u32(data.crc);
  put_data(results, server, data);
  keep_until_released(call, std::move(data.buffer));
  finish(std::move(call), delay_us);
}

void write(ServerCall call, void* context) {
  const PerfServer& server = server_of(context);
  Decoder& args = call.args();
  args.get_u64();  // the offset: nothing is kept, and the caller compares the checksum
  uint32_t flags = args.get_u32();
  uint32_t delay_us = args.get_u32();
  ItemView data = args.get_item(UINT32_MAX);
  if (!args.at_end())
    return garbage(std::move(call));
  if (delay_us > kPerfMaxDelayUs)
    return answer(std::move(call), PerfStatus::kInval);
  if (data.size() > server.max_size())
    return answer(std::move(call), PerfStatus::kTooBig);
  Encoder& results = call.results();
  results.put_u32(static_cast<uint32_t>(PerfStatus::kOk));
  results.put_u32(data.size());
  results.put_u32(read_data(server, flags, data));
  finish(std::move(call), delay_us);
}

void sandwich(ServerCall call, void* context) {
  const PerfServer& server = server_of(context);
  Decoder& args = call.args();
  ItemView head = args.get_opaque(UINT32_MAX);
  uint32_t flags = args.get_u32();
  ItemView data = args.get_item(UINT32_MAX);
  ItemView tail = args.get_opaque(UINT32_MAX);
  if (!args.at_end())
    return garbage(std::move(call));
  if (data.size() > server.max_size())
    return answer(std::move(call), PerfStatus::kTooBig);
  Encoder& results = call.results();
  results.put_u32(static_cast<uint32_t>(PerfStatus::kOk));
  results.put_u32(read_data(server, flags, head));
  results.put_u32(read_data(server, flags, data));
  results.put_u32(read_data(server, flags, tail));
  results.put_u32(data.size());
  std::move(call).reply();
}

void read2(ServerCall call, void* context) {
  const PerfServer& server = server_of(context);
  Decoder& args = call.args();
  uint64_t offset = args.get_u64();
  uint32_t count1 = args.get_u32();
  uint32_t count2 = args.get_u32();
  uint32_t flags = args.get_u32();
  if (!args.at_end())
    return garbage(std::move(call));
  if (count1 > server.max_size() || count2 > server.max_size())
    return answer(std::move(call), PerfStatus::kTooBig);
  ReadData first = make_data(call, server, offset, count1, flags);
  ReadData second = make_data(call, server, offset + count1, count2, flags);
  if (!first.ok || !second.ok)
    return std::move(call).reject(AcceptStat::kSystemErr);
  uint32_t crc_first = first.crc;
  uint32_t crc_second = second.crc;
  Encoder& results = call.results();
  results.put_u32(static_cast<uint32_t>(PerfStatus::kOk));
  put_data(results, server, first);
  results.put_u32(crc_first);
  put_data(results, server, second);
  results.put_u32(crc_second);
  keep_until_released(call, std::move(first.buffer), std::move(second.buffer));
  std::move(call).reply();
}

void callback(ServerCall call, void* context) {
  uint32_t count = call.args().get_u32();
  uint32_t size = call.args().get_u32();
  if (!call.args().at_end())
    return garbage(std::move(call));
  server_of(context).callbacks().start(std::move(call), count, size);
}

void spin(uint64_t ns) {
  for (uint64_t end = Runtime::now_ns() + ns; Runtime::now_ns() < end;) {
  }
}

// Returns how long spinning takes beyond the requested time, in nanoseconds: the minimum, since
// other threads may take the CPU.
uint32_t cost_of_spinning() {
  constexpr uint32_t kTimes = 100;
  uint64_t least = UINT64_MAX;
  for (uint32_t i = 0; i < kTimes; ++i) {
    uint64_t begin = Runtime::now_ns();
    for (uint32_t j = 0; j < kTimes; ++j)
      spin(0);
    least = std::min(least, Runtime::now_ns() - begin);
  }
  return static_cast<uint32_t>(least / kTimes);
}

template <Handler answer_call>
void working(ServerCall call, void* context) {
  server_of(context).work();
  answer_call(std::move(call), context);
}

}  // namespace

const Binding& perf_binding() {
  return kBinding;
}

Result<std::unique_ptr<PerfServer>> PerfServer::create(Memory& memory, uint32_t max_size,
                                                       bool touches, uint32_t pieces,
                                                       uint32_t work_ns) {
  Result<RegisteredMemory> data = memory.allocate(std::max<uint32_t>(max_size, 1));
  if (!data)
    return tl::unexpected(data.error());
  // Filled, because a page that was never written is the system's zero page, and reading that would
  // be faster than reading memory.
  std::fill_n(data->data(), data->size(), std::byte{0x5a});
  auto server = std::make_unique<PerfServer>();
  server->max_size_ = max_size;
  server->touches_ = touches;
  server->pieces_ = pieces;
  server->spin_ns_ = work_ns - std::min(work_ns, cost_of_spinning());
  server->callbacks_ = std::make_unique<Callbacks>(std::min(max_size, kLargestInline));
  server->data_ = std::move(*data);
  return server;
}

void PerfServer::work() const {
  if (spin_ns_ != 0)
    spin(spin_ns_);
}

Service PerfServer::service(Dispatch dispatch, bool once) {
  table_ = {{{kPerfNull, working<null>, dispatch},
             {kPerfEcho, working<echo>, dispatch},
             {kPerfRead, working<read>, dispatch},
             {kPerfWrite, working<write>, dispatch, !once},
             {kPerfSandwich, working<sandwich>, dispatch, !once},
             {kPerfRead2, working<read2>, dispatch},
             {kPerfCallback, callback, Dispatch::kInline}}};  // it waits for nothing
  return {.binding = &kBinding, .procedures = table_, .context = this};
}

}  // namespace rrdk::testrpc
