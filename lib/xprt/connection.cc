#include "xprt/connection.h"

#include <algorithm>
#include <array>

#include "base/assert.h"
#include "base/random.h"
#include "xprt/connection_impl.h"

namespace rrdk::xprt {

namespace {

// Sizes are multiples of 1024. No first credits stay none: Receives are not to be shared.
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
    : impl_(std::make_unique<Impl>(
          *this, options, own, memory, pool, keys, upcalls,
          options->first_xid != 0 ? options->first_xid : base::Random().next())),
      turn_(impl_->responder.turn),
      requester_(impl_->requester),
      sends_(impl_->link.sends.list()),
      receives_(impl_->link.receives.list()),
      holds_back_(impl_->link.share.full()),
      unposted_(impl_->link.unposted) {}

Connection::~Connection() {
  RRDK_ASSERT(idle(), impl_->link.phase, calls());
}

proto::PrivateData Connection::private_data() const {
  const Link& link = impl_->link;
  return {link.invalidates(), link.options.send_size, link.options.receive_size};
}

bool Connection::prepare_receives() {
  RRDK_ON_CORE(impl_->link.pool);
  Link& link = impl_->link;
  RRDK_ASSERT(link.phase == Phase::kNew, link.phase);
  if (impl_->reader != nullptr && !impl_->reader->prepare())
    return false;
  // A server's half that makes calls prepares for the first of them.
  if (link.options.role == Role::kRequester && !impl_->requester.prepare())
    return false;
  return link.share.open(needs_spares_at_once(link.options));
}

void Connection::on_established(const proto::PrivateData& peer, uint32_t reads_allowed) {
  RRDK_ON_CORE(impl_->link.pool);
  Link& link = impl_->link;
  if (link.phase != Phase::kNew)
    return;
  link.phase = link.end_reason.by == EndedBy::kNobody ? Phase::kUp : Phase::kEnding;
  link.invalidate = link.invalidates() && peer.remote_invalidation;
  // RFC 8797 is about version 1; version 2 has its default, or its transport properties.
  link.thresholds(proto::Wire::kVersion1) = {std::min(link.options.send_size, peer.receive_size),
                                             std::min(link.options.receive_size, peer.send_size)};
  link.speak(link.wire);
  link.sends.set_read_limit(std::max(1u, reads_allowed));
  impl_->pump();
}

void Connection::on_disconnected() {
  RRDK_ON_CORE(impl_->link.pool);
  Link& link = impl_->link;
  if (link.phase == Phase::kDead)
    return;
  link.phase = Phase::kDead;
  link.plain_limit = 0;
  link.receives.close();
  while (link.sends.front() != nullptr)
    link.sends.pop();
  if (impl_->reader != nullptr)
    impl_->reader->on_dead();
  impl_->responder.on_dead();
  impl_->requester.on_dead();
  impl_->properties.on_dead();
  link.share.close();
}

bool Connection::wants_disconnect() const {
  return impl_->link.phase == Phase::kEnding || impl_->link.phase == Phase::kFailing;
}
Ending Connection::ending() const {
  const EndReason& why = impl_->link.end_reason;
  return {.by = why.by, .code = why.code, .refusal = why.refusal, .text = why.text};
}
bool Connection::established() const {
  return impl_->link.up();
}

bool Connection::work_in_flight() const {
  return impl_->link.own_receives_posted() != 0 || !impl_->link.sends.drained();
}

bool Connection::idle() const {
  return impl_->link.phase == Phase::kDead && !work_in_flight() && impl_->responder.calls() == 0 &&
         impl_->requester.idle();
}

bool Connection::busy() const {
  const Responder& responder = impl_->responder;
  return impl_->requester.needs_tick() || responder.waiting() || responder.reading() ||
         impl_->properties.requested();
}

uint64_t Connection::quiet_until() const {
  const Responder& responder = impl_->responder;
  if (responder.waiting() || impl_->properties.requested())
    return 0;
  return std::min(responder.quiet_until(), impl_->requester.quiet_until());
}

const Counters& Connection::counters() const {
  return impl_->link.counters;
}
uint32_t Connection::calls() const {
  return impl_->responder.calls();
}
bool Connection::has_parked() const {
  return impl_->link.share.parked() != nullptr;
}
bool Connection::sends_pending() const {
  return !impl_->link.sends.drained();
}
uint32_t Connection::sends_done() const {
  return impl_->link.sends.done();
}
uint32_t Connection::most_granted() const {
  return impl_->responder.grant.most_ever();
}

uint32_t Connection::granted() const {
  return impl_->responder.grant.last();
}
bool Connection::may_call_back() const {
  const Link& link = impl_->link;
  return link.both_ways() && link.up() && link.calling && !link.refuses_calls();
}
uint32_t Connection::version() const {
  return proto::version_of(impl_->link.wire);
}
bool Connection::version_settled() const {
  return impl_->link.settled;
}
Agreed Connection::agreed() const {
  const Link& link = impl_->link;
  if (link.phase == Phase::kNew)
    return {};
  const bool requester = link.options.role == Role::kRequester;
  const Thresholds inline_sizes = link.by_version[proto::version_of(link.wire) - 1];
  return {
      .version = link.calling ? proto::version_of(link.wire) : 0,
      .send_size = inline_sizes.send,
      .receive_size = inline_sizes.receive,
      .credits = requester ? impl_->requester.window.size() : impl_->responder.grant.last(),
      .in_progress = requester ? impl_->requester.window.in_flight() : impl_->responder.calls()};
}
uint32_t Connection::window() const {
  return impl_->requester.window.size();
}
uint32_t Connection::in_flight() const {
  return impl_->requester.window.in_flight();
}
bool Connection::request_receive_size(uint32_t bytes) {
  RRDK_ON_CORE(impl_->link.pool);
  bool requested = impl_->link.up() && impl_->properties.request(bytes);
  impl_->pump();
  return requested;
}
bool Connection::receive_size_requested() const {
  return impl_->properties.requested();
}
bool Connection::raise_receives(uint32_t bytes) {
  RRDK_ON_CORE(impl_->link.pool);
  return impl_->properties.raise(bytes);
}
uint32_t Connection::announced_receive_size() const {
  return impl_->properties.receive_size();
}
uint32_t Connection::peer_receive_size() const {
  return impl_->properties.peer().receive_size;
}
bool Connection::may_send() const {
  return impl_->requester.may_send();
}

std::vector<uint32_t> Connection::last_xids() const {
  return impl_->requester.last_xids();
}
void Connection::continue_xids(std::span<const uint32_t> last) {
  RRDK_ASSERT(!impl_->link.up(), impl_->link.phase);
  impl_->requester.continue_xids(last);
}

void Connection::set_granted_credits(uint32_t credits) {
  RRDK_ON_CORE(impl_->link.pool);
  impl_->responder.grant.configure(std::min(credits, impl_->link.options.credits));
}

}  // namespace rrdk::xprt
