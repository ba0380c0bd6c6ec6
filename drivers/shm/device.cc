#include "drivers/shm/device.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

#include "drivers/shm/completion_queue.h"
#include "drivers/shm/listener.h"
#include "drivers/shm/queue_pair.h"
#include "drivers/shm/receive_queue.h"
#include "drivers/shm/socket.h"

namespace rrdk::shm {

namespace {

constexpr uint32_t kMaxSharedReceives = 1u << 20;

constexpr fabric::Capabilities kCapabilities = {
    .max_sges = Slot::kMaxSges,
    .max_inline = Slot::kMaxInline,
    .max_send_wrs = kMaxSlots / 2,
    .max_receive_wrs = kMaxSlots,
    .max_shared_receives = kMaxSharedReceives,
    .max_reads = 128,
    .max_keys = kMaxKeys,
    .max_message = std::numeric_limits<uint32_t>::max(),
    .send_invalidate = true,
    .acknowledges = true,
};

tl::unexpected<Error> system_error(const char* call) {
  return fail(Errc::kSystem, std::string(call) + ": " + std::strerror(errno));
}

Result<void> add_to_epoll(int epoll, int fd, uint64_t id) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = id;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
    return system_error("epoll_ctl");
  return {};
}

void drain(int fd) {
  uint64_t value;
  (void)!::read(fd, &value, sizeof(value));
}

}  // namespace

Result<std::unique_ptr<fabric::Device>> Device::open(Memory& memory, std::string_view /*uri*/) {
  std::unique_ptr<Device> device(new Device(memory));
  if (Result<void> started = device->start(); !started)
    return tl::unexpected(started.error());
  return device;
}

Result<void> Device::start() {
  mem::listen_regions(memory_, *this);
  epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_)
    return system_error("epoll_create1");
  timer_ = Fd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!timer_)
    return system_error("timerfd_create");
  nudges_ = Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!nudges_)
    return system_error("eventfd");
  if (Result<void> added = add_to_epoll(epoll_.get(), timer_.get(), kTimerId); !added)
    return added;
  return add_to_epoll(epoll_.get(), nudges_.get(), kNudgeId);
}

Device::~Device() {
  events_.clear();
  adopted_.clear();
  mem::unlisten_regions(memory_, *this);
}

const fabric::Capabilities& Device::capabilities() const {
  return kCapabilities;
}

Result<std::unique_ptr<fabric::CompletionQueue>> Device::create_completion_queue(
    uint32_t /*entries*/) {
  return CompletionQueue::create();
}

Result<std::unique_ptr<fabric::SharedReceiveQueue>> Device::create_shared_receive_queue(
    uint32_t entries) {
  if (entries == 0 || entries > kMaxSharedReceives)
    return fail(Errc::kInvalidArgument, "a shared receive queue has 1 to " +
                                            std::to_string(kMaxSharedReceives) + " entries");
  return std::make_unique<SharedReceiveQueue>(entries);
}

Result<std::unique_ptr<fabric::QueuePair>> Device::create_queue_pair(
    const fabric::QueuePairOptions& options) {
  return QueuePair::create(*this, options);
}

Result<std::unique_ptr<fabric::Listener>> Device::listen(const std::string& uri) {
  return Listener::create(*this, uri);
}

Result<void> Device::connect(fabric::QueuePair& qp, const std::string& uri,
                             std::span<const std::byte> private_data) {
  if (private_data.size() > fabric::kMaxPrivateData)
    return fail(Errc::kInvalidArgument, "private data is longer than " +
                                            std::to_string(fabric::kMaxPrivateData) + " bytes");
  Result<std::string> path = parse_path(uri);
  if (!path)
    return tl::unexpected(path.error());
  Result<Fd> socket = connect_socket(*path);
  if (!socket)
    return tl::unexpected(socket.error());
  return static_cast<QueuePair&>(qp).start_connect(std::move(*socket), private_data);
}

std::vector<fabric::Event> Device::poll_events(uint32_t most) {
  const std::lock_guard lock(mutex_);
  dispatch();
  std::vector<fabric::Event> out;
  while (!events_.empty() && out.size() < most) {
    out.push_back(std::move(events_.front().event));
    events_.pop_front();
  }
  if (!events_.empty())
    update_readiness();
  return out;
}

void Device::dispatch() {
  std::array<epoll_event, 32> ready;
  const int count =
      ::epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()), /*timeout=*/0);
  bool ticked = false;
  for (int i = 0; i < count; ++i) {
    const uint64_t id = ready[static_cast<size_t>(i)].data.u64;
    if (id == kTimerId || id == kNudgeId) {
      drain(id == kTimerId ? timer_.get() : nudges_.get());
      ticked = true;
    } else if (auto it = endpoints_.find(id); it != endpoints_.end()) {
      it->second->on_ready();
    }
  }
  if (ticked)
    tick();
}

