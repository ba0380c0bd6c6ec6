// The connections of a ClientConnection, one after the other: how each begins, ends, and is
// followed by the next, and the calls that wait for it.
//
// All of this runs on the poll core and waits for nothing there: Link::connect() only asks the
// fabric to connect, and the outcome is an event. It does cost a queue pair, whose memory must be
// mapped.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "base/addresses.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "client/client_impl.h"

namespace rrdk {

namespace {

constexpr uint64_t kMs = 1'000'000;

std::string in_ms(uint64_t ns) {
  return std::to_string(ns / kMs) + " ms";
}

// Whether the connection has served its purpose; a peer can send anything.
bool has_answered(const engine::Counters& counters) {
  return counters.replies_received + counters.transport_errors_received != 0;
}

// A server without a version in common with us answers each connection, and each is as useless as
// the last (V1-ERR-16).
bool was_of_use(const engine::Counters& counters) {
  return has_answered(counters) && counters.refusals[Refusal::kNoCommonVersion] == 0;
}

// Our first message, in a version that the peer may not know, was never answered (draft-04 section
// 7.2).
bool is_first_lost(const engine::Connection& engine) {
  return !engine.version_settled() && engine.counters().calls_sent != 0 &&
         !has_answered(engine.counters());
}

}  // namespace

engine::Speaks ClientConnection::Impl::speaks() const {
  switch (options.version) {
    case RpcRdmaVersion::kOne:
      break;
    case RpcRdmaVersion::kTwo:
      return engine::Speaks::kTwo;
    case RpcRdmaVersion::kAuto:
      if (!versions_.is_known(address(), base::Tsc::now_ns()))
        return engine::Speaks::kAuto;
  }
  return engine::Speaks::kOne;
}

engine::ConnectionOptions ClientConnection::Impl::engine_options(engine::Speaks what) const {
  engine::ConnectionOptions engine = {
      .role = engine::Role::kRequester,
      .speaks = what,
      .credits = options.credits,
      .backward_credits = services.empty() ? 0 : options.backward_credits,
      .backward_chunks = options.version2.backward_chunks,
      .send_size = options.inline_size,
      .receive_size = options.inline_size,
      .max_receive_size = options.version2.max_receive_size,
      .properties = options.version2.properties,
      .limits = {},
      .max_call = options.max_call,
      .max_reply = options.max_reply,
      .max_chunk_bytes = options.version2.max_backward_chunk_bytes,
      .chunk_threshold = options.chunk_threshold,
      .lend_ns = options.lend_ms * kMs,
      .starved_ns = options.starved_ms * kMs,
      .pad_write_chunks = options.pad_write_chunks,
      .one_segment = options.one_segment,
      .rfc5666 = {.enabled = options.rfc5666.enabled,
                  .max_reads = options.rfc5666.max_reads,
                  .pad_threshold = options.rfc5666.pad_threshold,
                  .read_replies = options.rfc5666.enabled && options.rfc5666.read_replies},
      .extensions = options.version2.extensions};
  // A reply in a version that was never spoken is not an answer.
  engine.limits.versions = proto::versions_of({.one = what != engine::Speaks::kTwo,
                                               .two = what != engine::Speaks::kOne,
                                               .draft = options.version2.draft});
  // The connections of a core share Receives, since most have few calls in flight, or none. Only if
  // its Receives may grow, or RFC 5666's mode counts them, does a connection have its own. All
  // backward credits are granted from the first answer on, since handlers may keep calls until
  // others have come.
  const bool grows = options.version2.max_receive_size > engine::receive_bytes(engine);
  if (!grows && !options.rfc5666.enabled)
    engine.first_credits = std::max(engine.backward_credits, 1u);
  return engine;
}

// The peer does not know version 2.
void ClientConnection::Impl::on_version_refused() {
  bool is_news = versions_.knows_only_one(address(), base::Tsc::now_ns());
  version_.store(1, std::memory_order_relaxed);
  ++client_counters_.version_fallbacks;
  if (is_news)
    base::log_info(
        "connection to %s: the server does not know this version 2 of RPC over RDMA; version 1 is "
        "used with it",
        address().c_str());
}

// The address itself may say where the server is. If it has a name, a name server must be asked,
// which may not answer: threads of the Runtime do that, and also open the device. There is one
// search at a time: its result goes to the attempt that waits when it comes.
void ClientConnection::Impl::attempt() {
  attempt_ns_ = base::Tsc::now_ns();
  if (opened_)
    due_ns_ = attempt_ns_ + timeout_ns_;
  arm_timer(due_ns_);
  wanted_ = true;
  if (search_ != nullptr)
    return;
  Target target = {.device = runtime.open_device(driver_), .place = nullptr};
  if (target.device != nullptr)
    if (auto place = driver_.find(address(), fabric::Names::kRefused); place)
      target.place = std::move(*place);
  if (target.place != nullptr)
    return start_link(target);
  if (Result<void> asked = search(); !asked) {
    search_.reset();
    fail_attempt(asked.error());
  }
}

// Names first: an address that cannot be resolved opens no driver.
Result<void> ClientConnection::Impl::search() {
  search_ = std::make_shared<Search>();
  search_->asker = this;
  auto find = [search = search_, &driver = driver_, uri = address()] {
    search->place = driver.find(uri, fabric::Names::kLookedUp);
  };
  auto then = [search = search_, &driver = driver_, uri = address(), &core = core(),
               &rt = runtime] {
    if (search->place)
      search->device = rt.device(driver, uri, fabric::Purpose::kConnecting);
    core.post([search] {
      if (search->asker != nullptr)
        search->asker->on_found(*search);
    });
  };
  return runtime.searches.start(
      {.host = host_,
       .find = std::move(find),
       .then = std::move(then),
       .began_ns = std::shared_ptr<std::atomic<uint64_t>>(search_, &search_->began_ns)});
}

void ClientConnection::Impl::on_found(Search& search) {
  RRDK_ON_CORE(core());
  const std::shared_ptr<Search> done = std::move(search_);
  if (!wanted_)
    return;  // closed, or between two attempts
  if (!search.place)
    return fail_attempt(search.place.error());
  if (!search.device)
    return fail_attempt(search.device.error());
  due_ns_ = due_of_attempt(search);
  arm_timer(due_ns_);
  start_link({.device = *search.device, .place = std::move(*search.place)});
}

// The attempt failed before there was a link.
void ClientConnection::Impl::fail_attempt(const Error& why) {
  wanted_ = false;
  core().timers().cancel(timer_);
  note_loss(fabric::ending_of(why), false);
  go_on();
}

void ClientConnection::Impl::start_link(const Target& target) {
  RRDK_ON_CORE(core());
  RRDK_ASSERT(link_ == nullptr && !is_up());  // at most one engine knows a call
  wanted_ = false;
  set_device(*target.device);
  target.place->begin_with(served_by_);
  // The driver divides the time among the peer's addresses. We end the attempt, and name the limit.
  constexpr std::chrono::seconds kLater{1};
  const uint64_t now = base::Tsc::now_ns();
  target.place->timeout =
      kLater + std::chrono::milliseconds((due_ns_ - std::min(now, due_ns_.load())) / kMs);
  ClientLink* fresh = nullptr;
  {
    std::lock_guard lock(link_mutex_);
    link_ = std::make_unique<ClientLink>(*this, *target.device);
    fresh = link_.get();
  }
  const engine::Speaks what = speaks();
  Result<void> started = fresh->connect(
      address(), *target.place,
      client_->engine_options.over(*target.device, what, [&] { return engine_options(what); }),
      {.borrower = borrower_.get()}, runtime.memory, *this);
  if (!started && fresh->state() == runtime::LinkState::kNew) {
    on_link_down(fabric::ending_of(started.error()));
    on_link_dead();
  } else if (!xids_.empty()) {
    // A responder may remember calls by their XIDs (a duplicate request cache): new calls must not
    // look like those of the last connection.
    fresh->engine().requester().continue_xids(xids_);
  }
}

void ClientConnection::Impl::on_link_up() {
  RRDK_ASSERT(link_ != nullptr && !is_up());
  if (options.rfc5666.enabled && !configured_)
    return begin_config();  // which returns here
  core().timers().cancel(timer_);
  served_by_ = link_->runtime::Link::peer().remote;
  use(*link_, link_->open_lane());
  ignores_last_calls_ = false;
  if (std::exchange(opened_, true)) {
    ++client_counters_.reconnections;
    if (auto left_out = returns_said_.allow(base::Tsc::now_ns()))
      base::log_info("connection to %s is established again%s", address().c_str(),
                     base::and_more(*left_out).text);
  }
  if (options.keepalive_ms != 0) {
    silence_.restart();
    link_->set_always_ticks(true);
  }
  version_.store(link_->engine().version(), std::memory_order_relaxed);
  phase_.store(Phase::kUp, std::memory_order_release);
  release_waiting();
  if (draining_.load(std::memory_order_relaxed))
    drains_up_ = lose();
  tell(ConnectionState::kUp, nullptr);
}

void ClientConnection::Impl::on_link_down(const Ending& ending) {
  core().timers().cancel(timer_);
  bool was_up = lose();
  was_up |= std::exchange(drains_up_, false);
  configured_ = false;
  link_->set_always_ticks(false);
  // The connection was of use, so the delays begin again.
  if (was_up && was_of_use(link_->engine().counters())) {
    backoff_.reset();
    broken_since_ns_ = 0;
  }
  bool may_fall_back = options.version == RpcRdmaVersion::kAuto && !shutting_down;
  if (was_up && may_fall_back && is_first_lost(link_->engine()))
    on_version_refused();
  note_loss(ending, was_up);
}

void ClientConnection::Impl::note_loss(const Ending& ending, bool was_up) {
  if (broken_since_ns_ == 0)
    broken_since_ns_ = base::Tsc::now_ns();
  if (opened_ && !was_up)
    ++client_counters_.attempts_failed;
  set_ending(ending);
  bool again = will_reconnect();
  if (was_up) {
    const LogLevel level = ending.code == Errc::kShutdown ? LogLevel::kDebug : LogLevel::kInfo;
    runtime::log_ending(level, level == LogLevel::kInfo ? &client_->ends_said : nullptr,
                        "to " + address(), ending, again ? "; connecting again" : "");
  }
  phase_.store(again ? Phase::kReconnecting : Phase::kFailed, std::memory_order_release);
  if (was_up && !shutting_down) {
    const Error why = last_error();
    tell(ConnectionState::kLost, &why);
  }
}

void ClientConnection::Impl::on_link_finished() {
  xids_ = link_->engine().requester().last_xids();
}

void ClientConnection::Impl::on_link_dead() {
  std::unique_ptr<ClientLink> dead;  // its call is in progress: destroyed last
  {
    std::lock_guard lock(link_mutex_);
    link_->add_to(past_);
    dead = std::move(link_);
  }
  forget();
  configured_ = false;
  go_on();
}

void ClientConnection::Impl::go_on() {
  RRDK_ASSERT(link_ == nullptr);
  if (!will_reconnect())
    return finish();
  try_again_later();
  const Error why = last_error();
  tell(ConnectionState::kReconnecting, &why);
}

uint64_t ClientConnection::Impl::give_up_at() const noexcept {
  if (options.reconnect.give_up_ms == 0 || broken_since_ns_ == 0)
    return UINT64_MAX;
  return broken_since_ns_ + options.reconnect.give_up_ms * kMs;
}

void ClientConnection::Impl::arm_timer(uint64_t due_ns) {
  start_timer<&Impl::on_timer>(timer_, std::min(due_ns, give_up_at()));
}

void ClientConnection::Impl::try_again_later() {
  arm_timer(base::Tsc::now_ns() + backoff_.next_ns(random_.next()));
}

// For a name that waited until others were resolved, the time counts from then on.
uint64_t ClientConnection::Impl::due_of_attempt(const Search& search) const {
  const uint64_t began = search.began_ns;
  return (began == 0 ? base::Tsc::now_ns() : std::max(began, attempt_ns_)) + timeout_ns_;
}

// Returns which limit it was, and where it was set.
std::string ClientConnection::Impl::in_time() const {
  return " within " + in_ms(timeout_ns_) +
         (uri_timeout_ ? " (timeout= of the address)" : " (connect_timeout_ms)");
}

// Between two links it is time for the next attempt. With a link, or while another thread finds out
// where the server is, the attempt has taken too long.
void ClientConnection::Impl::on_timer() {
  if (base::Tsc::now_ns() >= give_up_at())
    return give_up();
  if (link_)
    return link_->close({EndedBy::kLimit, Errc::kTimeout, {}, "no answer" + in_time()});
  if (!wanted_)
    return attempt();
  due_ns_ = due_of_attempt(*search_);
  if (base::Tsc::now_ns() < due_ns_)
    return arm_timer(due_ns_);
  const bool is_name = !host_.empty() && base::numeric_address(host_, 0).empty();
  fail_attempt({Errc::kTimeout,
                is_name ? "its name was not found" + in_time() + ": a name server may be slow"
                        : "its driver was not ready" + in_time()});
}

void ClientConnection::Impl::give_up() {
  given_up_ = true;
  wanted_ = false;
  const Ending ending = {EndedBy::kLimit,
                         Errc::kTimeout,
                         {},
                         "given up after " + in_ms(base::Tsc::now_ns() - broken_since_ns_) +
                             " without a connection; the last reason: " + last_ending().text};
  base::log_warning("connection to %s is %s", address().c_str(), ending.text.c_str());
  if (link_) {
    link_->close(ending);
    end_waiting(CallStatus::kConnectionLost);
    return;
  }
  set_ending(ending);
  phase_.store(Phase::kFailed, std::memory_order_release);
  finish();
}

void ClientConnection::Impl::set_ending(const Ending& ending) {
  std::lock_guard lock(ending_mutex_);
  ending_ = ending;
}

Ending ClientConnection::Impl::last_ending() const {
  std::lock_guard lock(ending_mutex_);
  return ending_;
}

Error ClientConnection::Impl::last_error() const {
  const Ending ending = last_ending();
  return {ending.code, address() + ": " + ending.text};
}

}  // namespace rrdk

