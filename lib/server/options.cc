#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "engine/common.h"
#include "engine/option_checks.h"
#include "engine/served_call.h"
#include "mem/heap_charge.h"
#include "proto/codec.h"
#include "proto/negotiation.h"
#include "server/client_table.h"
#include "server/server_impl.h"
#include "server/server_link.h"
#include "service/dispatcher.h"

namespace rrdk::server {

namespace {

constexpr uint32_t kMostReplayEntries = 65536;

// Checks whether one connection's Receives could grow at all.
Result<void> check_growth(const ServerOptions& options, const Memory& memory) {
  auto speaks = proto::versions_of(options.versions).two;
  bool grows = options.version2.properties && speaks == proto::Wire::kDraft04 &&
               options.version2.max_receive_size > receive_bytes(options);
  if (!grows)
    return {};
  Growth growth(memory, receive_bytes(options));
  GrowthShares shares;
  uint32_t receives = receives_of(options) + engine::kPropertyReceives;
  if (auto room = growth.take(options.version2.max_receive_size, receives, shares); !room)
    return fail(Errc::kInvalidArgument, "version2.max_receive_size is " +
                                            std::to_string(options.version2.max_receive_size) +
                                            ", and " + room.error().message);
  return {};
}

// One client, which can have half, must have memory for two connections.
uint64_t least_replay_bytes(const ServerOptions& options) {
  return 4 * bytes_of_lane(outstanding_calls(options), options.replay.entries);
}

Result<void> check_replay(const ServerOptions& options) {
  const ReplayOptions& replay = options.replay;
  if (replay.entries > kMostReplayEntries)
    return engine::wrong_option("replay.entries", replay.entries, "at most 65536 are possible");
  if (replay.entries == 0)
    return {};
  if (replay.clients == 0)
    return fail(Errc::kInvalidArgument,
                "replay.clients is at least 1; a server without a cache has replay.entries 0");
  if (replay.ipv4_prefix > 32)
    return engine::wrong_option("replay.ipv4_prefix", replay.ipv4_prefix,
                                "an IPv4 address has 32 bits");
  if (replay.bytes < replay.max_reply)
    return fail(Errc::kInvalidArgument, "replay.bytes is " + std::to_string(replay.bytes) +
                                            ": it cannot hold one reply of replay.max_reply, " +
                                            std::to_string(replay.max_reply) + " bytes");
  uint64_t least = least_replay_bytes(options);
  if (replay.total_bytes != 0 && replay.total_bytes < least)
    return fail(Errc::kInvalidArgument, "replay.total_bytes is " +
                                            std::to_string(replay.total_bytes) +
                                            ": with this number of credits at least " +
                                            std::to_string(least) + " are needed");
  return {};
}

Result<void> check_extensions(const ServerOptions& options) {
  if (options.version2.extensions != nullptr && !options.version2.extensions->unserved().empty())
    return fail(Errc::kInvalidArgument, "version2.extensions: no type serves feature '" +
                                            options.version2.extensions->unserved() +
                                            "': at least one of its types needs `serve`");
  return {};
}

// Receives must fit buffers of the pool.
Result<void> check_memory(const ServerOptions& options, const Memory& memory) {
  if (uint32_t bytes = receive_bytes(options); bytes > memory.largest_buffer())
    return fail(Errc::kInvalidArgument,
                "a Receive takes " + std::to_string(bytes) +
                    " bytes (inline_size; version 2 needs 4096) and the largest buffers have " +
                    std::to_string(memory.largest_buffer()) +
                    " bytes: add a class to MemoryOptions::classes");
  if (options.version2.max_receive_size > memory.largest_buffer())
    return fail(Errc::kInvalidArgument, "version2.max_receive_size is " +
                                            std::to_string(options.version2.max_receive_size) +
                                            ", and the largest buffers have " +
                                            std::to_string(memory.largest_buffer()) +
                                            " bytes: add a class to MemoryOptions::classes");
  return check_growth(options, memory);
}

// As many bytes of one call's arguments can be fetched as fit the most buffers. A value up to the
// default is allowed even if buffers are small.
Result<void> check_max_call(const ServerOptions& options, const Memory& memory) {
  const uint64_t most =
      std::max(ServerOptions{}.max_call, uint64_t{engine::kMaxSinks} * memory.largest_buffer());
  if (options.max_call <= most)
    return {};
  return fail(Errc::kInvalidArgument,
              "max_call is " + std::to_string(options.max_call) + ", and a call has at most " +
                  std::to_string(engine::kMaxSinks) + " buffers of " +
                  std::to_string(memory.largest_buffer()) + " bytes, the largest: lower it to " +
                  std::to_string(most) + ", or add a larger class to MemoryOptions::classes");
}

}  // namespace

Result<void> check(const ServerLimits& limits) {
  if (limits.max_connections == 0)
    return fail(Errc::kInvalidArgument, "max_connections is at least 1");
  return {};
}

Result<void> check(const ServerOptions& options, const Memory& memory) {
  if (!options.versions.one && !options.versions.two)
    return fail(Errc::kInvalidArgument, "versions: a server answers one version at least");
  // It limits max_call and max_reply, so it has the same minimum.
  if (options.max_chunk_bytes < engine::kLeastMessage)
    return engine::wrong_option("max_chunk_bytes", options.max_chunk_bytes,
                                "at least 1024 are needed");
  if (options.first_credits == 0)
    return fail(Errc::kInvalidArgument, "first_credits is at least 1");
  if (auto limits = check(ServerLimits{.max_connections = options.max_connections}); !limits)
    return limits;
  if (auto common = engine::check_common(options); !common)
    return common;
  if (auto fits = check_max_call(options, memory); !fits)
    return fits;
  if (auto extensions = check_extensions(options); !extensions)
    return extensions;
  if (auto fits = check_memory(options, memory); !fits)
    return fits;
  if (auto replay = check_replay(options); !replay)
    return replay;
  return check(options, options.rfc5666);
}

uint32_t receive_bytes(const ServerOptions& options) {
  return proto::receive_bytes(options.inline_size, proto::versions_of(options.versions));
}

// For replies that the peer has yet to read, RDMA_DONEs come.
uint32_t receives_of(const ServerOptions& options) {
  return outstanding_calls(options) + options.backward_credits;
}

uint32_t first_credits(const ServerOptions& options) {
  bool grows = options.version2.max_receive_size > receive_bytes(options);
  bool own = options.private_receives || options.rfc5666.enabled || grows;
  return own ? 0 : std::min(options.first_credits, options.credits);
}

uint32_t exposed_replies(const ServerOptions& options) {
  return options.rfc5666.enabled ? std::min(options.rfc5666.exposed_replies, options.credits) : 0;
}

uint32_t outstanding_calls(const ServerOptions& options) {
  return options.credits + exposed_replies(options);
}

ReplayBounds replay_bounds(const ServerOptions& options, Memory& memory) {
  constexpr uint64_t kOfNoBudget = 128 << 20;
  if (options.replay.entries == 0)
    return {.bytes = 0};
  const uint64_t least = least_replay_bytes(options);
  const uint64_t budget = mem::elastic_budget(memory);
  const uint64_t share = std::max(budget == 0 ? kOfNoBudget : budget / 2, least);
  return {.bytes = options.replay.total_bytes != 0 ? options.replay.total_bytes : share,
          .reserve = least,
          .exposed = exposed_replies(options)};
}

namespace {

namespace ccp = proto::ccp;
using engine::ServedCall;

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
  service::CallAccess::of(call).connection().count_config_call();
  std::move(call).reply();
}

// On the connection's poll core, where its engine is. Per connection (V1-CCP-19).
void conf_rdma(ServerCall call, void* context) {
  const auto& options = *static_cast<const Rfc5666ServerOptions*>(context);
  engine::Connection& engine = service::CallAccess::of(call).connection();
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
    return fail(Errc::kInvalidArgument, "rfc5666 is about version 1: versions.one must be true");
  if (options.backward_credits != 0)
    return fail(Errc::kInvalidArgument,
                "rfc5666 has no calls of servers to their clients: backward_credits must be 0");
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
