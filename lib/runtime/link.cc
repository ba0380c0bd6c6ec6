#include "runtime/link.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <optional>
#include <utility>

#include "base/assert.h"
#include "base/clock.h"
#include "base/sanitizer.h"
#include "mem/memory_impl.h"
#include "proto/negotiation.h"
#include "rrdk/counters.h"
#include "runtime/poll_core.h"

namespace rrdk::runtime {

namespace {

// Receives beyond the credits: for calls beyond the grant (V1-CREDIT-16) and messages without
// credit accounting.
constexpr uint32_t kSpareReceives = 8;
// A call with several chunks binds a key per segment; the engine waits when keys run out.
constexpr uint32_t kKeysPerCredit = 8;
constexpr uint32_t kFewestKeys = 256;

Error no_receives(const Memory& memory, const engine::ConnectionOptions& options, bool shared) {
  const auto [calls, replies] = engine::first_receives_of(options);
  const uint32_t receives = shared ? calls + replies : options.credits + options.backward_credits;
  PoolAudit pool = memory.audit_fitting(options.receive_size);
  return {Errc::kNoMemory,
          std::to_string(uint64_t{pool.available} + pool.more) + " of " +
              std::to_string(uint64_t{pool.count} + pool.more) + " buffers of " +
              std::to_string(pool.buffer_size) + " bytes are left, and a connection takes " +
              std::to_string(receives) + " for its Receives: " + mem::remedy_for(pool) +
              ", or lower credits or backward_credits"};
}

static_assert(proto::kRejectionLength + proto::kMaxRejectionText <= fabric::kMaxPrivateData);

// Adds what the server says about the end, if it is one of ours.
Ending ending_of(const fabric::Event& event) {
  Ending ending = event.ending;
  auto why =
      event.type == fabric::EventType::kRejected
          ? proto::decode_rejection(std::span(event.private_data).first(event.private_data_length))
          : std::nullopt;
  if (why)
    ending.text += ": " + why->to_string();
  return ending;
}

}  // namespace

void log_ending(LogLevel level, base::LogLimit* limit, const std::string& whose,
                const Ending& ending, const char* more) {
  if (level > log_level())
    return;
  const auto left_out =
      limit != nullptr ? limit->allow(base::Tsc::now_ns()) : std::optional<uint64_t>(0);
  if (left_out)
    base::log(level, "connection %s ended: %s%s%s", whose.c_str(), ending.to_string().c_str(), more,
              base::and_more(*left_out).text);
}

engine::ConnectionOptions fitted_to(const fabric::Capabilities& can,
                                    const engine::ConnectionOptions& options) {
  engine::ConnectionOptions fitted = options;
  fitted.send_wrs = std::min(options.send_wrs, can.max_send_wrs);
  fitted.max_sges = std::min(options.max_sges, can.max_sges);
  fitted.max_copied = can.max_copied;
  fitted.reads_at_once = can.reads_at_once;
  fitted.read_by_peer = can.read_by_peer;
  fitted.binds_lists = can.binds_lists;
  fitted.max_read_sges = std::min(options.max_read_sges, can.max_read_sges);
  fitted.max_read_bytes = std::min(options.max_read_bytes, can.max_read_bytes);
  fitted.rfc5666.max_reads = std::min(options.rfc5666.max_reads, can.max_reads);
  fitted.sends_invalidations = options.sends_invalidations && can.sends_invalidations;
  fitted.takes_invalidations = options.takes_invalidations && can.takes_invalidations;
  return fitted;
}

// If the fabric cannot hold back messages beyond a peer's share, a peer that sends too many could
// use up the Receives of others, and so end their connections. In that case each connection has
// Receives of its own.
bool shares_receives(const fabric::Capabilities& can, uint32_t first_credits) noexcept {
  return first_credits != 0 && can.max_shared_receives != 0 && can.holds_receives;
}

Link::Link(PollCore& core, OpenDevice& device)
    : core_(core),
      client_(core.outgoing()),
      device_(device),
      for_workers(core.outgoing().for_workers) {}

Link::Link(PollCore& core, OpenDevice& device, Peer peer, CoreClient& client)
    : core_(core),
      client_(client),
      accepting_(true),
      device_(device),
      peer_name_(peer.to_string()),
      peer_(std::move(peer)),
      since_ns_(base::Tsc::now_ns()),
      for_workers(client.for_workers) {}

Link::~Link() {
  RRDK_ASSERT(state_ == LinkState::kNew || state_ == LinkState::kDead, state_);
}

uint64_t Link::new_id() noexcept {
  static std::atomic<uint64_t> next = 1;  // 0: none
  return next.fetch_add(1, std::memory_order_relaxed);
}

engine::Counters Link::counters() const {
  std::lock_guard lock(engine_mutex_);
  if (engine_)
    return engine_->counters();
  return last_counters_ != nullptr ? *last_counters_ : engine::Counters();
}

uint32_t Link::window() const {
  std::lock_guard lock(engine_mutex_);
  base::TsanIgnore counting;
  return engine_ ? engine_->requester().window.size() : 0;
}

Link::ReceiveSizes Link::receive_sizes() const {
  std::lock_guard lock(engine_mutex_);
  base::TsanIgnore counting;
  if (!engine_)
    return {};
  return {engine_->properties().receive_size(), engine_->properties().peer().receive_size};
}

Result<fabric::QueuePairOptions> Link::queue_pair_options(const engine::ConnectionOptions& options,
                                                          Memory& memory) {
  const fabric::Capabilities& can = device_.capabilities();
  auto cq = core_.completion_queue(device_);
  if (!cq)
    return tl::unexpected(cq.error());
  if (shares_receives(can, options.first_credits)) {
    auto shared = core_.shared_receives(device_, engine::receive_bytes(options), memory);
    if (!shared)
      return tl::unexpected(shared.error());
    shared_receives_ = *shared;
  }
  uint32_t calls =
      std::max(options.credits, options.backward_chunks ? options.backward_credits : 0);
  // A server makes keys for its own calls, and for replies that are read.
  bool makes_keys = options.role == engine::Role::kRequester || options.rfc5666.enabled ||
                    (options.backward_chunks && options.backward_credits != 0);
  uint32_t keys = makes_keys ? std::max(calls * kKeysPerCredit, kFewestKeys) : 1;
  return fabric::QueuePairOptions{
      .cq = *cq,
      .srq = shared_receives_ != nullptr ? shared_receives_->posted.get() : nullptr,
      .send_wrs = std::min(options.send_wrs, can.max_send_wrs),
      .receive_wrs = std::min(2 * (options.credits + options.backward_credits) + kSpareReceives,
                              can.max_receive_wrs),
      .keys = std::min(keys, can.max_keys),
      .reads = can.max_reads,
      .owner = this};
}

Result<void> Link::prepare(std::unique_ptr<fabric::QueuePair> queue_pair,
                           const engine::SharedOptions& options, const engine::PerConnection& own,
                           Memory& memory, engine::Upcalls& upcalls) {
  RRDK_ASSERT(state_ == LinkState::kNew && !engine_, state_);
  queue_pair_ = std::move(queue_pair);
  port_ = queue_pair_.get();
  engine::PerConnection its = own;
  its.peer = {id_, peer_name_.c_str()};
  its.client_share = &client_;
  its.shared_receives = shared_receives_ != nullptr ? &shared_receives_->queue : nullptr;
  {
    std::lock_guard lock(engine_mutex_);
    engine_.emplace(options, its, memory, core_.call_pool(), *queue_pair_, upcalls);
  }
  state_ = LinkState::kConnecting;
  core_.add(*this);
  if (!engine_->prepare_receives())
    return tl::unexpected(no_receives(memory, *options, shared_receives_ != nullptr));
  engine_->post_receives(*queue_pair_);
  hold_back();
  return {};
}

Result<void> Link::connect(const std::string& name, const fabric::Place& place,
                           const engine::SharedOptions& options, const engine::PerConnection& own,
                           Memory& memory, engine::Upcalls& upcalls) {
  RRDK_ON_CORE(core_);
  RRDK_ASSERT(!accepting_ && state_ == LinkState::kNew, state_);
  auto queue = queue_pair_options(*options, memory);
  if (!queue)
    return tl::unexpected(queue.error());
  auto qp = device_.with([&](fabric::Device& d) { return d.create_queue_pair(*queue); });
  if (!qp)
    return tl::unexpected(qp.error());
  peer_name_ = name;
  Result<void> started = prepare(std::move(*qp), options, own, memory, upcalls).and_then([&] {
    auto ours = proto::encode(engine_->private_data());
    return device_.with([&](fabric::Device& d) { return d.connect(*queue_pair_, place, ours); });
  });
  if (!started) {
    const Ending ending = fabric::ending_of(started.error());
    close(ending);
    on_fabric_down(ending);
  }
  return started;
}

Result<void> Link::accept(fabric::ConnectRequest& request, const engine::SharedOptions& options,
                          const engine::PerConnection& own, Memory& memory,
                          engine::Upcalls& upcalls) {
  RRDK_ON_CORE(core_);
  RRDK_ASSERT(accepting_ && state_ == LinkState::kNew, state_);
  auto queue = queue_pair_options(*options, memory);
  if (!queue)
    return tl::unexpected(queue.error());
  auto qp = device_.with([&](fabric::Device&) { return request.create_queue_pair(*queue); });
  if (!qp)
    return tl::unexpected(qp.error());
  accepted_ = proto::decode_private_data(request.private_data());
  Result<void> started = prepare(std::move(*qp), options, own, memory, upcalls).and_then([&] {
    auto ours = proto::encode(engine_->private_data());
    return device_.with([&](fabric::Device&) { return request.accept(*queue_pair_, ours); });
  });
  if (!started) {
    const Ending ending = fabric::ending_of(started.error());
    close(ending);
    on_fabric_down(ending);
  }
  return started;
}

void Link::establish(const proto::PrivateData& peer) {
  if (!engine_->established())
    engine_->on_established(peer, queue_pair_->reads_allowed());
}

void Link::close(const Ending& ending) {
  RRDK_ON_CORE(core_);
  if (state_ == LinkState::kConnecting || state_ == LinkState::kUp) {
    was_up_ = state_ == LinkState::kUp;
    state_ = LinkState::kClosing;
    is_over_.store(true, std::memory_order_relaxed);
    engine_->fail();
    set_lane_user(nullptr);
    queue_pair_->disconnect();
    core_.mark_dirty(*this);
  }
  if (state_ == LinkState::kClosing || state_ == LinkState::kFlushing)
    settle_ending(ending);
}

void Link::settle_ending(const Ending& ending) {
  if (ending_ != nullptr || !ending.ended())
    return;
  note_ending(ending);
  if (was_up_)
    engine_->count_ended(ending.by);
  on_down(*ending_);
}

void Link::note_ending(const Ending& ending) {
  std::lock_guard lock(engine_mutex_);
  if (ending_ == nullptr)
    ending_ = std::make_unique<const Ending>(ending);
}

const Ending& Link::ending() const noexcept {
  static const Ending none;
  return ending_ != nullptr ? *ending_ : none;
}

fabric::Lane::Untaken Link::untaken() noexcept {
  fabric::Lane* const lane = queue_pair_->lane();
  return lane != nullptr ? lane->untaken() : fabric::Lane::Untaken{};
}

bool Link::may_close() noexcept {
  if (!engine_->has_drained() || !untaken().any)
    return true;
  if (drained_ns_ == 0)
    drained_ns_ = core_.now();
  return core_.now() - drained_ns_ >= engine_->options().send_wait_ns;
}

// Completions that are still to be polled may show what the peer did.
void Link::on_fabric_down(const Ending& ending) {
  if (const std::byte* const reply = queue_pair_->behind_refused_write())
    engine_->on_write_refused(xdr::load_u32(reply));
  close({});
  last_word_ = std::make_unique<const Ending>(ending);
  state_ = LinkState::kFlushing;
  core_.mark_dirty(*this);
}

void Link::finish_close() {
  RRDK_ASSERT(fabric_is_down() && engine_, state_);
  if (shared_receives_ != nullptr &&
      (queue_pair_->holds_receive() || core_.tap().faults().holds_up(this))) {
    core_.mark_dirty(*this);
    return;
  }
  if (state_ == LinkState::kFlushing && !engine_->work_in_flight()) {
    settle_ending(engine_->ending());
    settle_ending(*last_word_);
    state_ = LinkState::kLeaving;
    engine_->on_disconnected();
  }
  if (state_ == LinkState::kLeaving) {
    if (shared_receives_ != nullptr)  // those of messages that waited are useful to others
      engine_->post_receives(*queue_pair_);
    on_last_call();
  }
  if (!dirty_ && !waits_turn_ && engine_->idle())
    destroy();
}

void Link::on_event(const fabric::Event& event) {
  RRDK_ON_CORE(core_);
  if (state_ == LinkState::kNew || state_ >= LinkState::kFlushing)
    return;
  if (event.type != fabric::EventType::kEstablished) {
    if (event.ending.refusal)
      engine_->count_refusal(*event.ending.refusal);
    if (event.type != fabric::EventType::kDisconnected)
      close(ending_of(event));
    on_fabric_down(event.ending);
    return;
  }
  if (state_ != LinkState::kConnecting)
    return;
  if (!accepting_)
    on_established();
  establish(accepting_ ? accepted_
                       : proto::decode_private_data(
                             std::span(event.private_data).first(event.private_data_length)));
  state_ = LinkState::kUp;
  engine_->set_port(port_);
  on_up();
  core_.mark_dirty(*this);
}

void Link::destroy() {
  RRDK_ASSERT(state_ == LinkState::kLeaving && engine_->idle(), state_);
  RRDK_ASSERT(!dirty_ && !waits_turn_);
  on_finished();
  state_ = LinkState::kDead;
  core_.remove(*this);
  core_.tap().faults().forget(*this);
  if (observe::CoreCapture* const capture = core_.tap().capture())
    capture->forget(id_);
  {
    std::lock_guard lock(engine_mutex_);
    last_counters_ = std::make_unique<const engine::Counters>(engine_->counters());
    engine_.reset();
  }
  device_.with([&](fabric::Device&) { queue_pair_.reset(); });
  on_dead();
}

void Link::tap(fabric::Tap& tap) {
  if (tapped_ == nullptr)
    tapped_ = std::make_unique<fabric::TappedQueuePair>(tap, this, *queue_pair_);
  port_ = tapped_.get();
  queue_pair_->set_lane_user(nullptr);
  if (state_ == LinkState::kUp)
    engine_->set_port(port_);
}

void Link::untap() noexcept {
  port_ = queue_pair_.get();
  queue_pair_->set_lane_user(lane_user_);
  if (state_ == LinkState::kUp)
    engine_->set_port(port_);
}

// The connecting end knows the peer's address only when the connection is established, since a name
// may have several addresses.
void Link::on_established() {
  Peer peer = queue_pair_->peer();
  std::lock_guard lock(engine_mutex_);
  peer_ = std::move(peer);
  since_ns_ = base::Tsc::now_ns();
}

// Calls and their outcomes are those of the forward direction, from client to server, whichever end
// this is. The core goes on counting, and may have counted an answer but not yet its call.
ConnectionInfo Link::info() const {
  const engine::Counters c = counters();
  const uint64_t now = base::Tsc::now_ns();
  ConnectionInfo info = {.id = id_, .peer = {}, .core = core_.index()};
  info.calls = accepting_ ? c.calls_received.get() : c.calls_sent.get();
  // Including calls that were given up.
  const uint64_t replies =
      accepting_ ? c.replies_sent.get() : c.replies_received + c.calls_answered_late;
  info.replies = std::min(replies, info.calls);
  info.transport_errors =
      accepting_ ? c.transport_errors_sent.get() : c.transport_errors_received.get();
  info.rdma_read_bytes = c.rdma_read_bytes;
  info.rdma_written_bytes = c.rdma_written_bytes;
  info.protocol_breaches = c.breaches();
  std::lock_guard lock(engine_mutex_);
  info.peer = peer_;
  info.ending = ending();
  info.age_ns = since_ns_ == 0 ? 0 : now - std::min(now, since_ns_);
  if (engine_) {
    base::TsanIgnore counting;
    const engine::Agreed agreed = engine_->agreed();
    info.version = agreed.version;
    info.send_size = agreed.send_size;
    info.receive_size = agreed.receive_size;
    info.credits = agreed.credits;
    info.in_progress = agreed.in_progress;
  }
  const uint64_t active = std::max(active_ns_.load(std::memory_order_relaxed), since_ns_);
  info.idle_ns = info.in_progress != 0 || active == 0 ? 0 : now - std::min(now, active);
  return info;
}

}  // namespace rrdk::runtime
