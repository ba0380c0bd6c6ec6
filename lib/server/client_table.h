// The clients of a server: how many connections each has, and its duplicate request cache. Touched
// when connections come and go; a link then refers to its client.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/sip_hash.h"
#include "fabric/device.h"
#include "mem/loans.h"
#include "server/replay_cache.h"

namespace rrdk::server {

struct Client {
  Client(const fabric::Identity& identity_in, const ReplayOptions& options,
         ReplayCounters& counters, Memory& memory)
      : identity(identity_in),
        replays(options, counters),
        borrower(mem::Borrower::create(memory)) {}

  const fabric::Identity identity;
  ReplayCache replays;
  const mem::BorrowerRef borrower;  // of buffers for calls and replies
  uint32_t connections = 0;         // under the table's lock, as is left_ns
  uint64_t left_ns = 0;             // when it had none any more
};

class ClientTable {
 public:
  // `most_connections` of one client; 0: any number.
  ClientTable(const ReplayOptions& options, uint32_t most_connections, Memory& memory);

  // Whether caches keep replies, and not failures only. Before the first enter().
  void keep_replies(bool keep) noexcept { keep_replies_ = keep; }
  // A connection comes. Null: its client has too many.
  Client* enter(const fabric::Identity& identity, uint64_t now_ns);
  void leave(Client& client, uint64_t now_ns);

  const base::SipKey& key() const noexcept { return key_; }
  ReplayCounters& counters() noexcept { return counters_; }
  const ReplayCounters& counters() const noexcept { return counters_; }

 private:
  Client* find(const fabric::Identity& identity) noexcept;
  bool room_for_another(uint64_t now_ns);
  void erase(const Client& client);

  const ReplayOptions options_;
  const uint32_t most_connections_;
  Memory& memory_;
  const base::SipKey key_;
  bool keep_replies_ = false;
  ReplayCounters counters_;
  std::mutex lock_;
  std::vector<std::unique_ptr<Client>> clients_;
};

}  // namespace rrdk::server
