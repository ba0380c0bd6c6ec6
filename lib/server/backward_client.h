// The implementation of rrdk::BackwardClient: the calls that a server makes to one client, on the
// connection that this client made.
//
// It outlives its connection for as long as a program holds it; calls then end at once. It does not
// refer to a Server.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "calls/calls.h"
#include "rrdk/server.h"

namespace rrdk {

namespace server {

// The backward clients of one server. It is shared with them, since they may outlive the server.
class BackwardClients {
 public:
  void add(const BackwardClient::Impl& one);
  void remove(const BackwardClient::Impl& one);
  uint32_t count() const;
  void add_to(Stats& sum) const;  // including past ones

  // Those that their program has released, while items of theirs are still on their core.
  std::atomic<uint32_t> leaving = 0;

 private:
  mutable std::mutex mutex_;
  std::vector<const BackwardClient::Impl*> here_;
  Stats past_{CounterOwner::kServer};
};

}  // namespace server

struct BackwardClient::Impl final : Caller::Impl {
  Impl(Runtime::Impl& runtime_in, runtime::Link& link, const calls::Defaults& defaults_in,
       std::shared_ptr<server::BackwardClients> all);
  static std::shared_ptr<BackwardClient> make(std::shared_ptr<Impl> impl);

  bool alive() const noexcept override { return alive_.load(std::memory_order_acquire); }

  bool takes_chunks() const noexcept { return takes_chunks_.load(std::memory_order_acquire); }

  // The core's thread.
  //
  // Calls end with kShutdown from now on, including those in flight.
  void shut() noexcept;
  void take_chunks() noexcept { takes_chunks_.store(true, std::memory_order_release); }
  void on_down(Errc code) noexcept;  // the link is closing
  void on_dead() noexcept { forget(); }

  // Called when its BackwardClient is destroyed. Any thread.
  static void handle_destroyed(std::shared_ptr<Impl> impl) noexcept;

 private:
  std::string target() const override { return "clients"; }

  struct DestroyRequest : runtime::WorkItem {
    std::shared_ptr<Impl> client;  // itself, until it runs
  };
  void end() noexcept;

  const std::shared_ptr<server::BackwardClients> all_;
  std::atomic<bool> alive_ = true;
  std::atomic<bool> takes_chunks_ = false;
  DestroyRequest destroy_request_;
};

}  // namespace rrdk
