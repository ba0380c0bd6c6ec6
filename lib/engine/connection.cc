#include "engine/connection.h"

#include <algorithm>
#include <array>

#include "base/assert.h"
#include "base/random.h"

namespace rrdk::engine {

namespace {

// Rounds sizes to multiples of 1024. first_credits stays 0 if it is 0: the Receives are not shared.
ConnectionOptions normalised(ConnectionOptions options) {
  auto size = [](uint32_t bytes) { return std::clamp(bytes & ~1023u, 1024u, 262144u); };
  options.credits = std::clamp(options.credits, 1u, 65536u);
  options.backward_credits = std::min(options.backward_credits, 65536u);
  if (options.rfc5666.enabled)
    options.backward_credits = 0;
  options.first_credits =
      std::min(options.first_credits, std::max(1u, credits_of(Role::kResponder, options)));
  options.send_size = size(options.send_size);
  options.receive_size = size(options.receive_size);
  options.max_receive_size = std::max(size(options.max_receive_size), options.receive_size);
  options.limits.read_bytes = std::max(options.limits.read_bytes, options.max_call);
  options.send_wrs = std::max(options.send_wrs, 8u);
  options.max_sges = std::clamp(options.max_sges, 2u, fabric::kMaxSges);
  return options;
}

}  // namespace

uint64_t Counters::breaches() const noexcept {
  uint64_t sum = 0;
  for (Refusal reason : all_refusals())
    sum += is_breach(reason) ? refusals[reason].get() : 0;
  return sum;
}

void Counters::add_to(Stats& sum) const noexcept {
#define RRDK_CONNECTION_COUNTER(id, enumerator, name, text) sum.add(Counter::k##enumerator, name);
#define RRDK_REFUSAL(id, reason, name, breach, title, text) \
  sum.add(Counter::kRefusal##reason, refusals[Refusal::k##reason]);
#include "rrdk/counter_table.h"
  sum.add(Counter::kProtocolBreaches, breaches());
}

SharedOptions::SharedOptions(const ConnectionOptions& wanted) : options_(normalised(wanted)) {}

Connection::Connection(const SharedOptions& options, const PerConnection& own, Memory& memory,
                       CallPool& pool, fabric::RemoteKeys& keys, Upcalls& upcalls)
    : common_(*this, options, own, memory, pool, keys, upcalls),
      responder_(common_, own),
      requester_(common_, options->first_xid != 0 ? options->first_xid : base::Random().next()),
      properties_(common_, requester_, responder_) {
  common_.properties = &properties_;
  common_.grant = &responder_.grant;
  if (options->rfc5666.enabled)
    begin_rfc5666();
}

Connection::~Connection() {
  RRDK_ASSERT(idle(), common_.phase, responder_.calls());
}

proto::PrivateData Connection::private_data() const {
  return {common_.invalidates(), common_.options.send_size, common_.options.receive_size};
}

bool Connection::prepare_receives() {
  RRDK_ON_CORE(common_.pool);
  RRDK_ASSERT(common_.phase == Phase::kNew, common_.phase);
  if (reader_ != nullptr && !reader_->prepare())
    return false;
  // A server's half that makes calls prepares for the first call later.
  if (common_.options.role == Role::kRequester && !requester_.prepare())
    return false;
  return common_.share.open(needs_spares_at_once(common_.options));
}

void Connection::on_established(const proto::PrivateData& peer, uint32_t reads_allowed) {
  RRDK_ON_CORE(common_.pool);
  if (common_.phase != Phase::kNew)
    return;
  common_.phase = common_.end_reason.by == EndedBy::kNobody ? Phase::kUp : Phase::kEnding;
  common_.invalidate = common_.invalidates() && peer.remote_invalidation;
  // RFC 8797 is about version 1. Version 2 has its default, or its transport properties.
  common_.thresholds(proto::Wire::kVersion1) = {
      std::min(common_.options.send_size, peer.receive_size),
      std::min(common_.options.receive_size, peer.send_size)};
  common_.speak(common_.wire);
  common_.sends.set_read_limit(std::max(1u, reads_allowed));
  pump();
}

void Connection::on_disconnected() {
  RRDK_ON_CORE(common_.pool);
  if (common_.phase == Phase::kDead)
    return;
  common_.phase = Phase::kDead;
  common_.port = nullptr;
  common_.plain_limit = 0;
  common_.receives.close();
  while (common_.sends.front() != nullptr)
    common_.sends.pop();
  if (reader_ != nullptr)
    reader_->on_dead();
  responder_.on_dead();
  requester_.on_dead();
  properties_.on_dead();
  common_.share.close();
}

Ending Connection::ending() const {
  const EndReason& why = common_.end_reason;
  return {.by = why.by, .code = why.code, .refusal = why.refusal, .text = why.text};
}

bool Connection::idle() const noexcept {
  return common_.phase == Phase::kDead && !work_in_flight() && responder_.calls() == 0 &&
         requester_.idle();
}

bool Connection::busy() const noexcept {
  return requester_.needs_tick() || responder_.waiting() || responder_.reading() ||
         properties_.requested();
}

uint64_t Connection::quiet_until() const noexcept {
  if (responder_.waiting() || properties_.requested())
    return 0;
  return std::min(responder_.quiet_until(), requester_.quiet_until());
}

bool Connection::may_call_back() const noexcept {
  return common_.both_ways() && common_.up() && common_.calling && !common_.refuses_calls();
}

Agreed Connection::agreed() const {
  if (common_.phase == Phase::kNew)
    return {};
  const bool requester = common_.options.role == Role::kRequester;
  const Thresholds inline_sizes = common_.by_version[proto::version_of(common_.wire) - 1];
  return {.version = common_.calling ? proto::version_of(common_.wire) : 0,
          .send_size = inline_sizes.send,
          .receive_size = inline_sizes.receive,
          .credits = requester ? requester_.window.size() : responder_.grant.last(),
          .in_progress = requester ? requester_.window.in_flight() : responder_.calls()};
}

bool Connection::request_receive_size(uint32_t bytes) {
  RRDK_ON_CORE(common_.pool);
  const bool requested = common_.up() && properties_.request(bytes);
  pump();
  return requested;
}

void Connection::count_ended(EndedBy by) {
  Counters& counters = common_.counters;
  switch (by) {
    case EndedBy::kNobody:
      return;
    case EndedBy::kPeer:
      ++counters.ended_by_peer;
      return;
    case EndedBy::kProgram:
      ++counters.ended_by_program;
      return;
    case EndedBy::kLimit:
      ++counters.ended_by_limit;
      return;
    case EndedBy::kNetwork:
      ++counters.ended_by_network;
      return;
  }
}

}  // namespace rrdk::engine
