// The calls that come in on one connection, and one call while a handler has it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/handles.h"
#include "base/list.h"
#include "engine/connection.h"
#include "engine/served_call.h"
#include "fabric/device.h"
#include "gss/wire.h"
#include "rpc/headers_datapath.h"
#include "rrdk/memory.h"
#include "rrdk/runtime.h"
#include "rrdk/service.h"
#include "runtime/link.h"
#include "runtime/timers.h"
#include "runtime/work.h"
#include "service/service_table.h"

namespace rrdk::gss {
class Contexts;
}

namespace rrdk::service {

using engine::ServedCall;

class Dispatcher;

// What a Dispatcher records about a call that must run only once; each kind has its own type.
struct OnceRecord {};
// That of an intercepted call which may run twice: so send() has one test for both.
inline constinit OnceRecord intercepted_only;

// How a call ends.
enum class Answer : uint8_t { kResults, kReject, kMismatch, kDeny, kTransportError, kDrop };

// The handles that programs in C have for connections (lib/c): open as long as the object lives.
inline constinit base::Handles<Dispatcher> connection_handles;

// Connects a ServerCall, which a program has, with the record behind it.
struct CallAccess {
  static ServerCall handle(ServedCall& call) noexcept { return ServerCall(&call); }
  static ServedCall& of(const ServerCall& call) noexcept { return *call.call_; }
  // Takes the call without ending it: the caller must answer it.
  static ServedCall& take(ServerCall&& call) noexcept {
    return *std::exchange(call.call_, nullptr);
  }
};

// Enters the handler of the call, unless its service has been removed.
void enter_handler(ServedCall& call) noexcept;
// Starts the reply: the header of a success, which results follow.
void open_reply(ServedCall& call) noexcept;
// Adds the times of a sampled call that has been answered.
void note_times(ProcedureCounters& counters, const engine::StageRecord& stages, bool late) noexcept;
// Any thread: the handler's answer is complete; the core does the rest.
void end(ServedCall& call, Answer how) noexcept;

// Called when a ServerCall was ended in a child of fork().
void note_foreign_end() noexcept;
// Called when `function` of ServerCall was called on one that has already ended or was moved from.
void note_second_end(const char* function) noexcept;

// How many of the calls given to workers have entered their handlers. Counted only if something
// must know when no further handler will be entered.
struct WorkerEntries {
  uint32_t given = 0;  // by the core
  std::atomic<bool> awaited = false;
  alignas(64) std::atomic<uint32_t> entered = 0;  // by the workers
};

struct DispatchCounters {
#define RRDK_DISPATCHER_COUNTER(id, enumerator, name, text) base::Count name;
#include "rrdk/counter_table.h"
  std::array<base::SharedCount, kMistakes> mistakes;
};

// The calls that come in on one connection: finds the handler of each, and returns its answer.
//
// dispatch_datapath.cc takes a call to its handler, and reply_datapath.cc takes the answer to the
// engine. Both ends of a connection can serve. Each derives a class from this and adds what is
// special to it: a server must detect calls that it receives twice.
//
// All functions run on the core's thread unless stated otherwise.
class Dispatcher : public ServerConnection {
 public:
  // All arguments must outlive it, and `link` must outlive the calls. `for_workers` is the link's.
  // `gss`: null if calls by RPCSEC_GSS are not for the library.
  Dispatcher(runtime::Link& link, runtime::WorkerQueue& for_workers, Memory& memory,
             const ServiceTable& services, gss::Contexts* gss = nullptr) noexcept
      : link_(link),
        for_workers_(for_workers),
        memory_(memory),
        services_(services),
        gss_(gss),
        slot_(connection_handles.take(*this)) {
    if (slot_ != nullptr)
      slot_->open();
  }

  runtime::Link& link() const noexcept { return link_; }
  // 0: there are too many connections.
  uint64_t handle() const noexcept { return slot_ != nullptr ? slot_->handle() : 0; }
  Memory& memory() const noexcept { return memory_; }
  // Any thread.
  uint64_t rejected() const noexcept { return counts_.calls_rejected; }
  void add_to(Stats& sum) const;  // including what the link has counted

