// The clients of a server: how many connections each has, and its duplicate request cache. The
// table is used when connections come and go, and when a client makes its first call that must not
// run twice; a link then refers to its client.
//
// From that call on a client has one of ReplayOptions::clients places, until it has been away for
// the time window: only then can its calls no longer be repeated. If places run short, they are
// taken back earlier, in this order:
//
//   - those of clients that cannot come back, such as processes that have exited;
//   - that of the client that has been away for longest, if that is longer than any repetition
//     takes (ReplayOptions::min_window_ms); if an origin has more than its share, it is a client of
//     that origin.
//
// An origin (fabric::ConnectRequest::origin()) has at most a quarter of the places while less than
// half of them are left, so no two origins can keep a third one out.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>

#include "base/list.h"
#include "base/random.h"
#include "fabric/device.h"
#include "mem/loans.h"
#include "rrdk/server.h"
#include "runtime/fair_share.h"
#include "server/replay_cache.h"

namespace rrdk::server {

// One origin may have one in this many of the places when they are scarce.
constexpr uint32_t kOriginShare = 4;

// The peer that asks for a connection.
struct Visitor {
  fabric::Identity identity;
  fabric::Identity group;
  fabric::Identity origin;
  fabric::HasEnded has_ended = nullptr;
};

// Clients that limits do not distinguish, since a host can have any number of addresses of its IPv6
// network. Usually it is one client.
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
};

struct Origin;

struct Client {
  Client(const Visitor& visitor, ClientGroup& group_in, Origin& origin_in,
         const ReplayOptions& options, uint32_t exposed, ReplayCounters& counters)
      : identity(visitor.identity),
        has_ended(visitor.has_ended),
        group(group_in),
        origin(origin_in),
        replays(options, exposed, group_in.room, counters) {}

  const fabric::Identity identity;
  const fabric::HasEnded has_ended;
  ClientGroup& group;
  Origin& origin;
  ReplayCache replays;
  uint32_t silent = 0;  // as counted by SilentLinks, under its lock; so is its origin's
  std::atomic<bool> has_place = false;  // one of ReplayOptions::clients; written under the lock
  // Under the table's lock.
  uint32_t connections = 0;
  bool known = false;            // its identity is known
  uint64_t left_ns = 0;          // when its last connection ended
  base::Links<Client> away;      // its links then: among all clients that are away,
  base::Links<Client> kin_away;  // and among those of its origin
};

struct Origin {
  explicit Origin(const fabric::Identity& identity_in) : identity(identity_in) {}

  const fabric::Identity identity;
  uint32_t clients = 0;
  uint32_t silent = 0;
  uint32_t places = 0;                         // that these clients have
  base::List<Client, &Client::kin_away> away;  // in the order in which they left
};

struct ReplayBounds {
  uint64_t bytes;        // of all caches
  uint64_t reserve = 0;  // the part that nothing else can use
  uint32_t exposed = 0;  // replies that a client of RFC 5666's mode may still have to read
};

class ClientTable {
 public:
  ClientTable(const ReplayOptions& options, const ReplayBounds& bounds, Memory& memory,
              size_t cores);
  ~ClientTable();
  ClientTable(const ClientTable&) = delete;
  ClientTable& operator=(const ClientTable&) = delete;

  // Whether caches keep replies, and not only failures. Must be called before the first enter().
  void keep_replies(bool keep) noexcept { keep_replies_ = keep; }
  bool keeps_replies() const noexcept { return keep_replies_; }
  // Called when a connection comes, or asks whether it may. Returns null if its client, or that
  // client's group, already has `most`.
  Client* enter(const Visitor& visitor, uint32_t most, uint64_t now_ns);
  void leave(Client& client, uint64_t now_ns);
  // Forgets clients that have been away for too long. This also happens when connections come and
  // go.
  void tidy(uint64_t now_ns);

  // Called when a client that has no place makes a call that must not run twice.
  struct Place {
    const char* lacks = nullptr;  // why it has none; null: it has one
    bool made_way = false;        // another client was forgotten early for it
  };
  Place take_place(Client& client, uint64_t now_ns);
  uint32_t places_taken() const noexcept { return taken_.load(std::memory_order_relaxed); }

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

  bool has_place_for(const Origin& origin) const noexcept;
  bool exceeds_share(const Origin& origin) const noexcept;
  void forget_ended();
  Client* longest_away(const Origin& newcomer, uint64_t now_ns) const noexcept;
  void occupy(Client& client) noexcept;
  void forget(uint64_t now_ns);
  void come_back(Client& client) noexcept;
  void erase(Client& client);
  void free_forgotten(uint32_t& calls);

  const ReplayOptions options_;
  const uint32_t exposed_;
  Memory& memory_;
  const size_t cores_;
  const FingerprintKeys keys_;
  bool keep_replies_ = false;
  ReplayCounters counters_;
  ReplayRoom room_;
  std::mutex lock_;
  uint64_t strangers_ = 0;            // unknown clients so far
  std::atomic<uint32_t> taken_ = 0;   // places; written under the lock
  uint64_t next_look_ns_ = 0;         // for clients that have ended
  Client* next_looked_at_ = nullptr;  // in away_; null: the first
  ByIdentity<std::unique_ptr<ClientGroup>> groups_;
  ByIdentity<std::unique_ptr<Origin>> origins_;
  ByIdentity<std::unique_ptr<Client>> clients_;
  using Away = base::List<Client, &Client::away>;
  Away away_;       // without connections, in the order in which they left
  Away forgotten_;  // their memory has yet to be freed
};

}  // namespace rrdk::server
