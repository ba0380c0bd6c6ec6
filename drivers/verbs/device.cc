#include "drivers/verbs/device.h"

#include <fcntl.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "drivers/verbs/completion_queue.h"
#include "drivers/verbs/listener.h"
#include "drivers/verbs/probe.h"
#include "drivers/verbs/queue_pair.h"
#include "drivers/verbs/shared_receive_queue.h"
#include "fabric/device.h"

namespace rrdk::verbs {

namespace {

// Per queue: small devices have lower limits of their own.
constexpr uint32_t kMostRequests = 1u << 12;
constexpr uint32_t kMostKeys = 1u << 16;  // per queue pair
constexpr uint32_t kMostReads = 128;
constexpr uint32_t kMostReadBytes = 128 << 10;
constexpr uint32_t kMostShared = 1u << 15;
constexpr int kAsyncEventsAtOnce = 64;

// In ibv_device_attr: software devices that differ from what their attributes say.
constexpr uint32_t kSiwVendor = 0x626d74;
constexpr uint32_t kRxeVendor = 0xffffff;
// rxe passes the kernel's flags on unchanged, where this is IB_WC_WITH_INVALIDATE.
constexpr unsigned kRxeInvalidated = 1u << 2;

tl::unexpected<Error> device_error(const std::string& name, const char* call, int error) {
  return fail(error == ENOMEM ? Errc::kNoMemory : Errc::kSystem,
              name + ": " + call + ": " + std::strerror(error));
}

// A child of fork() must not inherit pinned pages. Newer kernels ensure that themselves.
void prepare_for_fork() {
  static const bool prepared = [] {
    if (ibv_is_fork_initialized() == IBV_FORK_UNNEEDED)
      return true;
    ::setenv("RDMAV_HUGEPAGES_SAFE", "1", /*overwrite=*/0);
    if (const int error = ibv_fork_init(); error != 0)
      base::log_warning(
          "verbs: ibv_fork_init: %s: programs that this process starts may disturb "
          "its RDMA; start them before",
          std::strerror(error));
    return true;
  }();
  (void)prepared;
}

}  // namespace

Result<std::unique_ptr<fabric::Device>> Device::open(Memory& memory, std::string_view uri,
                                                     fabric::Purpose purpose) {
  std::unique_ptr<Device> device(new Device(memory));
  if (Result<void> started = device->start(uri, purpose); !started)
    return tl::unexpected(started.error());
  return device;
}

Result<void> Device::start(std::string_view uri, fabric::Purpose purpose) {
  const std::string text(uri);
  Result<Address> address = parse_address(text);
  if (!address)
    return tl::unexpected(address.error());
  prepare_for_fork();
  if (Result<void> up = control().start().and_then([&] { return channel_.open(control()); }); !up)
    return tl::unexpected(up.error());
  Result<std::string> name = choose_device(*address, purpose);
  if (!name)
    return tl::unexpected(name.error());
  name_ = *name;
  without_windows_ = address->without_windows;
  return open_context().and_then([&] { return learn_capabilities(); }).and_then([&] {
    int access = IBV_ACCESS_LOCAL_WRITE;
    if (has_windows_)
      access |= IBV_ACCESS_MW_BIND;
    return regions_.start(pd_, name_, access);
  });
}

Result<void> Device::open_context() {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  for (int i = 0; i < count && context_ == nullptr; ++i)
    if (name_ == ibv_get_device_name(list[i]))
      context_ = ibv_open_device(list[i]);
  const int error = errno;
  if (list != nullptr)
    ibv_free_device_list(list);
  if (context_ == nullptr)
    return device_error(name_, "ibv_open_device", error);
  pd_ = ibv_alloc_pd(context_);
  if (pd_ == nullptr)
    return device_error(name_, "ibv_alloc_pd", errno);
  const int flags = ::fcntl(context_->async_fd, F_GETFL);
  if (flags < 0 || ::fcntl(context_->async_fd, F_SETFL, flags | O_NONBLOCK) != 0)
    return device_error(name_, "fcntl", errno);
  return control().watch(*this, context_->async_fd, EPOLLIN);
}

Device::~Device() {
  control().clear();
  control().forget(*this);
  regions_.stop();
  if (context_ != nullptr)
    control().unwatch(context_->async_fd);
  if (pd_ != nullptr)
    ibv_dealloc_pd(pd_);
  if (context_ != nullptr)
    ibv_close_device(context_);
}

Result<void> Device::learn_capabilities() {
  ibv_device_attr attr{};
  if (const int error = ibv_query_device(context_, &attr); error != 0)
    return device_error(name_, "ibv_query_device", error);
  const bool is_siw = attr.vendor_id == kSiwVendor;
  const bool is_rxe = attr.vendor_id == kRxeVendor;
  pokes_ = is_siw;
  if (is_rxe)
    invalidation_flag_ = kRxeInvalidated;
  max_completions_ = static_cast<uint32_t>(attr.max_cqe);
  const auto sges = std::min(static_cast<uint32_t>(attr.max_sge), fabric::kMaxSges);
  const Result<Abilities> can = probe(pd_, name_, sges);
  if (!can)
    return tl::unexpected(can.error());
  caps_ = can->caps;
  resizes_completion_queues_ = can->resizes_completion_queues;
  // Some kernels have withdrawn windows that libraries still post, and some promise windows that no
  // library posts. So the kernel must promise them, and the library must post them.
  const bool promises_windows =
      (attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0 && attr.max_mw > 0;
  has_windows_ = !without_windows_ && promises_windows && can->requests.windows;
  const auto requests = std::min(static_cast<uint32_t>(attr.max_qp_wr), kMostRequests);
  const auto keys = static_cast<uint32_t>(has_windows_ ? attr.max_mw : attr.max_mr);
  capabilities_ = {
      .max_sges = sges,
      .max_inline = caps_.max_inline_data,
      .max_copied = 0,  // a device reports what it flushes, signaled or not
      .reads_at_once = false,
      .max_send_wrs = requests,
      .max_receive_wrs = requests,
      .max_shared_receives =
          attr.max_srq > 0 ? std::min(static_cast<uint32_t>(attr.max_srq_wr), kMostShared) : 0,
      .max_reads = std::min({static_cast<uint32_t>(attr.max_qp_rd_atom),
                             static_cast<uint32_t>(attr.max_qp_init_rd_atom), kMostReads}),
      .max_keys = std::min(keys, kMostKeys),
      .max_message = uint64_t{1} << 30,
      // siw takes such a request, and then the peer may be told another key, which ends the
      // connection.
      .sends_invalidations = can->requests.sends_invalidations && !is_siw,
      // In user space, a peer can invalidate only windows, not a registration (draft-04 section 3).
      // Each device with windows reports it.
      .takes_invalidations = has_windows_,
      .acknowledges = !is_iwarp(),
      // RFC 5040 section 5.2: an iWARP Read has one sink.
      .max_read_sges = is_iwarp() ? 1 : sges,
      // A device reports a Read when it is complete.
      .max_read_bytes = kMostReadBytes,
      // RFC 5040 section 7.2: an iWARP message without a Receive is an error.
      .waits_for_receives = !is_iwarp(),
      .holds_receives = false,
      .private_keys = has_windows_,
      .guards_invalidation = has_windows_ && !is_rxe,
      .exact_bounds = !(is_rxe && has_windows_),
      .exact_rights = !is_siw,
      .exact_private_data = is_iwarp(),
      .counts_causes = false,
  };
  say_what_it_lacks(is_rxe, promises_windows);
  return {};
}

void Device::say_what_it_lacks(bool is_rxe, bool promises_windows) const {
  static base::LogOnce once;
  if ((has_windows_ && !is_rxe) || !once.first())
    return;
  if (has_windows_)
    return base::log_warning(
        "verbs: %s (rxe) checks whether a memory window allows an access, but "
        "not its bounds: a peer that is not trusted could reach all registered "
        "memory",
        name_.c_str());
  const char* why = "has no type 2B memory windows";
  if (without_windows_)
    why = "is used without its memory windows, as its address asks";
  else if (promises_windows)
    why = "promises type 2B memory windows, but this version of its library cannot bind them";
  base::log_warning(
      "verbs: %s %s: remote keys are made by registering memory for each call that needs them, "
      "which is slow (two system calls a key, counted as keys_by_registration), and a key works on "
      "every connection of the device until its call ends",
      name_.c_str(), why);
}

bool Device::is_infiniband(uint8_t port) const {
  ibv_port_attr attr{};
  return ibv_query_port(context_, port, &attr) == 0 && attr.link_layer == IBV_LINK_LAYER_INFINIBAND;
}

Result<void> Device::check_device(const Address& address) const {
  if (address.without_windows && !without_windows_)
    return fail(Errc::kUnsupported,
                name_ +
                    " is in use with its memory windows: give windows=no to the "
                    "first verbs: address of this process");
  if (address.device.empty() || address.device == name_)
    return {};
  return fail(Errc::kUnsupported, "the first verbs: address of this process led to " + name_ +
                                      ", and one process uses one device");
}

Result<void> Device::check_alive() const {
  if (!lost_)
    return {};
  return fail(Errc::kSystem, name_ + " was removed, or failed");
}

Result<std::unique_ptr<fabric::CompletionQueue>> Device::create_completion_queue(uint32_t entries) {
  return CompletionQueue::create(*this, entries);
}

Result<std::unique_ptr<fabric::SharedReceiveQueue>> Device::create_shared_receive_queue(
    uint32_t entries) {
  const uint32_t most = capabilities_.max_shared_receives;
  if (most == 0)
    return fail(Errc::kUnsupported, name_ + " has no shared receive queues");
  if (auto checked = drivers::check_shared_receives(entries, most); !checked)
    return tl::unexpected(checked.error());
  return SharedReceiveQueue::create(pd_, regions_, entries);
}

Result<std::unique_ptr<fabric::QueuePair>> Device::create_queue_pair(
    const fabric::QueuePairOptions& options) {
  return check_alive().and_then([&] { return QueuePair::create(*this, options); });
}

Result<std::unique_ptr<fabric::Listener>> Device::listen(const fabric::Place& place) {
  return check_alive().and_then(
      [&] { return Listener::create(*this, static_cast<const Address&>(place)); });
}

Result<void> Device::connect(fabric::QueuePair& qp, const fabric::Place& place,
                             std::span<const std::byte> private_data) {
  if (auto checked = drivers::check_private_data(private_data); !checked)
    return checked;
  const auto& address = static_cast<const Address&>(place);
  return check_device(address).and_then(
      [&] { return static_cast<QueuePair&>(qp).start_connect(address, private_data); });
}

void Device::add(QueuePair& qp) {
  const std::lock_guard lock(control().mutex());
  queue_pairs_.insert(&qp);
}

void Device::remove(QueuePair& qp) {
  const std::lock_guard lock(control().mutex());
  queue_pairs_.erase(&qp);
}

void Device::on_ready() {
  for (int i = 0; i < kAsyncEventsAtOnce; ++i) {
    ibv_async_event event{};
    if (ibv_get_async_event(context_, &event) != 0)
      return;
    const ibv_async_event copy = event;
    ibv_ack_async_event(&event);  // ibv_destroy_qp() waits for that
    on_async_event(copy);
  }
}

void Device::on_async_event(const ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR: {
      if (event.event_type == IBV_EVENT_QP_ACCESS_ERR)
        Counters::count(counts_.access_errors);
      else if (event.event_type != IBV_EVENT_COMM_EST)
        Counters::count(counts_.queue_pair_errors);
      auto* qp = static_cast<QueuePair*>(event.element.qp->qp_context);
      if (queue_pairs_.contains(qp))
        qp->on_async_event(event.event_type);
      return;
    }
    case IBV_EVENT_DEVICE_FATAL:
      return lose();
    case IBV_EVENT_CQ_ERR:
      base::log_error("verbs: a completion queue of %s has overflowed: its connections are lost",
                      name_.c_str());
      Counters::count(counts_.queue_pair_errors);
      for (QueuePair* qp : queue_pairs_)
        qp->on_async_event(IBV_EVENT_QP_FATAL);
      return;
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_GID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
      Counters::count(counts_.port_changes);
      base::log_info("verbs: %s: %s", name_.c_str(), ibv_event_type_str(event.event_type));
      return;
    default:
      return;
  }
}

void Device::lose() {
  if (std::exchange(lost_, true))
    return;
  base::log_error(
      "verbs: %s has failed, or was removed: its connections end; removing it waits until this "
      "process has ended",
      name_.c_str());
  Counters::count(counts_.devices_lost);
  for (QueuePair* qp : queue_pairs_)
    qp->end_with(QueuePair::End::kDeviceLost);
}

std::vector<fabric::Counter> Device::counters() const {
  const Counters& c = counts_;
  return {{"connects_failed", c.connects_failed},
          {"connects_rejected", c.connects_rejected},
          {"requests_refused", c.requests_refused},
          {"local_protection", c.local_protection},
          {"request_errors", c.request_errors},
          {"access_errors", c.access_errors},
          {"queue_pair_errors", c.queue_pair_errors},
          {"immediates_refused", c.immediates_refused},
          {"reads_denied", c.reads_denied},
          {"port_changes", c.port_changes},
          {"devices_lost", c.devices_lost},
          {"addresses_changed", c.addresses_changed},
          {"keys_by_registration", c.keys_by_registration},
          {"sinks_registered", c.sinks_registered},
          {"registrations_failed", c.registrations_failed},
          {"windows_refused", c.windows_refused},
          {"pokes", c.pokes},
          {"forced_flushes", c.forced_flushes}};
}

// RDMA devices through libibverbs and librdmacm: InfiniBand, RoCE, iWARP, and Linux's own software
// devices rxe and siw. Addresses are verbs://host:port.
extern const fabric::Driver kDriver = {.scheme = kScheme, .open = Device::open, .find = find};

}  // namespace rrdk::verbs
