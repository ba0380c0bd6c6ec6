// What is behind rrdk::Client and rrdk::ClientConnection: calls, and the connections that carry
// them, one after the other (client_link.h).
//
//   link_     up_       what it waits for
//   there     null      the fabric: the link is being established or is on its way down
//   there     the same  nothing: calls run
//   null      null      the timer, for the next attempt to connect; or it is over
//
// A link that is down gives its calls back (on_call_ended), then dies, and only then another one is
// made: at any time at most one engine knows a call.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/random.h"
#include "client/backoff.h"
#include "client/call_impl.h"
#include "client/silence.h"
#include "client/version_memory.h"
#include "rpc/auth.h"
#include "rrdk/client.h"
#include "runtime/link.h"
#include "runtime/poll_core.h"
#include "runtime/runtime_impl.h"
#include "xprt/connection.h"

namespace rrdk {

class ClientLink;

struct Client::Impl {
  Runtime::Impl& runtime;
  const ClientOptions options;
  client::VersionMemory versions{options.version_memory_s};
};

struct ClientConnection::Impl final : xprt::Upcalls {
  Impl(Client::Impl& client, runtime::PollCore& core, runtime::OpenDevice& device,
       const std::string& uri);
  ~Impl();

  // Connects, and waits for it. With an error the Impl can be destroyed at once.
  Result<void> open();
  // Ends all calls and waits until nothing refers to the connection.
  void shut_down();

  runtime::PollCore& core() const noexcept { return core_; }
  runtime::OpenDevice& device() const noexcept { return device_; }
  const std::string& peer() const noexcept { return uri_; }
  ClientStats stats() const;
  bool alive() const noexcept { return phase_.load(std::memory_order_acquire) == Phase::kUp; }
  bool reconnecting() const noexcept {
    return phase_.load(std::memory_order_acquire) == Phase::kReconnecting;
  }
  std::optional<Error> error() const;

  void set_credential(const rpc::PreparedAuth& prepared);
  uint64_t credential_version() const noexcept {
    return credential_version_.load(std::memory_order_acquire);
  }
  void take_credential(Call::Impl& call);  // the present one
  // What check() says of the binding, asked at its first use.
  bool accepts(const Binding& binding);
  // The program's mistakes; each is logged once per connection.
  enum Mistake : uint32_t {
    kBeginInFlight = 1,
    kSubmitInFlight = 2,
    kNotBegun = 4,
    kWaitInPass = 8,
  };
  void complain(Mistake mistake, const char* what);
  // On the core, in a pass: owns a call whose Call is gone until nobody comes to it any more.
  void keep_until_ended(std::unique_ptr<Call::Impl> call) noexcept;

  // Any thread.
  void submit(Call::Impl& call) noexcept;
  void cancel(Call::Impl& call) noexcept;

  // From below, on the core's thread.
  void on_call_ended(xprt::OutgoingCall& outgoing) override;
  void on_call(xprt::IncomingCall&) override {}  // a client serves nobody
  void on_version_refused() override;
  void on_link_up();
  void on_link_down(Errc code, const std::string& reason);
  void on_link_tick(uint64_t now_ns);
  void on_link_finished();
  void on_link_dead();

  Runtime::Impl& runtime;
  const ClientOptions options;

 private:
  // What others know of the connection.
  enum class Phase : uint8_t { kOpening, kUp, kReconnecting, kFailed, kDead };
  struct OwnTimer : runtime::Timer {
    Impl* connection = nullptr;
  };

  // The core's thread. connection_datapath.cc
  void start(Call::Impl& call) noexcept;
  void to_engine(Call::Impl& call) noexcept;
  void stop(Call::Impl& call) noexcept;
  void end_later(Call::Impl& call, CallStatus status) noexcept;
  void deliver(Call::Impl& call) noexcept;
  CallStatus ended_status(Call::Impl& call) noexcept;

  // reconnect.cc
  xprt::ConnectionOptions engine_options() const;
  xprt::Speaks speaks() const;
  void start_link();
  void try_again_later();
  void on_timer();
  void arm_timer(uint64_t due_ns);
  void give_up();
  uint64_t give_up_at() const noexcept;
  bool will_reconnect() const noexcept {
    return options.reconnect.enabled && opened_ && !given_up_ && !shutting_down_;
  }
  void set_error(Errc code, const std::string& reason);
  void finish() noexcept;

