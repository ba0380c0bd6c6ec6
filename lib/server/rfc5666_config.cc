#include "server/rfc5666_config.h"

#include <array>
#include <utility>

#include "proto/negotiation.h"
#include "service/call_context.h"

namespace rrdk::server {

namespace {

namespace ccp = proto::ccp;
using service::CallContext;

constexpr uint32_t kMostExposed = 4096;
constexpr uint32_t kSmallestAlign = 8;
constexpr uint32_t kLargestAlign = 4096;

constexpr ProcedureBinding kProcedures[] = {
    {.procedure = 0, .name = "NULL"},
    {.procedure = ccp::kConfRdma, .name = "CONF_RDMA", .fixed_results = ccp::kBodyBytes},
};
constexpr Binding kBinding = {.program = ccp::kProgram,
                              .version = ccp::kVersion,
                              .name = "rdmaconfig",
                              .procedures = kProcedures};

// Not declared by RFC 5666, but every program has it (V1-CCP-20).
void null(ServerCall call, void*) {
  CallContext::of(call).call->connection().count_config_call();
  std::move(call).reply();
}

// On the connection's poll core, where its engine is. Per connection (V1-CCP-19).
void conf_rdma(ServerCall call, void* context) {
  const auto& options = *static_cast<const Rfc5666ServerOptions*>(context);
  xprt::Connection& engine = CallContext::of(call).call->connection();
  engine.count_config_call();
  if (options.config_flavor && call.credential().flavor != *options.config_flavor)
    return std::move(call).deny(AuthStat::kTooWeak);
  std::array<std::byte, ccp::kBodyBytes> body;
  call.args().get_fixed(ccp::kBodyBytes).copy_to(body.data());
  if (!call.args().at_end())
    return std::move(call).reject(AcceptStat::kGarbageArgs);
  call.results().put_fixed(ccp::encode(engine.configure(ccp::decode_request(body))));
  std::move(call).reply();
}

constexpr Procedure kTable[] = {{0, null}, {ccp::kConfRdma, conf_rdma}};

}  // namespace

Service config_service(const Rfc5666ServerOptions& options) {
  return {.binding = &kBinding,
          .procedures = kTable,
          .context = const_cast<Rfc5666ServerOptions*>(&options)};  // which it only reads
}

Result<void> check(const ServerOptions& options, const Rfc5666ServerOptions& mode) {
  if (!mode.enabled)
    return {};
  if (!options.versions.one)
    return fail(Errc::kInvalidArgument, "rfc5666 is about version 1: versions.one is to be true");
  if (options.backward_credits != 0)
    return fail(Errc::kInvalidArgument,
                "rfc5666 has no calls of servers to their clients: backward_credits is to be 0");
  bool is_power = (mode.align & (mode.align - 1)) == 0;
  bool in_range = mode.align >= kSmallestAlign && mode.align <= kLargestAlign;
  if (mode.align != 0 && !(is_power && in_range))
    return fail(Errc::kInvalidArgument, "rfc5666.align is 0 or a power of two from 8 to 4096");
  if (mode.exposed_replies == 0 || mode.exposed_replies > kMostExposed)
    return fail(Errc::kInvalidArgument, "rfc5666.exposed_replies is 1 to 4096");
  if (mode.total_exposed_bytes < mode.exposed_bytes)
    return fail(Errc::kInvalidArgument,
                "rfc5666.total_exposed_bytes is at least rfc5666.exposed_bytes");
  if (mode.done_timeout_ms == 0)
    return fail(Errc::kInvalidArgument, "rfc5666.done_timeout_ms is at least 1");
  return {};
}

}  // namespace rrdk::server
