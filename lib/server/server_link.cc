#include "server/server_link.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "mem/memory_impl.h"
#include "runtime/poll_core.h"
#include "server/server_impl.h"

namespace rrdk::server {

ServerLink::ServerLink(Server::Impl& server, Client& client, runtime::PollCore& core,
                       runtime::OpenDevice& device, Peer peer)
    : Link(core, device, std::move(peer), client.group.by_core[core.index()]),
      Dispatcher(*this, for_workers, server.runtime.memory, server.services, server.gss.get()),
      gone(server.gone_links),
      server_(server),
      client_(client),
      origin_(client.origin) {
  if (server_.options.on_close != nullptr)
    count_entries();
}

void ServerLink::leave() {
  client_.replays.leave(lane_, core().now());
  server_.growth.give_back(grown_);
  backward_.reset();
  close_handle();
}

void ServerLink::reserve_replay_cache() {
  if (lane_ == nullptr && server_.clients.keeps_replies())
    lane_ = client_.replays.enter(core().now());
}

Result<void> ServerLink::open() {
  const ServerOptions& options = server_.options;
  if (options.on_open != nullptr) {
    if (Result<void> wanted = options.on_open(*this, options.connection_argument); !wanted)
      return wanted;
  }
  opened_ = true;
  return {};
}

void ServerLink::tell_closed() {
  const ServerOptions& options = server_.options;
  if (std::exchange(opened_, false) && options.on_close != nullptr && !server_.abandoned())
    options.on_close(*this, ending(), options.connection_argument);
}

// The engine delivers no further call: only those that workers have are left.
void ServerLink::on_last_call() {
  if (opened_ && all_entered())
    tell_closed();
}

void ServerLink::close_for(const std::string& reason) {
  RRDK_ON_CORE(core());
  const Ending ending = {EndedBy::kProgram, Errc::kShutdown, {}, reason};
  if (state() == runtime::LinkState::kNew)
    note_ending(ending);
  else
    close(ending);
}

Result<void> ServerLink::refused() const {
  if (ending().ended())
    return fail(ending().code, ending().text);
  return {};
}

void ServerLink::on_up() {
  if (engine().may_have_plain())
    set_lane_user(&plain_calls_);
  base::log_debug("connection of %s accepted on core %u", peer_name().c_str(), core().index());
}

void ServerLink::on_down(const Ending& ending) {
  if (was_up() && (ending.by == EndedBy::kPeer || ending.by == EndedBy::kNetwork))
    ++server_.counters.connections_ended;
  log_end(ending);
  if (back_ != nullptr)
    back_->on_down(ending.code);
  release_delayed();
  release_waiting();
}

void ServerLink::enable_backward_calls() {
  const ServerOptions& options = server_.options;
  if (options.backward_credits == 0)
    return;
  auto impl = std::make_shared<BackwardClient::Impl>(
      server_.runtime, *this,
      calls::Defaults{.timeout_ms = options.backward_timeout_ms,
                      .retransmit = false,
                      .inline_size = options.inline_size,
                      .max_call = options.max_call,
                      .credits = options.backward_credits,
                      .max_queued = options.backward_max_queued,
                      .interceptor = server_.backward_interceptor},
      server_.backward_clients);
  back_ = impl.get();
  backward_ = BackwardClient::Impl::make(std::move(impl));
}

Result<std::shared_ptr<BackwardClient>> ServerLink::backward_client() {
  if (backward_ == nullptr)
    return fail(
        Errc::kUnsupported,
        peer_name() + ": this server calls no clients: ServerOptions::backward_credits is 0");
  if (!backward_->alive())
    return fail(Errc::kConnectionLost, peer_name() + ": its connection is closed, or lost");
  return backward_;
}

void ServerLink::on_chunks_taken() {
  if (back_ != nullptr)
    back_->take_chunks();
}

bool ServerLink::may_grow(uint32_t bytes, uint32_t receives) {
  Result<void> room = server_.growth.take(bytes, receives, grown_);
  if (room)
    return true;
  if (auto left_out = server_.growths.allow(base::Tsc::now_ns()))
    base::log_warning("connection of %s keeps its Receives: %s%s", peer_name().c_str(),
                      room.error().message.c_str(), base::and_more(*left_out).text);
  return false;
}

void ServerLink::request_receive_size(uint32_t bytes) {
  size_requests_.ask();
  core().post([&core = core(), id = id(), bytes] {
    auto* link = static_cast<ServerLink*>(core.find(id));
    if (link == nullptr)
      return;
    // With a client of another implementation a smaller size would leave the replies to calls in
    // flight without a Reply chunk that they need.
    bool may_ask = link->state() == runtime::LinkState::kUp &&
                   bytes >= link->engine().properties().peer().receive_size;
    if (may_ask && link->engine().request_receive_size(bytes))
      core.mark_dirty(*link);
    else
      link->size_requests_.refuse();
  });
}

void ServerLink::raise_receive_size(uint32_t bytes) {
  core().post([&core = core(), id = id(), bytes] {
    auto* link = static_cast<ServerLink*>(core.find(id));
    if (link != nullptr && link->state() == runtime::LinkState::kUp)
      link->engine().properties().raise(bytes);
  });
}

rrdk::ReceiveSizes ServerLink::receive_size_report() const {
  // First what has ended, then the sizes, which are set before that is counted.
  Stats counted(CounterOwner::kServer);
  add_to(counted);
  return size_requests_.report(receive_sizes(), counted);
}

// The connection got no lane when it came, or this is its client's first call that must not run
// twice. Returns what is still lacking; null: nothing.
const char* ServerLink::prepare_once() noexcept {
  if (!client_.has_place) {
    const ClientTable::Place place = server_.clients.take_place(client_, core().now());
    if (place.lacks != nullptr)
      return place.lacks;
    if (place.made_way)
      tell_of_way();
  }
  if (lane_ == nullptr)
    lane_ = client_.replays.enter(core().now(), true);
  return lane_ == nullptr ? kNoReplayRoom : nullptr;
}

void ServerLink::tell_of_way() {
  if (auto left_out = server_.ways_made.allow(base::Tsc::now_ns()))
    base::log_warning(
        "calls of a client that has been away for %u ms were forgotten before window_ms passed, "
        "to remember calls of %s: enlarge ReplayOptions::clients%s",
        server_.options.replay.min_window_ms, peer_name().c_str(), base::and_more(*left_out).text);
}

// For a call that could not be told from its repetition. Returns true if the program wants it to
// run.
bool ServerLink::runs_unprotected(ServedCall& call, const char* lacks) noexcept {
  if (!server_.options.replay.run_unprotected || !client_.known) {
    refuse_unprotected(call, lacks);
    return false;
  }
  ++server_.clients.counters().replay_unprotected;
  if (auto left_out = server_.unprotected.allow(base::Tsc::now_ns()))
    base::log_warning("a call of %s is run, and would run again if it were repeated: %s%s",
                      peer_name().c_str(), lacks, base::and_more(*left_out).text);
  return true;
}

void ServerLink::refuse_unprotected(ServedCall& call, const char* lacks) noexcept {
  ++server_.clients.counters().replay_refused;
  server_.clients.tidy(core().now());
  if (auto left_out = server_.unprotected.allow(base::Tsc::now_ns()))
    base::log_warning("a call of %s was not run, since its repetition could not be detected: %s%s",
                      peer_name().c_str(), lacks, base::and_more(*left_out).text);
  refuse(call, AcceptStat::kSystemErr);
}

void ServerLink::on_tick(uint64_t now_ns) {
  if (back_ != nullptr)
    back_->set_deadlines(now_ns);
}

uint64_t ServerLink::quiet_above() const {
  return back_ != nullptr && back_->has_untimed() ? 0 : UINT64_MAX;
}

void ServerLink::drain() {
  RRDK_ON_CORE(core());
  if (back_ != nullptr)
    back_->shut();
  engine().drain();
  core().mark_dirty(*this);
}

// Counted from the first check that finds it so: never too long.
uint64_t ServerLink::StallTimer::look(bool holds, uint64_t count, uint64_t now_ns) noexcept {
  if (!holds) {
    since_ns = 0;
    return 0;
  }
  if (count != seen || since_ns == 0) {
    seen = count;
    since_ns = now_ns;
  }
  return now_ns - since_ns;
}

namespace {

uint64_t calls_of(const engine::Counters& counters) {
  return counters.calls_received + counters.options_served;
}

}  // namespace

bool ServerLink::has_called() const {
  return calls_of(counters()) != 0;
}

void ServerLink::check_timeouts(uint64_t now_ns) {
  constexpr uint64_t kMillisecondNs = 1'000'000;
  if (state() != runtime::LinkState::kUp)
    return;
  constexpr uint32_t kTidied = 16;  // calls, for each connection of its client
  uint32_t tidied = kTidied;
  client_.replays.tidy(now_ns, tidied);
  const ServerLimits limits = server_.limits();
  bool quiet = engine().responder().calls() == 0 && !engine().busy();
  const engine::Counters& counters = engine().counters();
  if (calls_of(counters) != 0 && !std::exchange(seen_to_call_, true))
    server_.silent.remove(*this);
  uint64_t heard = calls_of(counters) + counters.replies_received;
  uint64_t idle = idle_.look(quiet, heard, now_ns);
  const fabric::Lane::Untaken in_lane = untaken();
  uint64_t stalled = sending_.look(engine().sends_pending() || in_lane.any,
                                   engine().sends_done() + in_lane.progress, now_ns);
  if (limits.send_timeout_ms != 0 && stalled >= limits.send_timeout_ms * kMillisecondNs) {
    ++server_.counters.closed_stalled;
    close({EndedBy::kLimit,
           Errc::kTimeout,
           {},
           "it has taken no reply for " + std::to_string(limits.send_timeout_ms) +
               " ms (ServerOptions::send_timeout_ms)"});
  } else if (heard == 0 && limits.first_call_timeout_ms != 0 &&
             idle >= limits.first_call_timeout_ms * kMillisecondNs) {
    ++server_.counters.closed_silent;
    close({EndedBy::kLimit,
           Errc::kShutdown,
           {},
           "it made no call in its first " + std::to_string(limits.first_call_timeout_ms) +
               " ms (ServerOptions::first_call_timeout_ms)"});
  } else if (limits.idle_timeout_ms != 0 && idle >= limits.idle_timeout_ms * kMillisecondNs) {
    ++server_.counters.closed_idle;
    close({EndedBy::kLimit,
           Errc::kShutdown,
           {},
           "no calls for " + std::to_string(limits.idle_timeout_ms) +
               " ms (ServerOptions::idle_timeout_ms)"});
  }
}

// One line for each connection, in the terms of on_close and visit(). Peers come and go; one that
// breaks rules, or takes nothing, is worth a warning.
void ServerLink::log_end(const Ending& ending) {
  const bool broken =
      ending.refusal || (ending.by == EndedBy::kProgram && ending.code == Errc::kConnectionLost);
  const bool stalled = ending.by == EndedBy::kLimit && ending.code == Errc::kTimeout;
  const bool limited = ending.by == EndedBy::kLimit && was_up();
  base::LogLimit* const limit = broken    ? &server_.failures
                                : stalled ? &server_.stalls
                                : limited ? &server_.idlers
                                          : nullptr;
  const LogLevel level = broken || stalled ? LogLevel::kWarning
                         : limited         ? LogLevel::kInfo
                                           : LogLevel::kDebug;
  runtime::log_ending(level, limit, "of " + peer_name(), ending);
}

void ServerLink::on_dead() {
  if (back_ != nullptr)
    back_->on_dead();
  server_.remove(*this);
}

// Receives that grow.

namespace {

uint32_t& buffers_of(GrowthShares& shares, uint32_t buffer_size) {
  auto found = std::ranges::find(shares, buffer_size, &GrowthShare::buffer_size);
  if (found == shares.end())
    found = shares.insert(found, {.buffer_size = buffer_size, .buffers = 0});
  return found->buffers;
}

}  // namespace

Result<void> Growth::take(uint32_t bytes, uint32_t receives, GrowthShares& shares) {
  PoolAudit pool = memory_.audit_fitting(bytes);
  uint32_t& own = buffers_of(shares, pool.buffer_size);
  if (pool.buffer_size == memory_.audit_fitting(bytes_).buffer_size || receives <= own)
    return {};  // they have such buffers already
  std::lock_guard lock(mutex_);
  uint32_t& taken = buffers_of(taken_, pool.buffer_size);
  uint64_t there = uint64_t{pool.count} + pool.more;
  uint64_t kept = there / kShareKeptForCalls;
  uint64_t all = uint64_t{taken} - own + receives + kept;
  if (all > there)
    return fail(
        Errc::kNoMemory,
        "of " + std::to_string(there) + " buffers of " + std::to_string(pool.buffer_size) +
            " bytes, Receives of other connections have " + std::to_string(taken - own) + ", " +
            std::to_string(kept) + " are kept for calls and this one takes " +
            std::to_string(receives) + ": " + mem::remedy_for(pool) +
            ", or lower Version2ServerOptions::max_receive_size, credits or backward_credits");
  taken = taken - own + receives;
  own = receives;
  return {};
}

void Growth::give_back(GrowthShares& shares) {
  std::lock_guard lock(mutex_);
  for (const GrowthShare& share : shares) {
    RRDK_ASSERT(share.buffers <= buffers_of(taken_, share.buffer_size), share.buffers);
    buffers_of(taken_, share.buffer_size) -= share.buffers;
  }
  shares.clear();
}

}  // namespace rrdk::server
