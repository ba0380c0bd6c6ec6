#include "xprt/connection.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>

#include "base/random.h"
#include "xprt/connection_impl.h"

namespace rrdk::xprt {

namespace {

ConnectionOptions normalised(ConnectionOptions options) {
  auto size = [](uint32_t bytes) { return std::clamp(bytes & ~1023u, 1024u, 262144u); };
  options.credits = std::clamp(options.credits, 1u, 65536u);
  options.send_size = size(options.send_size);
  options.receive_size = size(options.receive_size);
  options.send_wrs = std::max(options.send_wrs, 8u);
  options.max_sges = std::clamp(options.max_sges, 2u, fabric::kMaxSges);
  return options;
}

}  // namespace

void add(Counters& sum, const Counters& more) noexcept {
  using Words = std::array<uint64_t, sizeof(Counters) / sizeof(uint64_t)>;
  Words words = std::bit_cast<Words>(sum);
  std::ranges::transform(words, std::bit_cast<Words>(more), words.begin(), std::plus<>());
  sum = std::bit_cast<Counters>(words);
}

Connection::Connection(const ConnectionOptions& options, Memory& memory, CallPool& pool,
                       fabric::RemoteKeys& keys, Upcalls& upcalls)
    : impl_(std::make_unique<Impl>(
          *this, normalised(options), memory, pool, keys, upcalls,
          options.first_xid != 0 ? options.first_xid : base::Random().next())),
      turn_(impl_->responder.turn),
      sends_(impl_->link.sends.list()),
      receives_(impl_->link.receives.list()) {}

Connection::~Connection() = default;

proto::PrivateData Connection::private_data() const {
  const ConnectionOptions& options = impl_->link.options;
  return {options.remote_invalidation, options.send_size, options.receive_size};
}

bool Connection::prepare_receives() {
  impl_->link.pool.header_copy().reserve(receive_bytes(impl_->link.options));
  return impl_->requester.prepare() && impl_->link.receives.prepare();
}

void Connection::on_established(const proto::PrivateData& peer, uint32_t reads_allowed) {
  Link& link = impl_->link;
  if (link.phase != Phase::kNew)
    return;
  link.phase = Phase::kEstablished;
  link.invalidate = link.options.remote_invalidation && peer.remote_invalidation;
  // RFC 8797 is about version 1; version 2 has its default, or its transport properties.
  link.thresholds(proto::Wire::kVersion1) = {std::min(link.options.send_size, peer.receive_size),
                                             std::min(link.options.receive_size, peer.send_size)};
  link.speak(link.wire);
  link.sends.set_read_limit(std::max(1u, reads_allowed));
  impl_->pump();
}

void Connection::on_disconnected() {
  Link& link = impl_->link;
  if (link.phase == Phase::kDead)
    return;
  link.phase = Phase::kDead;
  link.receives.close();
  while (link.sends.front() != nullptr)
    link.sends.pop();
  impl_->responder.on_dead();
  impl_->requester.on_dead();
}

bool Connection::wants_disconnect() const {
  return impl_->link.wants_disconnect;
}
const char* Connection::fault() const {
  return impl_->link.fault;
}
bool Connection::established() const {
  return impl_->link.up();
}

bool Connection::work_in_flight() const {
  return impl_->link.receives.posted() != 0 || !impl_->link.sends.drained();
}

bool Connection::idle() const {
  return impl_->link.phase == Phase::kDead && !work_in_flight() && impl_->responder.calls() == 0 &&
         !impl_->requester.busy();
}

bool Connection::busy() const {
  return impl_->requester.busy() || impl_->responder.waiting();
}
const Counters& Connection::counters() const {
  return impl_->link.counters;
}
uint32_t Connection::calls() const {
  return impl_->responder.calls();
}
bool Connection::sends_pending() const {
  return !impl_->link.sends.drained();
}
uint32_t Connection::sends_done() const {
  return impl_->link.sends.done();
}
uint32_t Connection::granted() const {
  return impl_->responder.grant.last();
}
uint32_t Connection::version() const {
  return proto::version_of(impl_->link.wire);
}
bool Connection::version_settled() const {
  return impl_->link.settled;
}
uint32_t Connection::window() const {
  return impl_->requester.window.size();
}
uint32_t Connection::in_flight() const {
  return impl_->requester.window.in_flight();
}
bool Connection::may_send() const {
  return impl_->requester.may_send();
}

std::vector<uint32_t> Connection::last_xids() const {
  return impl_->requester.last_xids();
}
void Connection::continue_xids(std::span<const uint32_t> last) {
  impl_->requester.continue_xids(last);
}

void Connection::set_requested_credits(uint32_t credits) {
  impl_->requester.asked = std::clamp(credits, 1u, impl_->link.options.credits);
}

void Connection::set_granted_credits(uint32_t credits) {
  impl_->responder.grant.configure(std::min(credits, impl_->link.options.credits));
}

}  // namespace rrdk::xprt
