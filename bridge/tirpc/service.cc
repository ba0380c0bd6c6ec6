#include "service.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace rrdk::tirpc {

Result<void> Service::start() {
  if (auto allowed = check_process(); !allowed)
    return allowed;
  if (reactor != nullptr)
    return {};
  auto made = Reactor::of_servers();
  if (!made)
    return tl::unexpected(made.error());
  if (wake < 0) {
    const Result<int> made_wake = open_eventfd();
    if (!made_wake)
      return tl::unexpected(made_wake.error());
    wake = *made_wake;
  }
  if (auto kept = (*made)->need(); !kept)
    return kept;
  reactor = *made;
  return {};
}

// One descriptor for what wakes the core, and for what the program is to be told.
Result<int> Service::open_fd() {
  if (auto started = start(); !started)
    return tl::unexpected(started.error());
  if (fd >= 0)
    return fd;
  const int made = ::epoll_create1(EPOLL_CLOEXEC);
  for (int source : {reactor->wake_fd(), wake}) {
    epoll_event event = {.events = EPOLLIN, .data = {}};
    if (made >= 0 && ::epoll_ctl(made, EPOLL_CTL_ADD, source, &event) == 0)
      continue;
    auto failure = system_failure("epoll");
    if (made >= 0)
      ::close(made);
    return failure;
  }
  {
    Turn turn;  // the keeper may be reading it
    fd = made;
    reactor->share_wake_fd();
  }
  ring();
  return fd;
}

void Service::ring() const noexcept {
  const uint64_t one = 1;
  // If the eventfd is full, the write fails, but who waits is woken anyway.
  [[maybe_unused]] auto written = ::write(wake, &one, sizeof one);
}

void Service::run() {
  while (!ends.load(std::memory_order_acquire)) {
    reactor->lead();
    attended = true;
    if (!look())
      continue;
    reactor->resign();
    dispatch_taken();
    serve_sockets();
  }
  ends.store(false, std::memory_order_relaxed);
  reactor->lead();
  leave_to_loop();
  reactor->resign();
}

int Service::poll() {
  constexpr uint32_t kMostRounds = 16;  // then the program sees to its other work
  int served = 0;
  uint64_t rings = 0;
  [[maybe_unused]] auto length = ::read(wake, &rings, sizeof rings);
  reactor->lead();
  attended = true;
  for (uint32_t round = 0; round < kMostRounds && !ends.load(std::memory_order_acquire); ++round) {
    const bool found = reactor->poll() != 0;
    if (!take_waiting()) {
      if (!found)
        break;
      continue;
    }
    reactor->resign();
    served += dispatch_taken();
    reactor->lead();
  }
  leave_to_loop();
  reactor->resign();
  return ends.exchange(false, std::memory_order_acq_rel) ? -1 : served;
}

void Service::leave_to_loop() {
  attended = false;
  if (fd >= 0 && (!waiting.empty() || !taken.empty() || !reactor->arm()))
    ring();
}

bool Service::take_waiting() {
  if (taken.empty())
    taken.swap(waiting);
  if (taken.empty())
    return false;
  reactor->poll();  // a routine may block, so peers that the last pass sent to are woken now
  return true;
}

bool Service::look() {
  constexpr uint32_t kPassesPerLook = 64;
  while (!ends.load(std::memory_order_acquire) && waiting.empty() && taken.empty() && ready == 0) {
    if (reactor->is_wanted()) {
      reactor->resign();
      return false;
    }
    if (reactor->poll() != 0)
      reactor->found_something();
    else if (reactor->is_tired() && !sleep())
      return false;
    if (++passes % kPassesPerLook == 0 && svc_max_pollfd > 0) {
      copy_sockets();
      ::poll(sockets.data(), sockets.size(), 0);
      note_sockets();
    }
  }
  reactor->found_something();
  if (!take_waiting())
    reactor->poll();  // for the routines of libtirpc's transports
  return true;
}

// Without events: poll() may be interrupted or not be reached, and in svc_pollfd libtirpc leaves
// them as realloc() gave them.
void Service::copy_sockets() {
  sockets.assign(svc_pollfd, svc_pollfd + std::max(svc_max_pollfd, 0));
  for (pollfd& source : sockets)
    source.revents = 0;
}

void Service::note_sockets() {
  ready = static_cast<int>(
      std::ranges::count_if(sockets, [](const pollfd& source) { return source.revents != 0; }));
}

bool Service::sleep() {
  copy_sockets();
  sockets.push_back({.fd = wake, .events = POLLIN, .revents = 0});
  const bool leads = reactor->sleep(sockets);
  uint64_t count = 0;
  if (sockets.back().revents != 0) [[maybe_unused]]
    auto length = ::read(wake, &count, sizeof count);
  sockets.pop_back();
  note_sockets();
  return leads;
}

void Service::serve_sockets() {
  if (ready == 0)
    return;
  away.store(true, std::memory_order_relaxed);
  svc_getreq_poll(sockets.data(), std::exchange(ready, 0));
  away.store(false, std::memory_order_relaxed);
}

int Service::dispatch_taken() {
  int served = 0;
  away.store(true, std::memory_order_relaxed);
  for (; !ends.load(std::memory_order_relaxed) && !taken.empty(); ++served) {
    Waiting next = std::move(taken.front());
    taken.pop_front();
    dispatch(std::move(next));
  }
  away.store(false, std::memory_order_relaxed);
  return served;
}

bool Service::is_busy() const noexcept {
  return away.load(std::memory_order_relaxed) || (fd >= 0 && !attended);
}

// While the program is busy, a client that only asks whether the server is there is answered at
// once, unless earlier calls of this client wait.
void Service::take(ServerCall call, Registration& registration) {
  if (call.procedure() == NULLPROC && is_busy() && call.connection().context() == nullptr)
    return std::move(call).reply();
  count_waiting(call, 1);
  waiting.push_back({std::move(call), &registration});
  if (fd >= 0 && !attended)
    ring();
}

void count_waiting(const ServerCall& call, std::ptrdiff_t more) {
  ServerConnection& connection = call.connection();
  connection.set_context(
      std::bit_cast<void*>(std::bit_cast<std::ptrdiff_t>(connection.context()) + more));
}

void Service::refuse_waiting(const Registration& registration) {
  for (std::deque<Waiting>* calls : {&waiting, &taken}) {
    for (Waiting& entry : *calls) {
      if (entry.registration != &registration)
        continue;
      count_waiting(entry.call, -1);
      std::move(entry.call).reject(AcceptStat::kProgUnavail);
    }
    std::erase_if(*calls,
                  [&](const Waiting& entry) { return entry.registration == &registration; });
  }
}

}  // namespace rrdk::tirpc
