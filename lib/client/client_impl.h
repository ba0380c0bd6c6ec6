// The implementation of rrdk::Client and rrdk::ClientConnection: the connections that carry its
// calls (calls/calls.h), one after the other (ClientLink).
//
//   link_     is_up()   what it waits for
//   there     no        the fabric: the link is being established or is closing
//   there     yes       nothing: calls run
//   null      no        the helper thread, which finds out where the server is (wanted_);
//                       the timer, for the next attempt to connect; or it is over
//
// Nothing here waits. Threads that wait do so for a phase (lifecycle.cc).
//
// A link that is down gives its calls back (on_call_ended), then ends, and only then is another one
// made: at any time at most one engine knows a call.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/random.h"
#include "calls/calls.h"
#include "calls/plain_calls.h"
#include "engine/connection.h"
#include "mem/loans.h"
#include "rpc/headers_datapath.h"
#include "rrdk/client.h"
#include "runtime/link.h"
#include "runtime/look_again.h"
#include "runtime/poll_core.h"
#include "runtime/runtime_impl.h"
#include "service/dispatcher.h"
#include "service/service_table.h"

namespace rrdk {

// How long to wait before the next attempt to connect: a step that doubles from attempt to attempt
// up to a limit, and a delay drawn from its upper half, so that the many clients of a server that
// went down do not all come back at the same moment.
class Backoff {
 public:
  // Requires 1 <= first_ms <= most_ms.
  Backoff(uint32_t first_ms, uint32_t most_ms) noexcept
      : first_ms_(first_ms), most_ms_(most_ms), step_ms_(first_ms) {}

  // Returns the delay before the next attempt: from half of the step to the whole step. `random`
  // may be any word.
  uint64_t next_ns(uint32_t random) noexcept {
    uint64_t step_ns = uint64_t{step_ms_} * 1'000'000;
    uint64_t half = step_ns / 2;
    step_ms_ = static_cast<uint32_t>(std::min<uint64_t>(uint64_t{step_ms_} * 2, most_ms_));
    return half + ((step_ns - half) >> 16) * (random >> 16) +
           (((step_ns - half) & 0xffff) * (random >> 16) >> 16);
  }
  void reset() noexcept { step_ms_ = first_ms_; }

 private:
  uint32_t first_ms_;
  uint32_t most_ms_;
  uint32_t step_ms_;
};

}  // namespace rrdk

namespace rrdk::client {

// Records for a time which servers do not know version 2: they may be upgraded, and asking them
// again at every connection could go on for ever (draft-04 section 7.2).
//
// Any thread.
class VersionMemory {
 public:
  explicit VersionMemory(uint32_t ms) noexcept : lifetime_ns_(ms * 1'000'000ull) {}

  // Returns true if that was not known.
  bool knows_only_one(const std::string& uri, uint64_t now_ns);
  bool is_known(const std::string& uri, uint64_t now_ns) const;

 private:
  // Addresses come from the application; this limits one that keeps making up new ones.
  static constexpr size_t kMost = 4096;

  const uint64_t lifetime_ns_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, uint64_t> until_ns_;
};

}  // namespace rrdk::client

namespace rrdk {

// Decides whether a peer that sends nothing is still there.
//
// The peer is asked (by a NULL call) when nothing has come for a while. It is given up if nothing
// at all comes for a multiple of that time after the question. If it cannot be asked, because calls
// hold every credit, silence proves nothing: these calls may just be slow. Their own deadlines end
// them, and a connection whose credits are all held by calls that have ended is given up anyway
// (V1-CREDIT-23).
//
// Time is counted in looks, and a look adds little however late it comes. So a time without looks,
// because no thread polled or the process was stopped, does not count against the peer.
class SilenceWatch {
 public:
  enum class Verdict : uint8_t {
    kFine,
    kAsk,   // make a call that the peer will answer at once
    kGone,  // it did not answer
  };

  SilenceWatch(uint32_t silence_ms, uint32_t patience) noexcept
      : silence_ns_(uint64_t{silence_ms} * 1'000'000),
        patience_ns_(patience != 0 && silence_ns_ > UINT64_MAX / patience ? UINT64_MAX
                                                                          : silence_ns_ * patience),
        longest_step_ns_(std::max(silence_ns_ / 8, kTickNs)) {}

  // Called for a new connection.
  void restart() noexcept {
    last_look_ns_ = heard_ = quiet_ns_ = 0;
    asked_ = false;
  }

