// A connection as the server sees it: a service::Dispatcher that also knows about clients that come
// and go, and about how large its Receives may become. repeat_datapath.cc handles calls of
// procedures that are not idempotent.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "engine/connection.h"
#include "rrdk/error.h"
#include "rrdk/memory.h"
#include "rrdk/server.h"
#include "runtime/link.h"
#include "runtime/poll_core.h"
#include "server/backward_client.h"
#include "server/client_table.h"
#include "server/link_table.h"
#include "server/silent_links.h"
#include "service/dispatcher.h"
#include "service/plain_calls.h"

namespace rrdk::server {

// One buffer in this many of a class that Receives use is kept for calls and replies.
constexpr uint32_t kShareKeptForCalls = 4;

// Buffers of one class.
struct GrowthShare {
  uint32_t buffer_size = 0;
  uint32_t buffers = 0;
};
// What one connection has been granted, until it ends: Receives that shrink, or continue to grow,
// keep their buffers until the peer uses them.
using GrowthShares = std::vector<GrowthShare>;

// Decides which connections' Receives may grow (Version2ServerOptions::max_receive_size), so that
// together they leave buffers of the larger size classes for calls. What a connection may have is
// reserved when its growth begins: its Receives take it one by one, as the smaller ones are used.
//
// Any thread.
class Growth {
 public:
  // Receives have `bytes` before they grow.
  Growth(const Memory& memory, uint32_t bytes) : memory_(memory), bytes_(bytes) {}

  // Reserves `receives` of that size for the connection that has `shares`. After an error nothing
  // has changed. Errors: kNoMemory.
  Result<void> take(uint32_t bytes, uint32_t receives, GrowthShares& shares);
  void give_back(GrowthShares& shares);

