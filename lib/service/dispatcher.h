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
#include "rpc/headers_datapath.h"
#include "rrdk/memory.h"
#include "rrdk/runtime.h"
#include "rrdk/service.h"
#include "runtime/link.h"
#include "runtime/timers.h"
#include "runtime/work.h"
#include "service/service_table.h"
#include "xprt/connection.h"

namespace rrdk::service {

class Dispatcher;

// What a Dispatcher knows of a call that is to run once; each kind has its own.
struct OnceRecord {};

// How a call is to end.
enum class Answer : uint8_t { kResults, kReject, kMismatch, kDeny, kTransportError, kDrop };

// One call while a handler has it: what a ServerCall points to. Pooled per core and reused.
//
//   state       where it is                    waits for
//   in handler  core's or a worker's thread    one of ServerCall's six ends
//   returning   the core's inbox               the core's next pass
//   delayed     the core's timers              reply_after()'s time, or the connection's end
//   waiting     with its Dispatcher            the call that it repeats, or the connection's end
struct CallContext : runtime::WorkItem, runtime::Timer {
  Dispatcher* dispatcher = nullptr;
  xprt::IncomingCall* call = nullptr;
  const ServiceTable::Entry* service = nullptr;
  const Procedure* procedure = nullptr;
  ProcedureCounters* counters = nullptr;  // of this core; null: the call is not counted
  rpc::CallHeader header;
  Decoder args;
  std::optional<Encoder> results;
  Answer answer = Answer::kResults;
  AcceptStat accept_stat = AcceptStat::kSuccess;
  AuthStat auth_stat = AuthStat::kOk;
  uint32_t low = 0, high = 0;      // of kMismatch: the versions that the client is told
  uint64_t not_before_ns = 0;      // reply_after(); 0: at once
  base::Links<CallContext> links;  // in the dispatcher's list of delayed ones, or of waiting ones
  // Of procedures that are not idempotent, for the Dispatcher; null: not, or not any more.
  OnceRecord* replay = nullptr;
  CallContext* next_waiter = nullptr;
  bool is_early = false;  // among the first calls of its connection that are to run once
  base::Handles<CallContext>::Slot* slot = nullptr;  // null: there are too many

  ServerCall handle() noexcept { return ServerCall(this); }
  static CallContext& of(const ServerCall& call) noexcept { return *call.context_; }
  // Without an answer: whoever has it now owes one.
  static CallContext& take(ServerCall&& call) noexcept {
    return *std::exchange(call.context_, nullptr);
  }
  void enter_handler() noexcept {
    if (service->removed.load(std::memory_order_seq_cst)) [[unlikely]]
      return refuse_removed();
    if (call->stages != nullptr) [[unlikely]]
      call->stages->stamp(Stage::kEntered);
    RRDK_ASSERT(procedure != nullptr && results, header.procedure);
    procedure->handler(handle(), procedure->context);
  }
  void refuse_removed() noexcept;
  // Starts the reply: header of a success, results to follow.
  void open_reply() noexcept;
  // Any thread: the handler's answer is complete; the core does the rest.
  void end(Answer how) noexcept;
};
static_assert(sizeof(CallContext) <= 416);

// What programs in C have of a call and of a connection (lib/c). The first are open while a handler
// in C owes the answer, the second as long as the object lives.
inline constinit base::Handles<CallContext> call_handles;
inline constinit base::Handles<Dispatcher> connection_handles;

// Of one core; grows to the number of calls that were ever in service at once.
class ContextPool {
 public:
  ContextPool() = default;
  ~ContextPool();
  CallContext& get() {
    if (free_.empty()) [[unlikely]]
      grow();
    CallContext* context = free_.back();
    free_.pop_back();
    return *context;
  }
  void put(CallContext& context) noexcept {
    RRDK_ASSERT(free_.size() < free_.capacity() && !context.running(), free_.size());
    free_.push_back(&context);
  }

 private:
  void grow();

  std::vector<std::unique_ptr<CallContext[]>> slabs_;
  std::vector<CallContext*> free_;
};

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
             const ServiceTable& services, ContextPool& contexts) noexcept
      : link_(link),
        for_workers_(for_workers),
        memory_(memory),
        services_(services),
        contexts_(contexts),
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
  void take(xprt::IncomingCall& call) noexcept;
  // Its answer is there.
  void finish(CallContext& context) noexcept;
  // The way back to who calls; any thread that has a call. Errors: kUnsupported, kConnectionLost.
  virtual Result<std::shared_ptr<BackwardClient>> backward_client();
  // What ServerCall says of them; likewise.
  virtual void request_receive_size(uint32_t /*bytes*/) {}
  virtual void raise_receive_size(uint32_t /*bytes*/) {}
  virtual ReceiveSizes receive_size_report() const { return {}; }
  // What the handler of the call has done wrong; any thread that has it.
  void note(Mistake mistake, const CallContext& context, uint32_t item = 0) noexcept;
  // The link is on its way down: answers are not delayed any longer.
  void release_delayed() noexcept;
  // A worker, at the beginning of a call that is counted.
  void note_entered() noexcept;

 protected:
  ~Dispatcher() { close_handle(); }

  // No program finds it any more.
  void close_handle() noexcept { connection_handles.give_back(std::exchange(slot_, nullptr)); }

  void refuse(CallContext& context, AcceptStat status) noexcept;
  void drop(CallContext& context) noexcept;
  void send(CallContext& context) noexcept;
  void count(const CallContext& context) noexcept;
  void note_times(const CallContext& context, const xprt::StageRecord& stages) noexcept;
  void note_decoded(CallContext& context) noexcept;
  void restart_reply(CallContext& context) noexcept;
  bool has_good_results(const CallContext& context) noexcept;
  bool has_dropped() const noexcept { return dropped_; }
  // Calls given to workers are counted from now on; before there are any.
  void count_entries() { entries_ = std::make_unique<WorkerEntries>(); }
  // No handler of a call that has come is still to be entered. Else the link is marked dirty when
  // that is so.
  bool all_entered() noexcept;

 private:
  // Of a procedure that is not idempotent: whether to run the call. False: it has been answered, or
  // will be. With context.replay set end_once() tells of the end.
  virtual bool begin_once(CallContext&) noexcept { return true; }
  // The answer is about to go out, if it is `whole`; takes context.replay back.
  virtual void end_once(CallContext&, bool /*whole*/) noexcept {}

  void tell_entered() noexcept;
  bool admit(CallContext& context) noexcept;
  bool find_service(CallContext& context) noexcept;
  void dispatch(CallContext& context) noexcept;
  void refuse_chunks(CallContext& context) noexcept;
  void refuse_call(CallContext& context) noexcept;
  void delay(CallContext& context) noexcept;

  runtime::Link& link_;
  runtime::WorkerQueue& for_workers_;
  Memory& memory_;
  const ServiceTable& services_;
  ContextPool& contexts_;
  base::Handles<Dispatcher>::Slot* slot_;
  base::List<CallContext, &CallContext::links> delayed_;
  // Of the last call that had a service: valid as long as the table's edition is the same.
  uint64_t last_edition_ = UINT64_MAX;
  const ServiceTable::Entry* last_service_ = nullptr;
  ProcedureCounters* last_counters_ = nullptr;
  bool dropped_ = false;                    // a call, which ends the connection
  std::unique_ptr<WorkerEntries> entries_;  // null: nobody wants to know
  DispatchCounters counts_;
};

}  // namespace rrdk::service