  // `heard` counts the peer's messages. `can_ask` means that a call would be sent at once, or that
  // the last question is still unanswered.
  Verdict look(uint64_t now_ns, uint64_t heard, bool can_ask) noexcept {
    uint64_t step = last_look_ns_ == 0 ? 0 : std::min(now_ns - last_look_ns_, longest_step_ns_);
    last_look_ns_ = now_ns;
    if (heard != heard_) {
      heard_ = heard;
      quiet_ns_ = 0;
      asked_ = false;
      return Verdict::kFine;
    }
    quiet_ns_ += step;
    if (asked_)
      return quiet_ns_ < patience_ns_ ? Verdict::kFine : Verdict::kGone;
    if (quiet_ns_ < silence_ns_ || !can_ask)
      return Verdict::kFine;
    asked_ = true;
    quiet_ns_ = 0;
    return Verdict::kAsk;
  }

  // A look before this time would show nothing that a look at this time does not.
  uint64_t next_look_ns() const noexcept { return last_look_ns_ + longest_step_ns_; }

 private:
  static constexpr uint64_t kTickNs = 1'000'000;

  uint64_t silence_ns_;
  uint64_t patience_ns_;
  uint64_t longest_step_ns_;
  uint64_t last_look_ns_ = 0;
  uint64_t heard_ = 0;
  uint64_t quiet_ns_ = 0;  // since something came, or since the question
  bool asked_ = false;
};

namespace client {

// What the core counts for a ClientConnection itself.
struct Counters {
#define RRDK_CLIENT_COUNTER(id, enumerator, name, text) base::Count name;
#include "rrdk/counter_table.h"
};

}  // namespace client

class ClientLink;

struct Client::Impl {
  Impl(Runtime::Impl& runtime_in, const ClientOptions& options_in)
      : runtime_use(runtime_in),
        runtime(runtime_in),
        options(options_in),
        interceptor(options_in.interceptor != nullptr ? *options_in.interceptor
                                                      : CallInterceptor{}),
        services(options_in.service_interceptor) {}

  const runtime::RuntimeUse runtime_use;
  Runtime::Impl& runtime;
  const ClientOptions options;
  const CallInterceptor interceptor;  // `options` may refer to what is gone
  client::VersionMemory versions{options.version2.version_memory_ms};
  service::ServiceTable services;  // only read after the first connect()
  std::atomic<bool> connected = false;
  runtime::EngineOptions engine_options;  // once connected, when the services are settled
  base::LogLimit ends_said;               // of all connections: many may end at once

  // For connections that are still to be made; without one, AUTH_NONE. Any thread.
  void set_credential(std::shared_ptr<const rpc::PreparedAuth> credential) {
    std::lock_guard lock(credential_mutex_);
    credential_ = std::move(credential);
  }
  std::shared_ptr<const rpc::PreparedAuth> credential() const {
    std::lock_guard lock(credential_mutex_);
    return credential_;
  }