 private:
  const Memory& memory_;
  const uint32_t bytes_;
  std::mutex mutex_;
  GrowthShares taken_;  // one for each class
};

using engine::ServedCall;

constexpr size_t kNowhere = SIZE_MAX;  // in the TimeoutScanner's list

// A connection that may have to wait until another one ends: a request that has no place yet, or a
// link that lacks something else. If nothing is known about it yet, it has neither.
struct Newcomer {
  runtime::OpenDevice* device = nullptr;
  std::shared_ptr<fabric::ConnectRequest> request;
  Client* client = nullptr;  // the client for which it already counts as a connection
  ServerLink* link = nullptr;
  Lack lack = Lack::kConnections;
};

class ServerLink final : public runtime::Link,
                         public engine::Upcalls,
                         public service::Dispatcher,
                         public base::Retired {
 public:
  ServerLink(Server::Impl& server, Client& client, runtime::PollCore& core,
             runtime::OpenDevice& device, Peer peer);
  ~ServerLink() override { gone->fetch_sub(1, std::memory_order_relaxed); }

  using Link::id;  // as ServerConnection's
  using Link::note_ending;
  using Link::peer;
  using ServerConnection::info;

  // Gives back what it has of the server, of its client and of the program. It is never used again,
  // but may still be read.
  void leave();

  // Before accept(). Asks the program whether it wants the connection. Errors: the program's.
  Result<void> open();
  // Before accept(): takes what the connection needs of its client's cache, unless it already has
  // that.
  void reserve_replay_cache();
  // Ends it at the program's request; before it is accepted, refused() is true then.
  void close_for(const std::string& reason);
  Result<void> refused() const;
  // Reports the end to the program, once, if the beginning was reported.
  void tell_closed();

  void on_call(engine::ServedCall& call) override { take(call); }
  void on_call_ended(engine::OutgoingCall& call) override {
    back_->ended(static_cast<Call::Impl&>(call));
  }
  CallStatus seal_call(engine::OutgoingCall& call) override {
    return back_->seal(static_cast<Call::Impl&>(call));
  }
  void on_credit_back() override {
    if (back_ != nullptr)
      back_->note_room();
  }
  void on_chunks_taken() override;
  bool may_grow(uint32_t bytes, uint32_t receives) override;
  void on_access_failed(uint32_t xid) override;
  bool failed_before(uint32_t xid) override;

  // Once accepted: calls may be made to this client.
  void enable_backward_calls();
  Result<std::shared_ptr<BackwardClient>> backward_client() override;
  // Any thread that has a call. The request is carried out on the core, if the link still exists
  // then.
  void request_receive_size(uint32_t bytes) override;
  void raise_receive_size(uint32_t bytes) override;
  rrdk::ReceiveSizes receive_size_report() const override;

  // Takes no further calls; ends when those that are here have been answered.
  void drain();
  // Ends it if it has been idle, or has not taken its replies, for too long. Called by the core's
  // TimeoutScanner.
  void check_timeouts(uint64_t now_ns);

  // Any thread: whether its client has ever made a call.
  bool has_called() const;

  // The number of links of this server that have left its table, and that readers of the table may
  // still have. They may outlive the server.
  const std::shared_ptr<std::atomic<uint32_t>> gone;
  LinkNode in_table = LinkNode(*this);
  size_t in_sweeper = kNowhere;

  // It has been accepted. Read by any core.
  std::atomic<bool> settled = false;
  // Until then: connections that were closed for it, and how often it waited for descriptors.
  uint32_t closed_for_it = 0;
  uint32_t tries = 0;
  SilentLinks::Place silent;          // the table's
  std::optional<Newcomer> successor;  // for which this one has been closed

  Server::Impl& server() noexcept { return server_; }
  // Readers that find the link in the table may only compare these addresses: the objects are
  // destroyed before the link is freed.
  Client& client() const noexcept { return client_; }
  const Origin& origin() const noexcept { return origin_; }
  fabric::Identity origin_of_peer() const noexcept override { return origin_.identity; }

 private:
  void on_up() override;
  void on_down(const Ending& ending) override;
  void on_last_call() override;
  void on_tick(uint64_t now_ns) override;
  uint64_t quiet_above() const override;
  void on_dead() override;

  bool begin_once(ServedCall& call) noexcept override;
  void end_once(ServedCall& call, bool whole) noexcept override;
  void answer_again(ServedCall& call) noexcept;
  const char* prepare_once() noexcept;
  void tell_of_way();
  bool runs_unprotected(ServedCall& call, const char* lacks) noexcept;
  void refuse_unprotected(ServedCall& call, const char* lacks) noexcept;
  void release_waiting() noexcept;
  void log_end(const Ending& ending);

  // Measures how long a condition has held without progress, where a count shows progress.
  struct StallTimer {
    uint64_t seen = 0;
    uint64_t since_ns = 0;

    // Returns for how long `count` has been unchanged while `holds`.
    uint64_t look(bool holds, uint64_t count, uint64_t now_ns) noexcept;
  };

  Server::Impl& server_;
  Client& client_;
  const Origin& origin_;        // the client's
  ReplayLane* lane_ = nullptr;  // null: there is no cache, or no memory in it
  service::PlainCalls plain_calls_{*this, *this};
  // Calls that wait for one that they repeat.
  base::List<ServedCall, &ServedCall::waiting> waiting_;
  std::shared_ptr<BackwardClient> backward_;  // null: no calls are made to the client
  BackwardClient::Impl* back_ = nullptr;      // of that
  runtime::SizeRequests size_requests_;
  GrowthShares grown_;
  StallTimer idle_;
  StallTimer sending_;
  bool opened_ = false;  // the program was told about it, and not yet about its end
  bool seen_to_call_ = false;
};

// An idle connection takes little more: what it has allocated (test/engine/idle_test.cc).
static_assert(sizeof(ServerLink) <= 4224);

// Watches the connections of one core: ends those that are idle, or take no replies, for longer
// than the server's limits allow. Costs nothing per call: it compares what the engine counts. If
// there are many connections, it checks an eighth at a time, so that no pass takes long.
class TimeoutScanner final : public runtime::PeriodicTask {
 public:
  // The core's thread.
  void add(ServerLink& link) {
    RRDK_ON_CORE(link.core());
    RRDK_ASSERT(link.in_sweeper == kNowhere);
    link.in_sweeper = links_.size();
    links_.push_back(&link);
  }
  // The last link takes its place, so the check in progress may miss that link.
  void remove(ServerLink& link) {
    if (link.in_sweeper == kNowhere)
      return;
    RRDK_ASSERT(links_[link.in_sweeper] == &link, link.in_sweeper);
    links_[link.in_sweeper] = links_.back();
    links_[link.in_sweeper]->in_sweeper = link.in_sweeper;
    links_.pop_back();
    link.in_sweeper = kNowhere;
  }
  // Its links, in an order that changes when one leaves.
  size_t count() const noexcept { return links_.size(); }
  ServerLink& at(size_t position) const noexcept { return *links_[position]; }
  void look(uint64_t now_ns) override {
    const uint64_t period = period_ns_.load(std::memory_order_relaxed);
    if (period == 0 || now_ns < next_ns_) {
      last_look_ns_ = now_ns;
      return;
    }
    // A core that sleeps checks once a second: all of its links.
    const bool seldom = now_ns - std::exchange(last_look_ns_, now_ns) > kSeldomNs;
    const size_t part = seldom ? links_.size() : std::max(kAtOnce, links_.size() / 8);
    const size_t end = std::min(links_.size(), next_ + part);
    if (next_ < end)
      links_[next_]->core().budget().begin();
    while (next_ < end) {
      ServerLink& link = *links_[next_++];
      link.check_timeouts(now_ns);
      // Closing one takes time, and so do many: the rest waits for the next look. A core that
      // sleeps has the time to look at all.
      const bool is_closing = link.state() == runtime::LinkState::kClosing;
      if ((is_closing || (!seldom && next_ % kBetweenClocks == 0)) && link.core().budget().spent())
        break;
    }
    if (next_ < links_.size())
      return;
    next_ = 0;
    next_ns_ = now_ns + period;
  }

  // The time between checks of all links; 0: no checks. Any thread.
  void set_period(uint64_t ns) noexcept { period_ns_.store(ns, std::memory_order_relaxed); }

 private:
  static constexpr size_t kAtOnce = 128;
  static constexpr size_t kBetweenClocks = 16;
  static constexpr uint64_t kSeldomNs = 100'000'000;

  std::vector<ServerLink*> links_;
  size_t next_ = 0;  // position of the check in progress
  std::atomic<uint64_t> period_ns_ = 0;
  uint64_t next_ns_ = 0;
  uint64_t last_look_ns_ = 0;
};

}  // namespace rrdk::server
