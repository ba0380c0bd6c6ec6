// The client's connections: what is behind rrdk::Client and rrdk::ClientConnection.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "client/call_impl.h"
#include "rpc/auth.h"
#include "rrdk/client.h"
#include "runtime/link.h"
#include "runtime/runtime_impl.h"
#include "xprt/connection.h"

namespace rrdk {

struct Client::Impl {
  Runtime::Impl& runtime;
  const ClientOptions options;
};

// A connection as the client sees it: calls out, replies in. Its end is the link's: calls end, in
// their callbacks, before on_dead().
struct ClientConnection::Impl final : runtime::Link, xprt::Upcalls {
  Impl(Runtime::Impl& runtime_in, const ClientOptions& options_in, runtime::PollCore& core,
       runtime::OpenDevice& device);
  ~Impl() override;

  // Connects, and waits for it. With an error the Impl can be destroyed at once.
  Result<void> open(const std::string& uri);
  // Ends all calls and waits until nothing refers to the connection.
  void shut_down();

  ClientStats stats() const;
  bool alive() const noexcept { return phase_.load(std::memory_order_acquire) == Phase::kUp; }
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
  void on_call_ended(xprt::OutgoingCall& outgoing) override;
  void on_call(xprt::IncomingCall&) override {}  // a client serves nobody

  Runtime::Impl& runtime;
  const ClientOptions options;

 private:
  // What others know of the connection.
  enum class Phase : uint8_t { kOpening, kUp, kFailed, kDead };

  void on_up() override;
  void on_down(Errc code, const std::string& reason) override;
  void on_tick(uint64_t now_ns) override;
  void on_dead() override;

  // The core's thread.
  void start(Call::Impl& call) noexcept;
  void stop(Call::Impl& call) noexcept;
  void end_later(Call::Impl& call, CallStatus status) noexcept;
  void deliver(Call::Impl& call) noexcept;
  void close_all() noexcept;
  CallStatus ended_status(Call::Impl& call) noexcept;
  void wait_unused();

  std::atomic<Phase> phase_ = Phase::kOpening;
  Error error_ = {Errc::kConnectionLost, ""};  // set before kFailed
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
  Call::Impl* in_engine_ = nullptr;  // calls that the engine has
  // An end that comes now came from within submit() or cancel(): it is put off to the next pass, so
  // that callbacks do not nest.
  bool deferring_ = false;
  bool shutting_down_ = false;

  // Items of ours in the core's inbox or among its deferred ones.
  std::atomic<uint32_t> queued_ = 0;
  // Written by the core alone.
  std::atomic<uint64_t> calls_ = 0;
  std::atomic<uint64_t> ended_ok_ = 0;
  std::atomic<uint64_t> ended_error_ = 0;
  std::atomic<uint64_t> timeouts_ = 0;
};

}  // namespace rrdk