  // waiting.cc
  bool carries(const Call::Impl& call) const noexcept;
  void keep_waiting(Call::Impl& call) noexcept;
  void look_at_waiting(uint64_t now_ns) noexcept;
  void look_at(CallList& list, uint64_t now_ns) noexcept;
  void arm_waiting_timer(uint64_t now_ns) noexcept;
  void release_waiting() noexcept;
  void end_waiting(CallStatus status) noexcept;

  // keepalive.cc
  void look_for_silence(uint64_t now_ns);
  bool send_probe();
  const Binding* probe_binding() const noexcept;

  void close_all() noexcept;
  void wait_unused();

  client::VersionMemory& versions_;
  runtime::PollCore& core_;
  runtime::OpenDevice& device_;
  const std::string uri_;
  std::atomic<Phase> phase_ = Phase::kOpening;
  mutable std::mutex error_mutex_;
  Error error_ = {Errc::kConnectionLost, ""};  // set before kReconnecting and kFailed
  // A call takes its share of the credential when the version has changed, and so the past ones go.
  std::atomic<uint64_t> credential_version_ = 0;
  std::mutex credential_mutex_;
  std::shared_ptr<const rpc::PreparedAuth> credential_;
  // Bindings in use, a list that only grows: readers need no lock.
  struct Checked {
    Checked(const Binding* binding_in, bool ok_in, std::unique_ptr<Checked> following_in)
        : binding(binding_in), ok(ok_in), following(std::move(following_in)) {}
    const Binding* const binding;
    const bool ok;
    const std::unique_ptr<Checked> following;
  };
  const Checked* find(const Binding& binding) const noexcept;
  std::atomic<const Checked*> checked_ = nullptr;
  std::mutex checked_mutex_;
  std::unique_ptr<Checked> first_checked_;
  std::atomic<uint32_t> complained_ = 0;

  // Of the core's thread.
  runtime::Link* up_ = nullptr;  // the link, while calls can be made on it
  CallList in_engine_;           // calls that the engine has
  // An end that comes now came from within submit() or cancel(): it is put off to the next pass, so
  // that callbacks do not nest.
  bool deferring_ = false;
  bool shutting_down_ = false;
  bool opened_ = false;    // it was up once
  bool given_up_ = false;  // ReconnectOptions::give_up_ms have passed
  CallList again_;         // waiting for a connection: were sent, keep their XIDs
  CallList unsent_;        // waiting for a connection: were not
  OwnTimer waiting_timer_;
  OwnTimer timer_;  // the next attempt, or the end of this one
  Backoff backoff_;
  base::Random random_;
  uint64_t broken_since_ns_ = 0;  // without an answer since; 0: not broken
  std::vector<uint32_t> xids_;    // where the last engine's ended
  base::LogLimit ends_said_;
  base::LogLimit returns_said_;
  SilenceWatch silence_;
  std::unique_ptr<xprt::OutgoingCall> probe_;
  bool probe_unanswered_ = false;

  // link_ comes and goes on the core's thread, as stats() sees it.
  mutable std::mutex link_mutex_;
  std::unique_ptr<ClientLink> link_;
  xprt::Counters past_;  // of links that are gone

  // Items of ours in the core's inbox or among its deferred ones.
  std::atomic<uint32_t> queued_ = 0;
  // Written by the core alone.
  std::atomic<uint64_t> calls_ = 0;
  std::atomic<uint64_t> ended_ok_ = 0;
  std::atomic<uint64_t> ended_error_ = 0;
  std::atomic<uint64_t> timeouts_ = 0;
  std::atomic<uint64_t> reconnects_ = 0;
  std::atomic<uint64_t> failed_attempts_ = 0;
  std::atomic<uint64_t> carried_over_ = 0;
  std::atomic<uint64_t> keepalives_ = 0;
  std::atomic<uint64_t> keepalive_ends_ = 0;
  std::atomic<uint64_t> fallbacks_ = 0;
  std::atomic<uint32_t> version_ = 0;
};

namespace client {

// A counter that one thread writes.
inline void count(std::atomic<uint64_t>& counter) {
  counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

}  // namespace client

}  // namespace rrdk
