// The contexts that an acceptor has (rrdk/gss.h), and the thread on which they are established.
//
// What a peer without a key can make it do is bounded: a token waits among at most `max_unfinished`
// and is checked by that one thread; a context of which only a part came is among as many; a call
// with a handle that is not known costs a search. A token that was recorded makes a context when it
// is sent again, which is of no use without the key: a context whose caller has not signed a call
// yet is among as many, and takes no place of those whose callers have.
//
// In all of these the peer that has the most gives way first, and among the contexts that are used
// the principal that has the most (shares.h).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/random.h"
#include "fabric/device.h"
#include "gss/kerberos.h"
#include "gss/shares.h"
#include "gss/wire.h"
#include "rpc/headers_datapath.h"
#include "rrdk/gss.h"

namespace rrdk::gss {

// A context at the end that accepted it.
struct AcceptedContext {
  // For a call whose header was verified. Returns false if a call with that number has been taken
  // before. Any thread.
  bool use(uint32_t sequence) noexcept {
    const std::lock_guard lock(mutex);
    return window.use(sequence);
  }

  rpc::Principal principal() const noexcept { return rpc::Principal(context.peer()); }

  Context context;
  Handle handle = {};
  std::mutex mutex;
  SequenceWindow window;              // under the mutex
  std::atomic<uint64_t> used_at = 0;  // in seconds since 1970
  // Under the lock of the Contexts. kUsed: its caller has signed a call, and has the key.
  enum class State : uint8_t { kUnfinished, kUnused, kUsed, kGone };
  State state = State::kUnfinished;
  uint64_t number = 0;  // among those in this state
};

using ContextRef = std::shared_ptr<AcceptedContext>;

// The longest token of a context: a ticket of a directory service carries its user's groups.
constexpr uint32_t kLongestToken = 65'536;

// From whom a token came: peers that share an origin (fabric::ConnectRequest::origin()) are one,
// and each connection is a part of it.
Owner owner_of(const fabric::Identity& origin, uint64_t connection);

// A token that is to be checked, and the answer to it (RFC 2203 section 5.2.3).
struct Establishment {
  Control control = Control::kInit;
  Handle handle = {};
  std::vector<std::byte> token;
  Owner from;
  // Called once, when the fields below are set: on the acceptor's thread; or, if it made way for
  // the token of another peer, on the thread that gave that one.
  void (*done)(Establishment& establishment) = nullptr;
  void* call = nullptr;

  bool made_way = false;  // it was not checked
  uint32_t major = GSS_S_FAILURE;
  uint32_t minor = 0;
  bool known = true;  // false: kContinueInit of a context that does not exist
  Token answer;
  Token checksum;  // of the window's size, if the context is complete
};

class Contexts {
 public:
  Contexts(std::shared_ptr<const Identity> identity, const GssAcceptorOptions& options);
  ~Contexts();
  Contexts(const Contexts&) = delete;
  Contexts& operator=(const Contexts&) = delete;

  // Returns null if there is no complete context of that name, or its time is over.
  ContextRef find(const Handle& handle);
  // A call of that context was verified. Throws std::bad_alloc.
  void note_use(const ContextRef& context);
  // Its caller has ended it. Calls that have come already keep it.
  void destroy(const Handle& handle);
  // Returns false if too many wait already; then `done` is not called. If another peer has more of
  // them, one of that peer's makes way. Any thread.
  bool establish(std::unique_ptr<Establishment> establishment);
  GssAcceptorStats stats() const;
  const GssAcceptorOptions& options() const noexcept { return options_; }

 private:
  // The bytes of a handle are random.
  struct HashOfHandle {
    size_t operator()(const Handle& handle) const noexcept;
  };
  using Table = std::unordered_map<Handle, ContextRef, HashOfHandle>;
  using State = AcceptedContext::State;
  using Places = Shares<AcceptedContext*, Yields::kOldest>;

  void run();
  void establish_now(Establishment& establishment);
  ContextRef begin(const Establishment& establishment);
  void keep(const ContextRef& context, const Owner& from);
  ContextRef take(const Handle& handle);
  ContextRef take_locked(Table::iterator at);
  void forget_ended();

  const std::shared_ptr<const Identity> identity_;
  const GssAcceptorOptions options_;

  mutable std::shared_mutex table_mutex_;
  // Under table_mutex_.
  Table complete_;
  Places used_;                                           // of each principal
  Places unused_;                                         // of each peer
  std::set<std::pair<uint64_t, AcceptedContext*>> ends_;  // when the tickets of all of these end

  // The thread's own.
  base::Random random_;
  Table unfinished_;
  Places unfinished_of_;  // of each peer
  base::LogLimit complaints_;

  std::mutex queue_mutex_;
  std::condition_variable queued_;
  Shares<std::unique_ptr<Establishment>, Yields::kNewest> queue_;  // under queue_mutex_
  bool ends_now_ = false;                                          // under queue_mutex_

  std::atomic<uint64_t> established_ = 0, refused_ = 0, expired_ = 0, evicted_ = 0, destroyed_ = 0;
  std::thread thread_;
};

}  // namespace rrdk::gss