namespace rrdk::client {

bool VersionMemory::knows_only_one(const std::string& uri, uint64_t now_ns) {
  std::lock_guard lock(mutex_);
  if (until_ns_.size() >= kMost)
    std::erase_if(until_ns_, [now_ns](const auto& entry) { return entry.second <= now_ns; });
  if (until_ns_.size() >= kMost && !until_ns_.contains(uri))
    return true;
  uint64_t before = std::exchange(until_ns_[uri], now_ns + lifetime_ns_);
  return before <= now_ns;
}

bool VersionMemory::is_known(const std::string& uri, uint64_t now_ns) const {
  std::lock_guard lock(mutex_);
  auto found = until_ns_.find(uri);
  return found != until_ns_.end() && now_ns < found->second;
}

}  // namespace rrdk::client

namespace rrdk {

// Calls that have no connection: those that lost theirs and are sent again on the next one, and
// those that were submitted meanwhile.

// Whether a call that lost its connection waits for the next one. On the same connection a call
// that was not answered is never repeated: it would need a second credit while the first is held
// (RFC 5666 and RFC 8166 section 3.3), and a reliable connection loses nothing while it exists.
// Recovery is for the loss and re-establishment of the whole connection (RFC 5666 section 8).
bool ClientConnection::Impl::carries(const Call::Impl& call) const noexcept {
  if (!will_reconnect())
    return false;
  bool maybe_seen = call.sent || call.resend;
  return call.retransmit || !maybe_seen;
}

void ClientConnection::Impl::start_without_link(Call::Impl& call) noexcept {
  if (draining_.load(std::memory_order_relaxed))
    end_later(call, CallStatus::kShutdown);
  else
    waits_for_link() ? keep_waiting(call) : end_unconnected(call);
}

bool ClientConnection::Impl::take_back(Call::Impl& call) noexcept {
  if (!carries(call))
    return false;
  keep_waiting(call);
  return true;
}

void ClientConnection::Impl::stop_keeping(Call::Impl& call) noexcept {
  list_of(call).remove(call);
}

CallList& ClientConnection::Impl::list_of(const Call::Impl& call) noexcept {
  if (call.protection != nullptr && call.protection->waits)
    return forgotten_;
  return call.resend ? again_ : unsent_;
}

void ClientConnection::Impl::keep_waiting(Call::Impl& call) noexcept {
  // It may have been cancelled while it could only be waited for.
  if (call.cancel_wanted.load(std::memory_order_relaxed) ||
      call.abandoned.load(std::memory_order_relaxed))
    return end_later(call, CallStatus::kCancelled);
  call.resend |= call.sent;
  call.sent = false;
  call.phase = Call::Impl::Phase::kWaiting;
  if (call.protection != nullptr) {
    call.protection->waits = false;
    call.protection->session.reset();
  }
  list_of(call).push(call);
  if (!waiting_timer_.running())
    arm_waiting_timer(core().now());
}

// Without a link no ticks come for them.
void ClientConnection::Impl::arm_waiting_timer(uint64_t now_ns) noexcept {
  start_timer<&Impl::look_at_waiting>(waiting_timer_, now_ns + kMs);
}

void ClientConnection::Impl::look_at_waiting() {
  const uint64_t now_ns = core().now();
  look_at(again_, now_ns);
  look_at(unsent_, now_ns);
  look_at(forgotten_, now_ns);
  if (!again_.empty() || !unsent_.empty() || !forgotten_.empty())
    arm_waiting_timer(now_ns);
}

void ClientConnection::Impl::look_at(CallList& list, uint64_t now_ns) noexcept {
  for (Call::Impl& call : list) {
    if (!call.timed) {
      call.timed = true;
      if (call.timeout_ms != 0)
        call.deadline_ns = now_ns + call.timeout_ms * kMs;
    } else if (call.deadline_ns != 0 && call.deadline_ns <= now_ns) {
      list.remove(call);
      end_later(call, CallStatus::kTimeout);
    }
  }
}

// There is a connection. Calls that are sent again go first: their slots are free then, and new
// calls find these slots taken.
void ClientConnection::Impl::release_waiting() noexcept {
  core().timers().cancel(waiting_timer_);
  // From here on all have deadlines: on_link_tick() looks no further than the first that has one.
  look_at(again_, base::Tsc::now_ns());
  look_at(unsent_, base::Tsc::now_ns());
  for (CallList* list : {&again_, &unsent_}) {
    while (!list->empty()) {
      Call::Impl& call = list->pop();
      ++client_counters_.calls_carried_over;
      // The device may not have been known when the call was submitted.
      reaches(call) ? to_engine(call) : end_later(call, CallStatus::kInvalidMemory);
    }
  }
  if (!forgotten_.empty())
    arm_waiting_timer(core().now());
}

void ClientConnection::Impl::end_waiting(CallStatus status) noexcept {
  core().timers().cancel(waiting_timer_);
  for (CallList* list : {&again_, &unsent_, &forgotten_}) {
    while (!list->empty())
      end_later(list->pop(), status);
  }
}

}  // namespace rrdk
