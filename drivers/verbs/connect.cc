// How a queue pair becomes connected, and how its end is reported: the control thread's part of
// QueuePair.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "drivers/verbs/completion_queue.h"
#include "drivers/verbs/device.h"
#include "drivers/verbs/queue_pair.h"

namespace rrdk::verbs {

using drivers::Clock;

namespace {

// Ticks without progress after which a flush is no longer left to the device.
constexpr uint32_t kQuietTicks = 5;
// Ticks until the first poke of a peer that has sent nothing yet; the interval doubles each time.
constexpr uint32_t kFirstPoke = 2;
constexpr uint32_t kLastPoke = kFirstPoke << (kMostPokes - 1);
// InfiniBand's RNR NAK timer field 12: a sender that found no Receive tries again after 0.64 ms.
constexpr uint8_t kMinRnrTimer = 12;
// The maximum of their three bits: 7 transport retries, and RNR retries without end, since the
// layers above decide about a peer that posts no Receive.
constexpr uint8_t kRetries = 7;
constexpr uint8_t kRnrRetries = 7;
// REJ reasons (InfiniBand volume 1, table 112) as events carry them.
constexpr int kRejInvalidServiceId = 8;
constexpr int kRejStaleConnection = 10;
constexpr int kRejConsumer = 28;

uint8_t depth(uint32_t reads) {
  return static_cast<uint8_t>(std::min<uint32_t>(reads, std::numeric_limits<uint8_t>::max()));
}

}  // namespace

fabric::Event QueuePair::new_event(fabric::EventType type) const {
  fabric::Event event;
  event.type = type;
  event.owner = owner_;
  return event;
}

std::string QueuePair::error_text(const char* what, int error) const {
  return place_ + what + ": " + std::strerror(std::abs(error));
}

Result<void> QueuePair::start_connect(const Address& address,
                                      std::span<const std::byte> private_data) {
  const std::lock_guard lock(device_.control().mutex());
  if (status_.load(std::memory_order_acquire) != Status::kIdle)
    return fail(Errc::kInvalidArgument, "the queue pair was connected before");
  if (Result<void> usable = device_.check_alive(); !usable)
    return usable;
  by_name_ = address.by_name;
  timeout_ = address.timeout.value_or(fabric::kConnectTimeout);
  turns_.begin(address.endpoints, Clock::now() + timeout_);
  private_data_.assign(private_data.begin(), private_data.end());
  if (Result<void> begun = next_address(); !begun)
    return begun;
  Status idle = Status::kIdle;
  if (!status_.compare_exchange_strong(idle, Status::kConnecting)) {
    id_.reset();
    return fail(Errc::kShutdown, "the queue pair was disconnected");
  }
  device_.control().set_ticking(*this, true);
  return {};
}

// Tries the peer's next address that does not fail at once, instead of the previous one: there is
// one queue pair of the device's, and so one attempt at a time. Each has its share of the time.
Result<void> QueuePair::next_address() {
  while (turns_.left()) {
    const Clock::time_point now = Clock::now();
    far_ = turns_.take(now);
    turns_.share(now);
    place_ = by_name_ ? drivers::to_text(far_) + ": " : "";
    Result<Id> id = device_.channel().create_id(*this);
    if (!id)
      return tl::unexpected(id.error());
    if (rdma_resolve_addr(id->get(), nullptr, far_.get(), static_cast<int>(timeout_.count())) ==
        0) {
      id_ = std::move(*id);
      return {};
    }
    note_failure(drivers::code_of(errno), error_text("no RDMA device leads there", errno));
  }
  return tl::unexpected(failure_);
}

void QueuePair::note_failure(Errc code, const std::string& reason) {
  failure_ = {code, (failure_.message.empty() ? "" : failure_.message + "; ") + reason};
}

// Another address may lead to the peer, as long as the device's queue pair is not tied to one.
void QueuePair::address_failed(Errc code, const std::string& reason) {
  note_failure(code, reason);
  if (accepting_ || answered_ || !next_address())
    connect_failed(fabric::EventType::kConnectFailed, failure_.code, failure_.message);
}

void QueuePair::on_cm_event(const CmEvent& event) {
  const bool connecting = status_.load(std::memory_order_acquire) == Status::kConnecting;
  const auto failed = [&](const char* what) {
    if (connecting)
      address_failed(drivers::code_of(event.status), error_text(what, event.status));
  };
  switch (event.type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      return connecting ? addr_resolved() : void();
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      return connecting ? route_resolved() : void();
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
      return connecting ? peer_answered(event) : void();
    case RDMA_CM_EVENT_ESTABLISHED:
      return connecting ? established(event) : void();
    case RDMA_CM_EVENT_ADDR_ERROR:
      return failed("no RDMA device leads there");
    case RDMA_CM_EVENT_ROUTE_ERROR:
      return failed("there is no route");
    case RDMA_CM_EVENT_UNREACHABLE:
      return failed("no answer");
    case RDMA_CM_EVENT_CONNECT_ERROR:
      return failed("the connection could not be made");
    case RDMA_CM_EVENT_REJECTED:
      return connecting ? rejected(event) : void();
    case RDMA_CM_EVENT_DISCONNECTED:
      return end_with(End::kPeerClosed);
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return device_.lose();
    case RDMA_CM_EVENT_ADDR_CHANGE:
      Counters::count(device_.counts().addresses_changed);
      return end_with(End::kAddressChanged);
    default:
      return;
  }
}

void QueuePair::on_async_event(ibv_event_type type) {
  if (type == IBV_EVENT_COMM_EST) {
    if (id_)
      // A message came before the peer's last message of the handshake.
      rdma_notify(id_.get(), type);
    return;
  }
  end_with(End::kPeerRefused);
}

void QueuePair::addr_resolved() {
  const std::string leads_to = ibv_get_device_name(id_->verbs->device);
  if (leads_to != device_.name())
    return address_failed(Errc::kUnsupported,
                          place_ + "it is reached through " + leads_to +
                              ", and this process uses " + device_.name() +
                              ": give its first verbs: address ?device=" + leads_to);
  if (rdma_resolve_route(id_.get(), static_cast<int>(timeout_.count())) != 0)
    address_failed(drivers::code_of(errno), error_text("there is no route", errno));
}

void QueuePair::route_resolved() {
  // A later address can lead through another port.
  Result<void> attached = qp_ == nullptr ? attach() : move_to(IBV_QPS_INIT);
  if (!attached)
    return connect_failed(fabric::EventType::kConnectFailed, attached.error().code,
                          attached.error().message);
  ord_ = ird_ = depth(reads_);
  rdma_conn_param param = conn_param(private_data_);
  if (rdma_connect(id_.get(), &param) != 0)
    address_failed(
        drivers::code_of(errno),
        error_text(errno == ECONNREFUSED ? "no server listens there" : "rdma_connect", errno));
}

rdma_conn_param QueuePair::conn_param(std::span<const std::byte> private_data) const {
  rdma_conn_param param{};
  param.private_data = private_data.data();
  param.private_data_len = static_cast<uint8_t>(private_data.size());
  param.responder_resources = ird_;
  param.initiator_depth = ord_;
  param.flow_control = 1;
  param.retry_count = kRetries;
  param.rnr_retry_count = kRnrRetries;
  param.srq = srq_ != nullptr;
  param.qp_num = number_;
  return param;
}

// Makes the device's queue pair, and gives it the Receives that were posted so far.
Result<void> QueuePair::attach() {
  ibv_qp_init_attr init{};
  init.qp_context = this;
  init.send_cq = init.recv_cq = cq_.get();
  init.srq = srq_ != nullptr ? srq_->get() : nullptr;
  init.cap = device_.queue_pair_caps();
  init.cap.max_send_wr = send_limit_ + (device_.pokes() ? kMostPokes : 0);
  init.cap.max_recv_wr = receive_limit_;
  init.qp_type = IBV_QPT_RC;
  ibv_qp* made = ibv_create_qp(device_.pd(), &init);
  if (made == nullptr)
    return fail(errno == ENOMEM ? Errc::kNoMemory : Errc::kSystem,
                error_text("a queue pair could not be made", errno));
  qp_ = made;
  number_ = made->qp_num;
  cq_.add(*this, number_);
  return move_to(IBV_QPS_INIT).and_then([&] { return post_kept(); });
}

Result<void> QueuePair::post_kept() {
  const std::lock_guard lock(early_mutex_);
  if (early_closed_)
    return fail(Errc::kShutdown, place_ + "given up while connecting");
  ReceiveChain chain;
  uint64_t number = receive_tail_ - early_.size();
  for (size_t i = 0; i < early_.size();) {
    chain.clear();
    for (; i < early_.size() && !chain.full(); ++i)
      chain.add(early_[i], number++, device_.regions());
    ibv_recv_wr* bad = nullptr;
    if (const int error = ibv_post_recv(qp_, chain.wrs.data(), &bad); error != 0)
      return fail(Errc::kSystem, error_text("Receives could not be posted", error));
    receive_device_end_ = number;
  }
  early_ = {};
  open_.store(true, std::memory_order_release);
  return {};
}

Result<void> QueuePair::move_to(ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  int mask = 0;
  if (rdma_init_qp_attr(id_.get(), &attr, &mask) != 0)
    return fail(Errc::kSystem, error_text("rdma_init_qp_attr", errno));
  if (state == IBV_QPS_INIT) {
    // The keys decide what the peer may do.
    attr.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  } else if (state == IBV_QPS_RTR) {
    // Kernels also set bits for RoCE in the mask of InfiniBand ports, which devices refuse.
    constexpr int kRoceBits = 0xe00000;
    if (device_.is_infiniband(id_->port_num))
      mask &= ~kRoceBits;
    attr.max_dest_rd_atomic = ird_;
    attr.min_rnr_timer = kMinRnrTimer;
  } else {
    attr.max_rd_atomic = ord_;
  }
  if (const int error = ibv_modify_qp(qp_, &attr, mask); error != 0)
    return fail(Errc::kSystem, error_text("ibv_modify_qp", error));
  return {};
}

// With iWARP the kernel does it when the handshake is over.
Result<void> QueuePair::make_ready() {
  if (device_.is_iwarp())
    return {};
  return move_to(IBV_QPS_RTR).and_then([&] { return move_to(IBV_QPS_RTS); });
}

// iWARP devices disagree on which of the two numbers belongs to which end.
void QueuePair::agree_on_depths(const CmEvent& event) {
  uint8_t peer_serves = event.initiator_depth;
  uint8_t peer_reads = event.responder_resources;
  if (device_.is_iwarp())
    peer_serves = peer_reads = std::min(peer_serves, peer_reads);
  ord_ = std::min(depth(reads_), peer_serves);
  ird_ = std::min(depth(reads_), peer_reads);
}

void QueuePair::peer_answered(const CmEvent& event) {
  answered_ = true;
  agree_on_depths(event);
  if (Result<void> ready = make_ready(); !ready)
    return connect_failed(fabric::EventType::kConnectFailed, ready.error().code,
                          ready.error().message);
  if (rdma_establish(id_.get()) != 0)
    return connect_failed(fabric::EventType::kConnectFailed, drivers::code_of(errno),
                          error_text("rdma_establish", errno));
  established(event);
}

void QueuePair::established(const CmEvent& event) {
  if (!accepting_ && device_.is_iwarp())
    agree_on_depths(event);
  reads_allowed_ = ord_;
  near_ = local_end(*id_);
  Status connecting = Status::kConnecting;
  if (!status_.compare_exchange_strong(connecting, Status::kEstablished))
    return;  // given up: on_tick() reports it
  device_.control().set_ticking(*this, !accepting_ && device_.pokes());
  fabric::Event up = new_event(fabric::EventType::kEstablished);
  if (!accepting_) {
    up.private_data_length = event.private_data_length;
    up.private_data = event.private_data;
  }
  device_.control().emit(*this, std::move(up));
}

Result<void> QueuePair::accept(Id id, const CmEvent& asked,
                               std::span<const std::byte> private_data) {
  const std::lock_guard lock(device_.control().mutex());
  Status idle = Status::kIdle;
  if (!status_.compare_exchange_strong(idle, Status::kConnecting))
    return fail(Errc::kInvalidArgument, "the queue pair was connected before");
  accepting_ = true;
  id_ = std::move(id);
  id_->context = static_cast<CmHandler*>(this);
  far_ = far_end(*id_);
  timeout_ = fabric::kConnectTimeout;
  turns_.begin({}, Clock::now() + timeout_);
  Result<void> accepted = attach().and_then([&]() -> Result<void> {
    agree_on_depths(asked);
    return make_ready();
  });
  if (accepted) {
    rdma_conn_param param = conn_param(private_data);
    if (rdma_accept(id_.get(), &param) != 0)
      accepted = fail(Errc::kConnectionLost, error_text("went away during the handshake", errno));
  }
  if (!accepted) {
    reported_ = true;  // the caller knows
    end_with(End::kNeverConnected);
    give_up_id();
    return accepted;
  }
  device_.control().set_ticking(*this, true);
  return {};
}

// Before establishment the id belongs to the control thread alone.
void QueuePair::give_up_id() noexcept {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  if (qp_ != nullptr)
    ibv_modify_qp(qp_, &attr, IBV_QP_STATE);
  id_.reset();
}

void QueuePair::rejected(const CmEvent& event) {
  if (!device_.is_iwarp() && event.status == kRejInvalidServiceId)
    return address_failed(Errc::kNotFound, place_ + "no server listens there");
  if (!device_.is_iwarp() && event.status != kRejConsumer)
    return address_failed(
        event.status == kRejStaleConnection ? Errc::kConnectionLost : Errc::kRefused,
        place_ + "its connection manager refused, InfiniBand reason " +
            std::to_string(event.status));
  if (event.status == -ECONNREFUSED && event.private_data_length == 0)
    return address_failed(Errc::kNotFound, place_ + "no server listens there");
  Counters::count(device_.counts().connects_rejected);
  connect_failed(fabric::EventType::kRejected, Errc::kRefused,
                 place_ + "the peer rejected the connection", event.data());
}

void QueuePair::connect_failed(fabric::EventType type, Errc code, const std::string& reason,
                               std::span<const std::byte> private_data) {
  if (std::exchange(reported_, true))
    return;
  Counters::count(device_.counts().connects_failed);
  fabric::Event event = new_event(accepting_ ? fabric::EventType::kDisconnected : type);
  event.ending = fabric::ending_of({code, reason});
  event.private_data_length = static_cast<uint32_t>(private_data.size());
  std::ranges::copy(private_data, event.private_data.begin());
  end_with(End::kNeverConnected);
  give_up_id();
  device_.control().emit(*this, std::move(event));
}

void QueuePair::on_tick(Clock::time_point now) {
  switch (status_.load(std::memory_order_acquire)) {
    case Status::kConnecting:
      if (turns_.over(now))
        connect_failed(fabric::EventType::kConnectFailed, Errc::kTimeout,
                       (failure_.message.empty() ? "" : failure_.message + "; ") + place_ +
                           drivers::no_answer_within(timeout_));
      else if (turns_.due(now) && !answered_)
        address_failed(Errc::kTimeout, place_ + "no answer");
      return;
    case Status::kError:
      if (!ended_.load(std::memory_order_acquire))
        return;  // it is ending at this moment
      report_end();
      return watch_flush();
    case Status::kEstablished:
      return consider_poke();
    case Status::kIdle:
      return device_.control().set_ticking(*this, false);
  }
}

// siw checks the socket of an accepted connection only after its reply has been sent. The first
// message can come in between, and stays unseen until something else comes.
void QueuePair::consider_poke() {
  if (accepting_ || !device_.pokes() || heard_.load(std::memory_order_relaxed) ||
      ticks_ == kLastPoke)
    return device_.control().set_ticking(*this, false);
  ++ticks_;
  if (ticks_ >= kFirstPoke && std::has_single_bit(ticks_)) {
    poke_wanted_.store(true, std::memory_order_relaxed);
    cq_.ring(*this);
  }
}

void QueuePair::report_end() {
  if (std::exchange(reported_, true))
    return;
  if (!was_up_)
    give_up_id();
  fabric::Event event = new_event(was_up_ || accepting_ ? fabric::EventType::kDisconnected
                                                        : fabric::EventType::kConnectFailed);
  event.ending = ending();
  device_.control().emit(*this, std::move(event));
}

// Makes sure that everything is flushed: the data path flushes what a device forgets.
void QueuePair::watch_flush() {
  if (qp_ == nullptr || settled_.load(std::memory_order_acquire))
    return device_.control().set_ticking(*this, false);
  const uint64_t progress = progress_.load(std::memory_order_acquire);
  const uint64_t empty = cq_.times_empty();
  if (progress != progress_seen_) {
    progress_seen_ = progress;
    quiet_ticks_ = 0;
    empty_seen_ = empty;
  } else if (empty >= empty_seen_ + 2 && ++quiet_ticks_ >= kQuietTicks) {
    force_.store(true, std::memory_order_release);
  }
  cq_.ring(*this);
}

Ending QueuePair::ending() const {
  const auto of = [this](EndedBy by, const std::string& text) {
    return Ending{.by = by, .code = Errc::kConnectionLost, .refusal = {}, .text = place_ + text};
  };
  switch (end_) {
    case End::kNotYet:
    case End::kDisconnected:
      break;
    case End::kNeverConnected: {
      Ending ending = of(EndedBy::kProgram, "given up while connecting");
      ending.code = Errc::kShutdown;
      return ending;
    }
    case End::kPeerClosed:
      return of(EndedBy::kPeer, "the peer closed the connection");
    case End::kBroken:
      return of(EndedBy::kPeer, "the peer closed the connection, or it broke");
    case End::kRequestFailed:
      return of(EndedBy::kNetwork, "a request failed, and the connection with it");
    case End::kPeerRefused:
      return of(EndedBy::kPeer, "the peer asked for what it may not have, and was refused");
    case End::kDeviceLost:
      return of(EndedBy::kNetwork, "the device " + device_.name() + " was removed, or failed");
    case End::kAddressChanged:
      return of(EndedBy::kNetwork, "the device's address changed");
    case End::kNoKeys:
      return of(EndedBy::kLimit,
                "a call needs memory windows, and " + device_.name() +
                    " has none left: use fewer connections, or give windows=no to the address");
  }
  return of(EndedBy::kProgram, "disconnected");
}

}  // namespace rrdk::verbs