 private:
  mutable std::mutex credential_mutex_;
  std::shared_ptr<const rpc::PreparedAuth> credential_;
};

struct ClientConnection::Impl final : Caller::Impl,
                                      engine::Upcalls,
                                      gss::Path::Owner,
                                      std::enable_shared_from_this<ClientConnection::Impl> {
  Impl(std::shared_ptr<Client::Impl> client, runtime::PollCore& core, const fabric::Driver& driver,
       const std::string& uri, const ConnectOptions& connect_in);
  ~Impl() override;

  // Begins to connect. `handle` is ours until handle_destroyed().
  void begin(ClientConnection& handle);
  // For Client::connect(). Errors: why it is closed; or kTimeout, and the attempt does not
  // continue.
  Result<void> wait_for_connection();
  void close_start();
  void drain_start(uint32_t timeout_ms);
  uint32_t drain(uint32_t timeout_ms);
  // Called when the handle is destroyed.
  void handle_destroyed();
  ConnectionState state() const noexcept { return state_.load(std::memory_order_acquire); }

  Stats stats() const;
  uint32_t version() const noexcept { return version_.load(std::memory_order_relaxed); }
  ConnectionInfo info() const;
  // version2.cc. Any thread.
  void request_receive_size(uint32_t bytes);
  void raise_receive_size(uint32_t bytes);
  ReceiveSizes receive_sizes() const;
  // version2.cc. Any thread.
  Result<void> send_option(const OptionRequest& request, OptionDone done, void* argument);
  Result<OptionOutcome> send_option_and_wait(const OptionRequest& request);
  bool alive() const noexcept override {
    return is_established() && !draining_.load(std::memory_order_relaxed);
  }
  bool reconnecting() const noexcept {
    return phase_.load(std::memory_order_acquire) == Phase::kReconnecting;
  }
  std::optional<Error> error() const;

  // Called from below, on the core's thread.
  void on_call_ended(engine::OutgoingCall& outgoing) override;
  void on_credit_back() override { note_room(); }
  CallStatus seal_call(engine::OutgoingCall& call) override;
  void on_call(engine::ServedCall& call) override;
  void on_version_refused() override;
  void on_link_up();
  void on_link_down(const Ending& ending);
  void on_link_tick(uint64_t now_ns);
  uint64_t link_quiet_until() const noexcept;
  void on_link_finished();
  void on_link_dead();

  const ClientOptions options;
  const ConnectOptions connect;
  const service::ServiceTable& services;

 private:
  // The state of the connection as other threads see it. kFailed: no link will follow the one that
  // is closing. kOver: that link is gone as well. kClosed: the end has been reported, as the last
  // event.
  enum class Phase : uint8_t { kOpening, kUp, kReconnecting, kFailed, kOver, kClosed };
  // Where to connect to.
  struct Target {
    runtime::OpenDevice* device;
    std::unique_ptr<fabric::Place> place;
  };
  // A search for the target, which may take longer than its connection exists.
  struct Search {
    Impl* asker = nullptr;  // used by the core's thread; null: gone
    Result<std::unique_ptr<fabric::Place>> place;
    Result<runtime::OpenDevice*> device;
    std::atomic<uint64_t> began_ns = 0;  // 0: other names are resolved first
  };
  struct OwnTimer : runtime::Timer {
    Impl* connection = nullptr;
  };
  // How long an answer to what the library asks by itself is waited for.
  static constexpr uint64_t kCourtesyNs = 10'000'000'000;
  struct ContextWaiter final : gss::Initiator::Waiter, runtime::WorkItem {
    explicit ContextWaiter(Impl& its) : connection(its) {}
    void on_renewed() noexcept override;
    Impl& connection;
    std::atomic<bool> queued = false;
  };
  // `look` runs on the core when the timer is due.
  template <void (Impl::*look)()>
  void start_timer(OwnTimer& timer, uint64_t due_ns) {
    timer.connection = this;
    timer.fire = [](runtime::Timer& due) { (static_cast<OwnTimer&>(due).connection->*look)(); };
    core().timers().cancel(timer);
    core().start_timer(timer, due_ns);
  }

  bool is_established() const noexcept {
    return phase_.load(std::memory_order_acquire) == Phase::kUp;
  }
  bool is_over() const noexcept { return phase_.load(std::memory_order_relaxed) >= Phase::kOver; }
  // Runs a task on the core later: the connection is not settled until then.
  template <typename Task>
  void post(Task task) {
    tasks_.fetch_add(1, std::memory_order_relaxed);
    try {
      core().post([this, task = std::move(task)] {
        task();
        tasks_.fetch_sub(1, std::memory_order_release);  // last: the Impl may be destroyed now
      });
    } catch (const std::bad_alloc&) {
      tasks_.fetch_sub(1, std::memory_order_release);
      throw;
    }
  }

  Stats link_stats() const;  // of all its links

  // lifecycle.cc, except end(), which is in connection.cc
  void start();
  void close_now(const Ending& ending);
  void close_link(const Ending& ending);
  void begin_drain(uint64_t due_ns, uint32_t timeout_ms);
  void look_at_drain();
  void settle();
  void tell(ConnectionState state, const Error* reason);
  bool is_settled() const noexcept {
    return phase_.load(std::memory_order_acquire) == Phase::kClosed && unused() &&
           tasks_.load(std::memory_order_acquire) == 0;
  }
  void look_again() { look_again_.start<&Impl::settle>(core(), *this); }
  uint32_t calls_left() const noexcept;
  void detach();
  void end() noexcept;

  // reconnect.cc, except finish(), which is in lifecycle.cc
  engine::ConnectionOptions engine_options(engine::Speaks what) const;
  engine::Speaks speaks() const;
  void attempt();
  Result<void> search();
  uint64_t due_of_attempt(const Search& search) const;
  std::string in_time() const;
  void on_found(Search& search);
  void fail_attempt(const Error& why);
  void start_link(const Target& target);
  void note_loss(const Ending& ending, bool was_up);
  void go_on();
  void try_again_later();
  void on_timer();
  void arm_timer(uint64_t due_ns);
  void give_up();
  uint64_t give_up_at() const noexcept;
  // Whether calls can wait for a link, including the first one.
  bool waits_for_link() const noexcept {
    return will_reconnect() ||
           (phase_.load(std::memory_order_relaxed) == Phase::kOpening && !shutting_down);
  }
  bool will_reconnect() const noexcept {
    return options.reconnect.enabled && opened_ && !given_up_ && !shutting_down;
  }
  void set_ending(const Ending& ending);
  Ending last_ending() const;
  Error last_error() const;
  void finish();

  // reconnect.cc: calls that have no connection
  bool waits_unconnected() const noexcept override {
    return waits_for_link() && !draining_.load(std::memory_order_relaxed);
  }
  void start_without_link(Call::Impl& call) noexcept override;
  bool take_back(Call::Impl& call) noexcept override;
  void stop_keeping(Call::Impl& call) noexcept override;
  CallList& list_of(const Call::Impl& call) noexcept;
  bool carries(const Call::Impl& call) const noexcept;
  void keep_waiting(Call::Impl& call) noexcept;
  void look_at_waiting();
  void look_at(CallList& list, uint64_t now_ns) noexcept;
  void arm_waiting_timer(uint64_t now_ns) noexcept;
  void release_waiting() noexcept;
  void end_waiting(CallStatus status) noexcept;

  // renewal.cc
  struct Renewing;
  bool wait_for_context(Call::Impl& call) noexcept override;
  gss::Renewal renew(Call::Impl& call) noexcept;
  void begin_renewing(const std::shared_ptr<gss::Initiator>& initiator);
  void note_initiator(const std::shared_ptr<gss::Initiator>& initiator);
  void ask_kerberos(Renewing& renewing, void (*ask)(Renewing&));
  void go_on_renewing(Renewing& renewing);
  void on_token_answered(Renewing& renewing);
  void end_renewing(Renewing& renewing, const Result<void>& how);
  void drop_renewing(Renewing& renewing);
  void release_renewed();
  void go_on_with(Call::Impl& call);
  void stop_renewals();

  // context_ends.cc
  struct LastCall;
  gss::Path::Owner* context_owner() noexcept override { return this; }
  void end_context(std::unique_ptr<gss::Session> session) noexcept override;
  bool ask_arrival() noexcept override;
  void prove_arrival() noexcept;
  void end_contexts() noexcept;
  LastCall* free_last_call() noexcept;
  void send_last_call(LastCall& call, std::unique_ptr<gss::Session> session);
  CallStatus seal_last_call(LastCall& call) noexcept;
  void on_last_call_ended(engine::OutgoingCall& outgoing) noexcept;
  bool is_ending_contexts() const noexcept;

  // rfc5666_config.cc: CONF_RDMA, before any call
  void begin_config();
  void on_config_ended();

  // version2.cc
  struct OptionCall;
  void start_option(const std::shared_ptr<OptionCall>& call);
  void on_option_ended(engine::OutgoingCall& outgoing);
  void end_option(OptionCall& call, CallStatus status);

  // lifecycle.cc: keepalive
  void look_for_silence(uint64_t now_ns);
  bool write_probe();
  void on_probe_ended() noexcept;
  bool send_probe();
  std::optional<calls::NullCall> probe_call() const noexcept;

  std::shared_ptr<Client::Impl> client_;  // until end()
  client::VersionMemory& versions_;
  const fabric::Driver& driver_;
  const mem::BorrowerRef borrower_ =
      mem::Borrower::create(runtime.memory);  // of buffers for the server's calls and our replies
  std::atomic<Phase> phase_ = Phase::kOpening;
  std::atomic<ConnectionState> state_ = ConnectionState::kConnecting;  // as last reported
  std::atomic<ClientConnection*> handle_ = nullptr;  // null: gone, and on_state with it
  std::atomic<bool> begun_ = false;                  // on the core
  std::atomic<bool> closing_ = false;                // close_start() was called
  std::atomic<bool> draining_ = false;
  std::atomic<uint32_t> cut_off_ = 0;  // calls that had not ended when a drain did
  std::atomic<uint32_t> tasks_ = 0;    // of post(), that the core has still to run
  std::shared_ptr<Impl> self_;         // once detached
  bool overdue_ = false;               // and its destructor had waited for too long
  mutable std::mutex ending_mutex_;
  Ending ending_;  // of the last link, or attempt; set before kReconnecting and kFailed
  // For the core's thread only.
  bool detached_ = false;           // its handle is gone, and has not waited
  bool wanted_ = false;             // an attempt waits for the result of the search
  std::shared_ptr<Search> search_;  // null: the helper thread has nothing to find out
  bool drains_up_ = false;          // a connection that takes no further calls
  uint64_t drain_due_ns_ = UINT64_MAX;
  uint32_t drain_ms_ = 0;   // as it was given
  const std::string host_;  // of the address; empty: it has none
  const std::optional<std::chrono::seconds> uri_timeout_;
  const uint64_t timeout_ns_;         // for an attempt
  uint64_t attempt_ns_ = 0;           // when it began
  std::atomic<uint64_t> due_ns_ = 0;  // when it will have failed
  NetworkAddress served_by_;          // the server's, of several that it may have
  runtime::LookAgain look_again_;     // at what is ending
  bool opened_ = false;               // it has been up once
  bool given_up_ = false;             // ReconnectOptions::give_up_ms have passed
  CallList again_;                    // waiting for a connection: were sent, keep their XIDs
  CallList unsent_;                   // waiting for a connection: were not sent
  CallList forgotten_;                // waiting for another security context
  ContextWaiter context_waiter_{*this};
  // Where it may be registered.
  std::set<std::weak_ptr<gss::Initiator>, std::owner_less<>> asked_;
  size_t asked_limit_ = 64;
  std::vector<std::shared_ptr<Renewing>> renewals_;            // begun here
  std::mutex ended_mutex_;                                     // any thread: for the next one
  std::vector<std::unique_ptr<gss::Session>> ended_contexts_;  // that the server does not know yet
  std::vector<std::unique_ptr<LastCall>> last_calls_;          // which tell it
  bool ignores_last_calls_ = false;                            // on this link
  OwnTimer waiting_timer_;
  OwnTimer timer_;  // the next attempt, or the end of this one
  Backoff backoff_;
  base::Random random_;
  uint64_t broken_since_ns_ = 0;  // no answer since then; 0: not broken
  std::vector<uint32_t> xids_;    // the last ones of the last engine
  base::LogLimit returns_said_;
  SilenceWatch silence_;
  std::unique_ptr<engine::OutgoingCall> probe_;
  bool probe_unanswered_ = false;
  uint64_t before_probe_ = 0;                         // sent on path_ by then
  std::vector<std::shared_ptr<OptionCall>> options_;  // that the engine has
  std::unique_ptr<engine::OutgoingCall> config_;      // RFC 5666's compatibility mode
  bool configured_ = false;                           // CONF_RDMA has been answered on this link

  // Protects link_, which is set and cleared on the core's thread, for stats().
  mutable std::mutex link_mutex_;
  std::unique_ptr<ClientLink> link_;
  Stats past_{CounterOwner::kClient};  // of links that are gone

  runtime::SizeRequests size_requests_;
  // Written only by the core.
  client::Counters client_counters_;
  std::atomic<uint32_t> version_ = 0;
};

// One connection to the server, out of those that a ClientConnection may have one after the other;
// calls by the server come in here. It is destroyed when the fabric and the engine no longer use
// it.
class ClientLink final : public runtime::Link, public service::Dispatcher {
 public:
  ClientLink(ClientConnection::Impl& connection, runtime::OpenDevice& device)
      : Link(connection.core(), device),
        Dispatcher(*this, for_workers, connection.runtime.memory, connection.services),
        connection_(connection) {}

  using Link::set_always_ticks;
  // Null if its options or its version do not allow plain calls.
  calls::PlainCalls* open_lane() noexcept {
    if (!engine().may_have_plain())
      return nullptr;
    set_lane_user(&plain_calls_);
    return &plain_calls_;
  }

 private:
  void on_up() override { connection_.on_link_up(); }
  void on_down(const Ending& ending) override {
    connection_.on_link_down(ending);
    release_delayed();
  }
  void on_tick(uint64_t now_ns) override { connection_.on_link_tick(now_ns); }
  uint64_t quiet_above() const override { return connection_.link_quiet_until(); }
  void on_finished() override { connection_.on_link_finished(); }
  void on_dead() override { connection_.on_link_dead(); }  // deletes this link

  ClientConnection::Impl& connection_;
  calls::PlainCalls plain_calls_{connection_, *this};
};

}  // namespace rrdk
