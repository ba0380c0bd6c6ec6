// Bulk data without a copy, both halves in one program: the server answers with its own buffer, and
// RDMA puts the bytes where the client wants them. Usage: direct_placement [URI [BYTES]]
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "example.h"
#include "rrdk/client.h"
#include "rrdk/eal.h"
#include "rrdk/server.h"

namespace {

void read(rrdk::ServerCall call, void*) {
  uint32_t count = call.args().get_u32();
  if (!call.args().at_end())
    return std::move(call).reject(rrdk::AcceptStat::kGarbageArgs);
  rrdk::Buffer data = call.result_buffer(count);
  if (!data)
    return std::move(call).reject(rrdk::AcceptStat::kSystemErr);
  std::memset(data.data(), 'x', count);
  call.results().put_item(std::move(data), count, rrdk::Ddp::kEligible);  // handed over, not copied
  std::move(call).reply();
}

constexpr rrdk::Procedure kTable[] = {{kRead, read}};

}  // namespace

int main(int argc, char** argv) {
  const char* uri = argc > 1 ? argv[1] : kDefaultUri;
  auto bytes = static_cast<uint32_t>(argc > 2 ? std::atol(argv[2]) : 100000);
  rrdk::must(rrdk::ensure_eal());
  auto memory = rrdk::must(rrdk::Memory::create({}));
  auto room = rrdk::must(memory->allocate(bytes));  // registered once, for any number of calls
  auto runtime = rrdk::must(rrdk::Runtime::create(*memory, {}));
  auto server = rrdk::must(rrdk::Server::create(*runtime));
  rrdk::must(server->add_service({.binding = &kBinding, .procedures = kTable}));
  rrdk::must(server->listen(uri));
  auto client = rrdk::must(rrdk::Client::create(*runtime));
  auto connection = rrdk::must(client->connect(uri));

  rrdk::Call call(*connection);
  call.begin(kBinding, kRead).put_u32(bytes);
  call.offer(room.span(0, bytes));
  rrdk::CallStatus status = call.submit_and_wait();
  if (status != rrdk::CallStatus::kOk)
    give_up(rrdk::to_string(status));
  rrdk::ItemView data = call.results().get_item(bytes);
  if (!call.results().at_end())
    give_up("the reply does not decode");
  std::printf("%u bytes, %s\n", data.size(),
              data.data() == room.data() ? "in place" : "somewhere else");
  return 0;
}