void Device::tick() {
  {
    const std::lock_guard lock(nudged_mutex_);
    ticking_.insert(nudged_.begin(), nudged_.end());
    nudged_.clear();
  }
  const Clock::time_point now = Clock::now();
  const std::vector<Endpoint*> due(ticking_.begin(), ticking_.end());
  for (Endpoint* endpoint : due)
    if (ticking_.contains(endpoint))  // one tick may end another endpoint
      endpoint->on_tick(now);
  const bool on = !ticking_.empty();
  itimerspec interval{};
  if (on)
    interval.it_value.tv_nsec = interval.it_interval.tv_nsec =
        std::chrono::nanoseconds(kTick).count();
  ::timerfd_settime(timer_.get(), 0, &interval, nullptr);
}

// Keeps the epoll fd readable while there are events that nobody took.
void Device::update_readiness() {
  const uint64_t one = 1;
  (void)!::write(nudges_.get(), &one, sizeof(one));
}

Result<void> Device::watch(Endpoint& endpoint, int socket) {
  const std::lock_guard lock(mutex_);
  const uint64_t id = next_id_++;
  if (Result<void> added = add_to_epoll(epoll_.get(), socket, id); !added)
    return added;
  endpoints_.emplace(id, &endpoint);
  return {};
}

void Device::watch_end(Endpoint& endpoint, int socket) {
  auto found =
      std::ranges::find_if(endpoints_, [&](const auto& e) { return e.second == &endpoint; });
  if (found == endpoints_.end())
    return;
  epoll_event event{};  // EPOLLHUP is always reported
  event.data.u64 = found->first;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, socket, &event);
}

void Device::unwatch(int socket) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket, nullptr);
}

void Device::set_ticking(Endpoint& endpoint, bool on) {
  if (on)
    nudge(endpoint);
  else
    ticking_.erase(&endpoint);
}

void Device::nudge(Endpoint& endpoint) noexcept {
  {
    const std::lock_guard lock(nudged_mutex_);
    nudged_.push_back(&endpoint);
  }
  update_readiness();
}

void Device::forget(Endpoint& endpoint) {
  const std::lock_guard lock(mutex_);
  std::erase_if(endpoints_, [&](const auto& e) { return e.second == &endpoint; });
  std::erase_if(events_, [&](const PendingEvent& e) { return e.source == &endpoint; });
  ticking_.erase(&endpoint);
  const std::lock_guard nudged_lock(nudged_mutex_);
  std::erase(nudged_, &endpoint);
}

void Device::emit(Endpoint& source, fabric::Event event) {
  events_.push_back({&source, std::move(event)});
}

void Device::adopt(std::unique_ptr<Endpoint> endpoint) {
  adopted_.push_back(std::move(endpoint));
}

std::unique_ptr<Endpoint> Device::release(Endpoint& endpoint) {
  auto it = std::ranges::find(adopted_, &endpoint, &std::unique_ptr<Endpoint>::get);
  if (it == adopted_.end())
    return nullptr;
  std::unique_ptr<Endpoint> released = std::move(*it);
  adopted_.erase(it);
  return released;
}

std::vector<OwnRegion> Device::regions() const {
  const std::lock_guard lock(regions_mutex_);
  return regions_;
}

void Device::region_added(const mem::Region& region) {
  const std::lock_guard lock(regions_mutex_);
  regions_.push_back({region, next_wire_id_++});
}

void Device::region_removed(const mem::Region& region) {
  const std::lock_guard lock(regions_mutex_);
  std::erase_if(regions_, [&](const OwnRegion& r) { return r.region.id == region.id; });
  region_generation_.fetch_add(1, std::memory_order_release);
}

std::vector<fabric::Counter> Device::counters() const {
  const Counters& c = counts_;
  return {{"rnr_waits", c.rnr_waits},
          {"doorbells", c.doorbells},
          {"handshakes_refused", c.handshakes_refused},
          {"visitors_dropped", c.visitors_dropped},
          {"broken_sockets", c.broken_sockets},
          {"stuck_users", c.stuck_users},
          {"peers_lost", c.peers_lost},
          {"messages_too_long", c.messages_too_long},
          {"bad_slots", c.bad_slots},
          {"bad_regions", c.bad_regions},
          {"bad_consumed", c.bad_consumed},
          {"bad_invalidations", c.bad_invalidations},
          {"refused_keys", c.refused_keys},
          {"refused_rights", c.refused_rights},
          {"refused_bounds", c.refused_bounds},
          {"bad_keys", c.bad_keys},
          {"local_protection", c.local_protection}};
}

}  // namespace rrdk::shm
