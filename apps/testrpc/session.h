// What a client process owns: memory, an embedded runtime, and connections to its servers.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "options.h"
#include "rrdk/client.h"
#include "rrdk/error.h"
#include "rrdk/memory.h"
#include "rrdk/runtime.h"
#include "telling.h"

namespace rrdk::testrpc {

// Starts EAL with the options' arguments, which override the library's quiet defaults.
Result<void> start_eal(const Options& options);
// Returns whether EAL's arguments say which cores to use.
bool names_cores(const Options& options);

// Returns the number of a server's calls that may be in flight to one client.
uint32_t backward_credits(const Options& options);
// Takes the memory budget, with size classes for calls with at most `max_size` bytes of data.
Result<std::unique_ptr<Memory>> take_memory(const Options& options, uint32_t max_size);

// Returns the bytes of the largest call or reply that carries `max_size` bytes of data.
uint64_t largest_message(uint32_t max_size);

// Counts of RFC 5666's compatibility mode.
struct Compatibility {
  uint64_t configured = 0;    // connections
  uint64_t padded_calls = 0;  // as RDMA_MSGP
  uint64_t read_replies = 0;
  uint64_t dones = 0;
};

// What connections have survived.
struct Survival {
  uint64_t reconnects = 0;
  uint64_t retransmissions = 0;
  uint64_t keepalives = 0;
  uint64_t fallbacks = 0;      // to version 1; since the session began
  uint32_t version = 0;        // in use on the last connection
  Compatibility rfc5666 = {};  // with --compat rfc5666; since the session began

  Survival since(const Survival& earlier) const {
    return {reconnects - earlier.reconnects,
            retransmissions - earlier.retransmissions,
            keepalives - earlier.keepalives,
            fallbacks,
            version,
            rfc5666};
  }
};

struct FirstCall;

class Session {
 public:
  // The connections are distributed among the targets in turn.
  static Result<std::unique_ptr<Session>> open(const Options& options,
                                               std::span<const std::string> targets,
                                               IdlePolicy idle, uint32_t max_size);
  ~Session();

  Memory& memory() { return *memory_; }
  Runtime& runtime() { return *runtime_; }
  IdlePolicy idle() const { return idle_; }
  // The timeout of calls that do not set one.
  uint32_t call_timeout_ms() const { return call_timeout_ms_; }
  bool retransmits() const { return retransmits_; }
  // The time that making the connections took, with a NULL call on each.
  double connect_seconds() const { return connect_seconds_; }
  std::span<const std::unique_ptr<ClientConnection>> connections() const { return connections_; }

  Survival survival() const;  // of all connections since they were made

  // Closes the connections. Returns whether every buffer is back in its pool.
  bool close();

 private:
  Session() = default;
  Result<void> connect(std::span<const std::string> targets, uint32_t count,
                       const Binding& program);

  IdlePolicy idle_ = IdlePolicy::kYield;
  uint32_t call_timeout_ms_ = 0;
  bool retransmits_ = false;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Client> client_;
  std::vector<std::unique_ptr<FirstCall>> first_calls_;  // of the connections; outlive them
  std::vector<std::unique_ptr<ClientConnection>> connections_;
  std::optional<Telling> telling_;  // of the connections
  double connect_seconds_ = 0;
};

}  // namespace rrdk::testrpc