  // Called when the engine has a whole call.
  void take(ServedCall& call) noexcept;
  // Called when the call's answer is complete.
  void finish(ServedCall& call) noexcept;
  // Returns a client for calls back to the caller. Any thread that has a call. Errors:
  // kUnsupported, kConnectionLost.
  virtual Result<std::shared_ptr<BackwardClient>> backward_client();
  // fabric::ConnectRequest::origin(), where it was kept.
  virtual fabric::Identity origin_of_peer() const noexcept { return {}; }
  // As described at ServerCall; any thread that has a call.
  virtual void request_receive_size(uint32_t /*bytes*/) {}
  virtual void raise_receive_size(uint32_t /*bytes*/) {}
  virtual ReceiveSizes receive_size_report() const { return {}; }
  // Notes a mistake of the call's handler; any thread that has the call.
  void note(Mistake mistake, const ServedCall& call, uint32_t item = 0) noexcept;
  // Called when the link is closing: answers are no longer delayed.
  void release_delayed() noexcept;
  // Called by a worker at the beginning of a call that is counted.
  void note_entered() noexcept;
  // Called in the burst of plain calls when an intercepted call has been answered.
  void end_intercepted_plain(ServedCall& call) noexcept;

 protected:
  virtual ~Dispatcher() { close_handle(); }

  // Programs can no longer find it.
  void close_handle() noexcept { connection_handles.give_back(std::exchange(slot_, nullptr)); }

  void refuse(ServedCall& call, AcceptStat status) noexcept;
  void drop(ServedCall& call) noexcept;
  void send(ServedCall& call) noexcept;
  void count(const ServedCall& call) noexcept;
  void note_decoded(ServedCall& call) noexcept;
  void restart_reply(ServedCall& call) noexcept;
  bool has_good_results(const ServedCall& call) noexcept;
  void end_watched(ServedCall& call, bool whole) noexcept;
  void tell_interceptor(ServedCall& call, bool whole) noexcept;
  // Starts counting calls that are given to workers. Must be called before there are any.
  void count_entries() { entries_ = std::make_unique<WorkerEntries>(); }
  // Returns true if no handler of a call that has come is still to be entered. Otherwise the link
  // is marked dirty when that becomes true.
  bool all_entered() noexcept;

 private:
  friend class PlainCalls;
  // For a procedure that is not idempotent: whether to run the call. False: it has been answered,
  // or will be. If it sets call.replay, end_once() reports the end.
  virtual bool begin_once(ServedCall&) noexcept { return true; }
  // Called when the answer is about to be sent, if it is `whole`; takes call.replay back.
  virtual void end_once(ServedCall&, bool /*whole*/) noexcept {}

  // secured.cc
  bool open_secured(ServedCall& call) noexcept;
  bool open_with_memory(ServedCall& call);
  bool verify(ServedCall& call, const gss::CredentialBody& credential);
  bool open_body(ServedCall& call);
  bool seal(ServedCall& call);
  bool end_secured(ServedCall& call, bool whole) noexcept;
  void deny(ServedCall& call, Refusal why, AuthStat said) noexcept;
  void destroy(ServedCall& call) noexcept;
  void establish(ServedCall& call, const gss::CredentialBody& credential);
  void end_establishment(ServedCall& call) noexcept;

  void tell_entered() noexcept;
  bool admit(ServedCall& call) noexcept;
  bool find_service(ServedCall& call) noexcept;
  void dispatch(ServedCall& call) noexcept;
  void refuse_chunks(ServedCall& call) noexcept;
  void refuse_call(ServedCall& call) noexcept;
  void delay(ServedCall& call) noexcept;

  runtime::Link& link_;
  runtime::WorkerQueue& for_workers_;
  Memory& memory_;
  const ServiceTable& services_;
  gss::Contexts* const gss_;
  uint32_t establishments_ = 0;  // tokens that the acceptor's thread has
  base::Handles<Dispatcher>::Slot* slot_;
  base::List<ServedCall, &ServedCall::waiting> delayed_;
  // Of the last call that had a service: valid as long as the table's edition is unchanged.
  uint64_t last_edition_ = UINT64_MAX;
  const ServiceEntry* last_service_ = nullptr;
  ProcedureCounters* last_counters_ = nullptr;
  std::unique_ptr<WorkerEntries> entries_;  // null: not counted
  DispatchCounters counts_;
};

}  // namespace rrdk::service
