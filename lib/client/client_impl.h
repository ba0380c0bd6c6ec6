// The client's connections: what is behind rrdk::Client and rrdk::ClientConnection.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

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
  void set_credential(const AuthSys& identity);
  const rpc::PreparedAuth* credential() const noexcept {
    return credential_.load(std::memory_order_acquire);
  }

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
  std::atomic<const rpc::PreparedAuth*> credential_ = nullptr;
  std::mutex credentials_mutex_;
  std::vector<std::unique_ptr<rpc::PreparedAuth>>
      credentials_;  // past ones too: calls may read them

  // Of the core's thread.
  Call::Impl* in_engine_ = nullptr;  // calls that the engine has
  bool submitting_ = false;          // an end that comes now came from within submit()
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
