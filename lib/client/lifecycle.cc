// The life of a ClientConnection from connect_start() to kClosed, as steps on the core. Threads
// that wait for a part only check the result. Also keepalive, which may end it.
//
// The handle, a ClientConnection, owns the Impl. The Impl outlives a handle that does not wait for
// the end (detach()): then it owns itself until it has ended, and reports nothing any more.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "client/client_impl.h"
#include "rpc/headers_datapath.h"

namespace rrdk {

namespace {

constexpr uint64_t kNsPerMillisecond = 1'000'000;
constexpr const char* kWaitsForEnd =
    "~ClientConnection() waits for its connection to end: the server's calls that were kept "
    "(ServerCall) must be answered, and cores be polled";

}  // namespace

const char* to_string(ConnectionState state) noexcept {
  switch (state) {
    case ConnectionState::kConnecting:
      return "connecting";
    case ConnectionState::kUp:
      return "up";
    case ConnectionState::kLost:
      return "lost";
    case ConnectionState::kReconnecting:
      return "reconnecting";
    case ConnectionState::kClosed:
      return "closed";
  }
  return "unknown";
}

void ClientConnection::Impl::begin(ClientConnection& handle) {
  handle_.store(&handle, std::memory_order_relaxed);
  due_ns_ = base::Tsc::now_ns() + timeout_ns_;
  post([this] { start(); });
}

void ClientConnection::Impl::start() {
  begun_.store(true, std::memory_order_relaxed);
  if (closing_.load(std::memory_order_relaxed))
    return;  // close_now() is the next task
  tell(ConnectionState::kConnecting, nullptr);
  attempt();
}

void ClientConnection::Impl::tell(ConnectionState state, const Error* reason) {
  state_.store(state, std::memory_order_release);
  note_room();
  ClientConnection* handle = handle_.load(std::memory_order_acquire);
  if (connect.on_state != nullptr && handle != nullptr)
    connect.on_state(*handle, state, reason, connect.argument);
}

void ClientConnection::Impl::close_start() {
  closing_.store(true, std::memory_order_relaxed);
  post([this] { close_now({EndedBy::kProgram, Errc::kShutdown, {}, "closed here"}); });
}

void ClientConnection::Impl::close_now(const Ending& ending) {
  if (is_over())
    return;
  shutting_down = true;  // it may have been established meanwhile
  wanted_ = false;
  look_again_.cancel(core());
  end_waiting(CallStatus::kShutdown);
  drains_up_ |= lose();     // no further call is sent, least of all without the credential
  set_credential(nullptr);  // a context may have no other user
  end_contexts();
  if (!is_ending_contexts())
    return close_link(ending);
  post([this, ending] { close_link(ending); });  // once this pass has sent what tells the server
}

void ClientConnection::Impl::close_link(const Ending& ending) {
  if (is_over())
    return;
  if (link_)
    link_->close(ending);
  set_ending(ending);  // also if it was closing for another reason
  if (!link_)
    finish();
}

uint32_t ClientConnection::Impl::calls_left() const noexcept {
  const uint64_t ended = counters().calls_ok + counters().calls_failed;
  const uint64_t made = counters().calls_made;
  return static_cast<uint32_t>(made - std::min(made, ended));
}

void ClientConnection::Impl::drain_start(uint32_t timeout_ms) {
  const uint64_t due_ns = base::Tsc::now_ns() + timeout_ms * kNsPerMillisecond;
  post([this, due_ns, timeout_ms] { begin_drain(due_ns, timeout_ms); });
}

// Existing calls may end; new ones find no link that takes them.
void ClientConnection::Impl::begin_drain(uint64_t due_ns, uint32_t timeout_ms) {
  if (is_over() || shutting_down)
    return;
  draining_.store(true, std::memory_order_relaxed);
  drains_up_ |= lose();
  if (due_ns < drain_due_ns_) {
    drain_due_ns_ = due_ns;
    drain_ms_ = timeout_ms;
  }
  look_at_drain();
}

void ClientConnection::Impl::look_at_drain() {
  const uint32_t left = calls_left();
  if (left == 0)
    return close_now(
        {EndedBy::kProgram, Errc::kShutdown, {}, "closed here, when all calls had ended"});
  if (base::Tsc::now_ns() < drain_due_ns_)
    return look_again_.start<&Impl::look_at_drain>(core(), *this, drain_due_ns_);
  cut_off_.store(left, std::memory_order_relaxed);
  close_now({EndedBy::kProgram,
             Errc::kTimeout,
             {},
             "closed here: " + std::to_string(left) + " calls had not ended within " +
                 std::to_string(drain_ms_) + " ms"});
}

// There is no link, and there will be none.
void ClientConnection::Impl::finish() {
  core().timers().cancel(timer_);
  look_again_.cancel(core());
  end_waiting(shutting_down ? CallStatus::kShutdown : CallStatus::kConnectionLost);
  stop_renewals();
  end_contexts();
  phase_.store(Phase::kOver, std::memory_order_release);
  look_again_.reset();
  look_again();  // not here: a link may be in the middle of its end below us
}

// It is over; the ends of calls may still be on their way to their callbacks. This is the last
// event, except for calls that are made after it.
void ClientConnection::Impl::settle() {
  if (!unused())
    return look_again();
  if (phase_.load(std::memory_order_relaxed) != Phase::kClosed) {
    const Error reason = last_error();
    tell(ConnectionState::kClosed, &reason);
  }
  if (search_ != nullptr)
    search_->asker = nullptr;
  search_.reset();
  if (!detached_) {
    phase_.store(Phase::kClosed, std::memory_order_release);  // last: the Impl may be destroyed now
    return;
  }
  phase_.store(Phase::kClosed, std::memory_order_relaxed);
  if (tasks_.load(std::memory_order_acquire) != 0)
    return look_again();
  end();
  const bool late = overdue_;
  std::shared_ptr<Impl> ours = std::move(self_);
  ours.reset();  // and this object is destroyed
  if (late)
    base::log_info("what was left of a ClientConnection that was destroyed has closed");
}

Result<void> ClientConnection::Impl::wait_for_connection() {
  auto is_decided = [this] {
    const Phase phase = phase_.load(std::memory_order_acquire);
    return phase == Phase::kUp || phase == Phase::kReconnecting || phase == Phase::kClosed;
  };
  // When the time is up, the core may find that it was extended.
  const auto is_on = [this] { return base::Tsc::now_ns() <= due_ns_; };
  bool decided = false;
  do {
    decided = runtime.wait_until(is_decided, due_ns_);
    if (!decided && begun_.load(std::memory_order_relaxed))
      runtime.wait_until([&] { return is_decided() || is_on(); },
                         base::Tsc::now_ns() + runtime.patience_ns);
    decided = is_decided();
  } while (!decided && is_on());
  if (!decided) {
    Error error = {Errc::kTimeout, address() + ": poll core " + std::to_string(core().index()) +
                                       " has not connected within " +
                                       std::to_string(timeout_ns_ / kNsPerMillisecond) +
                                       " ms: no thread polls it"};
    close_start();
    detach();
    return tl::unexpected(std::move(error));
  }
  if (phase_.load(std::memory_order_acquire) != Phase::kClosed)
    return {};
  return tl::unexpected(last_error());
}

uint32_t ClientConnection::Impl::drain(uint32_t timeout_ms) {
  drain_start(timeout_ms);
  auto is_closed = [this] { return phase_.load(std::memory_order_acquire) == Phase::kClosed; };
  const uint64_t last_ns =
      base::Tsc::now_ns() + timeout_ms * kNsPerMillisecond + runtime.patience_ns;
  if (Runtime::Impl::in_any_pass() || !runtime.wait_until(is_closed, last_ns))
    return calls_left();
  return cut_off_.load(std::memory_order_relaxed);
}

void ClientConnection::Impl::handle_destroyed() {
  if (handle_.load(std::memory_order_relaxed) == nullptr)
    return;  // detached by its owner
  on_room(1, nullptr, nullptr);
  if (!is_settled()) {
    close_start();
    if (runtime.in_pass())
      return detach();
    if (!runtime.wait_patiently([this] { return is_settled(); }, kWaitsForEnd)) {
      overdue_ = true;
      return detach();
    }
  }
  handle_.store(nullptr, std::memory_order_relaxed);
  end();
}

// Its handle is destroyed, and the rest ends without it.
void ClientConnection::Impl::detach() {
  handle_.store(nullptr, std::memory_order_release);
  self_ = shared_from_this();
  post([this] {
    detached_ = true;
    if (is_over())
      look_again();
  });
}

// Asking a silent peer whether it is still there.

namespace {

constexpr uint32_t kNullProcedure = 0;  // of every program (RFC 5531 section 12.1)
constexpr uint32_t kProbeBytes = 128;

}  // namespace

void ClientConnection::Impl::look_for_silence(uint64_t now_ns) {
  engine::Connection& engine = link_->engine();
  bool can_ask = probe_unanswered_ || (engine.requester().may_send() && probe_call().has_value());
  switch (silence_.look(now_ns, engine.counters().messages_received, can_ask)) {
    case SilenceWatch::Verdict::kFine:
      return;
    case SilenceWatch::Verdict::kAsk:
      if (!probe_unanswered_ && !send_probe())
        silence_.restart();  // there was no buffer for it, which says nothing about the peer
      return;
    case SilenceWatch::Verdict::kGone:
      break;
  }
  ++client_counters_.keepalive_ends;
  link_->close({EndedBy::kLimit,
                Errc::kTimeout,
                {},
                "the peer is silent: it has not answered keepalive for " +
                    std::to_string(uint64_t{options.keepalive_ms} * options.keepalive_patience) +
                    " ms (ClientOptions::keepalive_ms)"});
}

// Returns the NULL call of the program that is called; if there are several, of the one that was
// first used last.
std::optional<calls::NullCall> ClientConnection::Impl::probe_call() const noexcept {
  if (options.keepalive_binding != nullptr)
    return calls::null_call_of(*options.keepalive_binding);
  return last_null_call();
}

// Any answer will do, so it is sent without a credential, as NULL calls may be.
bool ClientConnection::Impl::send_probe() {
  if (!write_probe())
    return false;
  ++client_counters_.keepalives;
  probe_->deadline_ns = 0;
  link_->engine().submit(*probe_);
  core().mark_dirty(*link_);
  return true;
}

bool ClientConnection::Impl::write_probe() {
  const calls::NullCall call = *probe_call();
  if (!probe_) {
    probe_ = std::make_unique<engine::OutgoingCall>();
    probe_->by_library = true;
  }
  {
    Encoder args(probe_->message, runtime.memory, kProbeBytes, kProbeBytes);
    rpc::encode_call(args, 0, {call.program, call.version, kNullProcedure}, {});
    if (!args.ok())
      return false;
  }
  probe_->max_reply = call.max_reply;
  probe_unanswered_ = true;
  before_probe_ = path_ != nullptr ? path_->sent() : 0;
  return true;
}

void ClientConnection::Impl::on_probe_ended() noexcept {
  probe_unanswered_ = false;
  if (path_ != nullptr && probe_->status == CallStatus::kOk)
    path_->note_arrival(before_probe_);
}

// A context of its calls waits to know that they have arrived (gss::Path), and no answer to them
// has said so.
bool ClientConnection::Impl::ask_arrival() noexcept {
  try {
    post([this] { prove_arrival(); });
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void ClientConnection::Impl::prove_arrival() noexcept {
  if (path_ == nullptr)
    return;
  path_->note_asked();
  const bool can_send = link_ != nullptr && (is_up() || drains_up_) && !probe_unanswered_;
  if (!can_send || path_->arrived() >= path_->sent() || !probe_call() || !write_probe())
    return;
  probe_->deadline_ns = base::Tsc::now_ns() + kCourtesyNs;
  if (!link_->engine().requester().submit_at_once(*probe_))
    probe_unanswered_ = false;
  core().mark_dirty(*link_);
}

}  // namespace rrdk
