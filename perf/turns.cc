#include "turns.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "machine_limits.h"

namespace rrdk::perf {
namespace {

constexpr ProcedureBinding kProcedures[] = {
    {.procedure = kNull, .name = "NULL"},
    {.procedure = kEcho, .name = "ECHO", .fixed_results = 4},
};
constexpr Binding kBinding = {
    .program = 0x20005669, .version = 1, .name = "turns", .procedures = kProcedures};

void echo(ServerCall call, void*) {
  ItemView bytes = call.args().get_opaque(kEchoBytes);
  if (!call.args().at_end())
    return std::move(call).reject(AcceptStat::kGarbageArgs);
  call.results().put_opaque(bytes);
  std::move(call).reply();
}

constexpr Procedure kHandlers[] = {{kEcho, echo}};

}  // namespace

void die(const std::string& message) {
  std::fprintf(stderr, "perf: %s\n", message.c_str());
  std::exit(1);
}

std::unique_ptr<Server> serve(Runtime& runtime) {
  std::unique_ptr<Server> server = must(Server::create(runtime));
  must(server->add_service({.binding = &kBinding, .procedures = kHandlers}));
  return server;
}

Requester::Requester(const std::string& uri, const Load& load, const ClientOptions& options)
    : load_(load),
      memory_(must(Memory::create({.classes = {{4096, 1024}}}))),
      runtime_(must(Runtime::create(*memory_, {.idle = IdlePolicy::kBusy}))),
      bytes_(must(memory_->allocate(kEchoBytes))),
      client_(must(Client::create(*runtime_, options))),
      connection_(must(client_->connect(uri))) {
  for (uint32_t i = 0; i < load.window; ++i)
    calls_.push_back(std::make_unique<Call>(*connection_));
}

double Requester::slice() {
  const uint64_t start = apps::clock_ns();
  uint64_t count = 0;
  uint64_t now = start;
  for (; now - start < kSliceNs; now = apps::clock_ns(), count += calls_.size())
    round();
  return static_cast<double>(now - start) / static_cast<double>(count);
}

void Requester::round() {
  size_t ended = 0;
  for (std::unique_ptr<Call>& call : calls_) {
    Encoder& args = call->begin(kBinding, load_.procedure);
    if (load_.procedure == kEcho) {
      args.put_item(bytes_.span(0, kEchoBytes), Ddp::kNo);
      call->expect_reply(kEchoBytes);
    }
    call->submit([](Call&, void* count) { ++*static_cast<size_t*>(count); }, &ended);
  }
  while (ended != calls_.size())
    runtime_->poll();
  for (const std::unique_ptr<Call>& call : calls_) {
    if (call->status() != CallStatus::kOk)
      die(std::string("a call ended with ") + to_string(call->status()));
  }
}

double quantile(std::vector<double> values, double q) {
  auto at = values.begin() + static_cast<ptrdiff_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

InTurns in_turns(uint32_t slices, const std::function<double()>& first,
                 const std::function<double()>& second) {
  std::vector<double> firsts, seconds, ratios;
  double before = first();
  for (uint32_t i = 0; i < slices; ++i) {
    const double mine = second();
    const double after = first();
    firsts.push_back(after);
    seconds.push_back(mine);
    ratios.push_back((before + after) / 2 / mine);
    before = after;
  }
  return {quantile(firsts, 0.5), quantile(seconds, 0.5), quantile(ratios, 0.25),
          quantile(ratios, 0.5), quantile(ratios, 0.75)};
}

}  // namespace rrdk::perf
