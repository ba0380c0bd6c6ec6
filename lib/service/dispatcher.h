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
#include "rpc/headers_datapath.h"
#include "rrdk/memory.h"
#include "rrdk/runtime.h"
#include "rrdk/service.h"
#include "runtime/link.h"
#include "runtime/timers.h"
#include "runtime/work.h"
#include "service/service_table.h"

namespace rrdk::service {

using engine::ServedCall;

class Dispatcher;

// What a Dispatcher knows of a call that is to run once; each kind has its own.
struct OnceRecord {};

// How a call is to end.
enum class Answer : uint8_t { kResults, kReject, kMismatch, kDeny, kTransportError, kDrop };

// What programs in C have of a connection (lib/c): open as long as the object lives.
inline constinit base::Handles<Dispatcher> connection_handles;

// Between a ServerCall, which a program has, and the record behind it.
struct CallAccess {
  static ServerCall handle(ServedCall& call) noexcept { return ServerCall(&call); }
  static ServedCall& of(const ServerCall& call) noexcept { return *call.call_; }
  // Takes the call without ending it: the caller owes an answer from now on.
  static ServedCall& take(ServerCall&& call) noexcept {
    return *std::exchange(call.call_, nullptr);
  }
};

// Enters the handler of the call, unless its service has been removed.
void enter_handler(ServedCall& call) noexcept;
// Starts the reply: header of a success, results to follow.
void open_reply(ServedCall& call) noexcept;
// Of a sampled call that has been answered.
void note_times(ProcedureCounters& counters, const engine::StageRecord& stages, bool late) noexcept;
// Any thread: the handler's answer is complete; the core does the rest.
void end(ServedCall& call, Answer how) noexcept;

// A ServerCall was ended in a child of fork().
void note_foreign_end() noexcept;
// `function` of ServerCall was called on one that has been ended already, or was moved from.
void note_second_end(const char* function) noexcept;

// Of the calls that were given to workers, how many handlers the workers have entered. Counted only
// where somebody wants to know when no further handler will be entered.
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

// The calls that come in on one connection: which handler each is for, and the way of its answer.
//
// dispatch_datapath.cc has a call's way to its handler, reply_datapath.cc that of the answer to the
// engine. Both ends of a connection can serve; who does derives from this, and adds what only it
// knows: a server that calls may come twice.
//
// Everything on the core's thread, unless it says otherwise.
class Dispatcher : public ServerConnection {
 public:
  // All of them outlive it, and `link` the calls; `for_workers` is the link's.
  Dispatcher(runtime::Link& link, runtime::WorkerQueue& for_workers, Memory& memory,
             const ServiceTable& services) noexcept
      : link_(link),
        for_workers_(for_workers),
        memory_(memory),
        services_(services),
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
  void add_to(Stats& sum) const;  // with what the link has counted

  // The engine has a whole call.
  void take(ServedCall& call) noexcept;
  // Its answer is there.
  void finish(ServedCall& call) noexcept;
  // The way back to who calls; any thread that has a call. Errors: kUnsupported, kConnectionLost.
  virtual Result<std::shared_ptr<BackwardClient>> backward_client();
  // What ServerCall says of them; likewise.
  virtual void request_receive_size(uint32_t /*bytes*/) {}
  virtual void raise_receive_size(uint32_t /*bytes*/) {}
  virtual ReceiveSizes receive_size_report() const { return {}; }
  // What the handler of the call has done wrong; any thread that has it.
  void note(Mistake mistake, const ServedCall& call, uint32_t item = 0) noexcept;
  // The link is on its way down: answers are not delayed any longer.
  void release_delayed() noexcept;
  // A worker, at the beginning of a call that is counted.
  void note_entered() noexcept;

 protected:
  virtual ~Dispatcher() { close_handle(); }

  // No program finds it any more.
  void close_handle() noexcept { connection_handles.give_back(std::exchange(slot_, nullptr)); }

  void refuse(ServedCall& call, AcceptStat status) noexcept;
  void drop(ServedCall& call) noexcept;
  void send(ServedCall& call) noexcept;
  void count(const ServedCall& call) noexcept;
  void note_decoded(ServedCall& call) noexcept;
  void restart_reply(ServedCall& call) noexcept;
  bool has_good_results(const ServedCall& call) noexcept;
  // Calls given to workers are counted from now on; before there are any.
  void count_entries() { entries_ = std::make_unique<WorkerEntries>(); }
  // No handler of a call that has come is still to be entered. Else the link is marked dirty when
  // that is so.
  bool all_entered() noexcept;

 private:
  friend class PlainCalls;
  // Of a procedure that is not idempotent: whether to run the call. False: it has been answered, or
  // will be. With call.replay set end_once() tells of the end.
  virtual bool begin_once(ServedCall&) noexcept { return true; }
  // The answer is about to go out, if it is `whole`; takes call.replay back.
  virtual void end_once(ServedCall&, bool /*whole*/) noexcept {}

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
  base::Handles<Dispatcher>::Slot* slot_;
  base::List<ServedCall, &ServedCall::waiting> delayed_;
  // Of the last call that had a service: valid as long as the table's edition is the same.
  uint64_t last_edition_ = UINT64_MAX;
  const ServiceEntry* last_service_ = nullptr;
  ProcedureCounters* last_counters_ = nullptr;
  std::unique_ptr<WorkerEntries> entries_;  // null: not asked for
  DispatchCounters counts_;
};

}  // namespace rrdk::service
