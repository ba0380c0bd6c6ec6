// The clients of a server: how many connections each has, and its duplicate request cache. Touched
// when connections come and go; a link then refers to its client.
//
// What a client without connections may yet repeat is kept for the time window. It is not dropped
// earlier to make room for a new client: calls of a client for which there is no room are refused.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>

#include "base/random.h"
#include "fabric/device.h"
#include "mem/loans.h"
#include "rrdk/server.h"
#include "runtime/fair_share.h"
#include "server/replay_cache.h"

namespace rrdk::server {

// One group may have one in so many of the clients that are remembered.
constexpr uint32_t kGroupShare = 4;

// Clients that can not be told apart where limits are concerned: a host has as many addresses as it
// likes of its IPv6 network. Mostly it is one client.
struct ClientGroup {
  ClientGroup(const fabric::Identity& identity_in, ReplayRoom& whole, Memory& memory, size_t cores)
      : identity(identity_in),
        room(&whole),
        borrower(mem::Borrower::create(memory)),
        by_core(std::make_unique<runtime::CoreClient[]>(cores)) {}

  const fabric::Identity identity;
  ReplayRoom room;
  const mem::BorrowerRef borrower;  // of buffers for calls and replies
  const std::unique_ptr<runtime::CoreClient[]> by_core;
  uint32_t clients = 0;
  uint32_t connections = 0;
  uint32_t remembered = 0;
};

struct Client {
  Client(const fabric::Identity& identity_in, ClientGroup& group_in, const ReplayOptions& options,
         uint32_t exposed, ReplayCounters& counters)
      : identity(identity_in),
        group(group_in),
        replays(options, exposed, group_in.room, counters) {}

  const fabric::Identity identity;
  ClientGroup& group;
  ReplayCache replays;
  // Under the table's lock.
  uint32_t connections = 0;
  bool known = false;                 // who it is
  bool remembered = false;            // one of ReplayOptions::clients
  uint64_t left_ns = 0;               // when it had no connection any more
  std::list<Client*>::iterator away;  // then
};

struct ReplayBounds {
  uint64_t bytes;        // of all caches
  uint64_t reserve = 0;  // of that, never anybody else's
  uint32_t exposed = 0;  // replies that a client of RFC 5666's mode may have yet to read
};

class ClientTable {
 public:
  ClientTable(const ReplayOptions& options, const ReplayBounds& bounds, Memory& memory,
              size_t cores);

  // Whether caches keep replies, and not failures only. Before the first enter().
  void keep_replies(bool keep) noexcept { keep_replies_ = keep; }
  bool keeps_replies() const noexcept { return keep_replies_; }
  // A connection comes. Null: its client, or that client's group, has `most` already.
  Client* enter(const fabric::Identity& identity, const fabric::Identity& group, uint32_t most,
                uint64_t now_ns);
  void leave(Client& client, uint64_t now_ns);
  // Forgets clients that have been away for too long. Comings and goings do so anyway.
  void tidy(uint64_t now_ns);

  // What the calls of a connection fill; or why there is nothing to protect them with.
  struct Lane {
    ReplayLane* lane = nullptr;
    const char* lacks = nullptr;
  };
  // `late`: it came before.
  Lane lane_for(Client& client, uint64_t now_ns, bool late);

  const FingerprintKeys& keys() const noexcept { return keys_; }
  ReplayCounters& counters() noexcept { return counters_; }
  const ReplayCounters& counters() const noexcept { return counters_; }

 private:
  struct Hash {
    base::SipKey key;
    size_t operator()(const fabric::Identity& identity) const noexcept {
      return static_cast<size_t>(base::sip_hash(key, std::as_bytes(std::span(identity.words))));
    }
  };
  template <typename T>
  using ByIdentity = std::unordered_map<fabric::Identity, T, Hash>;

  const char* remember(Client& client, uint64_t now_ns);
  void forget(uint64_t now_ns);
  void erase(Client& client);

  const ReplayOptions options_;
  const uint32_t exposed_;
  Memory& memory_;
  const size_t cores_;
  const FingerprintKeys keys_;
  bool keep_replies_ = false;
  ReplayCounters counters_;
  ReplayRoom room_;
  std::mutex lock_;
  uint64_t strangers_ = 0;  // clients so far of which nothing is known
  uint32_t remembered_ = 0;
  ByIdentity<std::unique_ptr<ClientGroup>> groups_;
  ByIdentity<std::unique_ptr<Client>> clients_;
  std::list<Client*> away_;  // without connections, in the order in which they left
};

}  // namespace rrdk::server
