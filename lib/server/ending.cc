// Operations of a server that take time: drain(), close_start() and remove_service_start(). They
// run as steps on poll core 0 (look()); threads that wait for them only check the result.
//
//   what          begins with                  is over when
//   a removal     the service withdrawn        passes that ran then, and its handlers, have ended
//   a drain       no further calls are run     no connection is left, or the rest has been closed
//   a close       all connections closed       no connections, drains or removals are left, and
//                                              no core refers to the server
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "server/server_impl.h"
#include "server/server_link.h"

namespace rrdk {

using runtime::PollCore;
using server::ServerLink;

namespace {

constexpr uint64_t kMs = 1'000'000;

}  // namespace

PollCore& Server::Impl::first_core() const noexcept {
  return *runtime.cores.front();
}

void Server::Impl::on_cores(void (Impl::*task)(PollCore&)) {
  for (auto& core : runtime.cores) {
    tasks_.fetch_add(1, std::memory_order_relaxed);
    core->post([this, c = core.get(), task] {
      (this->*task)(*c);
      tasks_.fetch_sub(1, std::memory_order_release);  // last: the Impl may be destroyed now
    });
  }
}

void Server::Impl::add_step(std::function<void()> step) {
  tasks_.fetch_add(1, std::memory_order_relaxed);
  first_core().post([this, step = std::move(step)] {
    step();
    look_again_.reset();
    look_again();
    tasks_.fetch_sub(1, std::memory_order_release);  // likewise
  });
}

// Goes through the links that the core has now, one in each of its tasks: each takes time.
void Server::Impl::for_links_of(PollCore& core, void (Impl::*what)(ServerLink&)) {
  tasks_.fetch_add(1, std::memory_order_relaxed);
  next_link({.core = core, .what = what, .left = SIZE_MAX});
}

// From the last one to the first. When a link leaves the scanner meanwhile, the last one takes its
// place: that one has had its step.
void Server::Impl::next_link(Walk walk) {
  const server::TimeoutScanner& all = cores_[walk.core.index()].timeout_scanner;
  walk.left = std::min(walk.left, all.count());
  if (walk.left == 0) {
    tasks_.fetch_sub(1, std::memory_order_release);  // last: the Impl may be destroyed now
    return;
  }
  ServerLink& link = all.at(--walk.left);
  if (link.settled)
    (this->*walk.what)(link);
  walk.core.post_here([this, walk] { next_link(walk); });
}

void Server::Impl::drain_links_of(PollCore& core) {
  for_links_of(core, &Impl::drain_link);
}

void Server::Impl::close_links_of(PollCore& core) {
  for_links_of(core, &Impl::close_link);
}

void Server::Impl::drain_link(ServerLink& link) {
  link.drain();
}

void Server::Impl::close_link(ServerLink& link) {
  link.close({EndedBy::kProgram,
              Errc::kShutdown,
              {},
              closing_.load(std::memory_order_relaxed) ? "the server is closing"
                                                       : "it was not drained in time"});
}

void Server::Impl::forget_core(PollCore& core) {
  core.remove(cores_[core.index()].timeout_scanner);
}

void Server::Impl::drain_start(uint32_t timeout_ms, Drained drained, void* argument) {
  const Drain drain = {
      .due_ns = base::Tsc::now_ns() + timeout_ms * kMs, .drained = drained, .argument = argument};
  draining_.store(true, std::memory_order_relaxed);
  stop_listening();
  on_cores(&Impl::drain_links_of);
  add_step([this, drain] { drains_.push_back(drain); });
}

// A connection that is still being accepted closes itself (accept()).
void Server::Impl::close_start(Done closed, void* argument) {
  closing_.store(true, std::memory_order_relaxed);
  stop_listening();
  on_cores(&Impl::close_links_of);
  add_step([this, closed, argument] { closes_.push_back({closed, argument}); });
}

Result<void> Server::Impl::remove_service_start(uint32_t program, uint32_t version, Done removed,
                                                void* argument) {
  auto gone = services.withdraw(program, version);
  if (!gone)
    return tl::unexpected(gone.error());
  const Removal removal = {.service = *gone, .removed = removed, .argument = argument};
  add_step([this, removal] { removals_.push_back(removal); });
  return {};
}

// The look that is to come is a task, too, so that the Impl is not destroyed before.
void Server::Impl::look_again() {
  if (!std::exchange(looks_, true))
    tasks_.fetch_add(1, std::memory_order_relaxed);
  look_again_.start<&Impl::look>(first_core(), *this);
}

void Server::Impl::look() {
  look_at_removals();
  look_at_drains();
  if (look_at_closes())
    closed_.store(true, std::memory_order_relaxed);
  if (detached_ && closed_.load(std::memory_order_relaxed) && !has_other_tasks()) {
    const bool late = abandoned();
    std::shared_ptr<Impl> ours = std::move(self_);
    ours.reset();  // and this object is destroyed
    if (late)
      base::log_info("what was left of a Server that was destroyed has closed");
    return;
  }
  if (!removals_.empty() || !drains_.empty() || !closes_.empty() || detached_)
    return look_again();
  looks_ = false;
  tasks_.fetch_sub(1, std::memory_order_release);  // last: the Impl may be destroyed now
}

void Server::Impl::look_at_removals() {
  std::erase_if(removals_, [this](const Removal& removal) {
    if (!is_left(removal.service))
      return false;
    services.collect();
    tell(removal.removed, removal.argument);
    return true;
  });
}

void Server::Impl::look_at_drains() {
  if (drains_.empty() || has_other_tasks())
    return;
  const uint32_t left = connections_.load(std::memory_order_acquire);
  const uint64_t now = base::Tsc::now_ns();
  bool in_vain = false;
  std::vector<Drain> over;
  std::erase_if(drains_, [&](Drain& drain) {
    if (left == 0 || drain.cut) {
      over.push_back(drain);
      return true;
    }
    if (now >= drain.due_ns) {
      drain.cut = in_vain = true;
      drain.rest = left;
    }
    return false;
  });
  if (in_vain)
    on_cores(&Impl::close_links_of);
  for (const Drain& drain : over) {
    if (drain.drained != nullptr && !abandoned())
      drain.drained(drain.rest, drain.argument);
  }
}

// All cores must twice complete what we have queued for them: when the connections have ended, and
// when nothing refers to the server any more. Returns true if it has closed.
bool Server::Impl::look_at_closes() {
  const bool busy = has_other_tasks() || asides_.load(std::memory_order_acquire) != 0 ||
                    connections_.load(std::memory_order_acquire) != 0 ||
                    backward_clients->leaving.load(std::memory_order_acquire) != 0;
  if (closes_.empty() || !drains_.empty() || !removals_.empty() || busy)
    return false;
  if (!forgotten_) {
    forgotten_ = true;
    on_cores(&Impl::forget_core);
    return false;
  }
  if (uint32_t held = backward_clients->count(); held != 0)
    base::log_error(
        "a Server closes while %u BackwardClients are still held: release them before, and "
        "before the Runtime at the latest",
        held);
  telling_ = true;
  for (const Close& close : std::exchange(closes_, {}))
    tell(close.closed, close.argument);
  telling_ = false;
  return true;
}

void Server::Impl::tell(Done done, void* argument) const {
  if (done != nullptr && !abandoned())
    done(argument);
}

uint32_t Server::Impl::drain(uint32_t timeout_ms) {
  struct Outcome {
    uint32_t rest = 0;
    std::atomic<bool> known = false;
  } outcome;
  if (Runtime::Impl::in_any_pass()) {
    drain_start(timeout_ms, nullptr, nullptr);
    return connections_.load(std::memory_order_relaxed);
  }
  drain_start(
      timeout_ms,
      [](uint32_t rest, void* argument) {
        auto& here = *static_cast<Outcome*>(argument);
        here.rest = rest;
        here.known.store(true, std::memory_order_release);
      },
      &outcome);
  runtime.wait_until([&] { return outcome.known.load(std::memory_order_acquire); });
  return outcome.rest;
}

void Server::Impl::handle_destroyed() {
  auto is_closed = [this] {
    return closed_.load(std::memory_order_acquire) && tasks_.load(std::memory_order_acquire) == 0;
  };
  if (first_core().passing() && telling_) {  // in the callback of close_start()
    self_ = shared_from_this();
    detached_ = true;
    return;
  }
  if (is_closed())
    return;
  close_start(nullptr, nullptr);
  if (runtime.in_pass())
    base::log_error(
        "a Server is destroyed in a callback or handler: it is kept until it has closed");
  else if (runtime.wait_patiently(is_closed,
                                  "~Server() waits for its connections to end: ServerCalls that "
                                  "were kept must be answered, and cores be polled"))
    return;
  // What handlers and callbacks use is destroyed now, while this object remains.
  abandoned_.store(true, std::memory_order_relaxed);
  services.withdraw_all();
  self_ = shared_from_this();
  add_step([this] { detached_ = true; });
}

}  // namespace rrdk
