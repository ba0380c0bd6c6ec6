// One call while a handler has it: what a ServerCall points to. Pooled per core and reused.
//
//   state       where it is                    waits for
//   in handler  core's or a worker's thread    one of ServerCall's five ends
//   returning   the core's inbox               the core's next pass
//   delayed     the core's timers              reply_after()'s time, or the connection's end
//   waiting     with its Dispatcher            the call that it repeats, or the connection's end
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/list.h"
#include "rpc/headers_datapath.h"
#include "rrdk/runtime.h"
#include "rrdk/service.h"
#include "runtime/timers.h"
#include "runtime/work.h"
#include "service/service_table.h"
#include "xprt/connection.h"

namespace rrdk::service {

class Dispatcher;

// What a Dispatcher knows of a call that is to run once; each kind has its own.
struct OnceRecord {};

// How a call is to end.
enum class Answer : uint8_t { kResults, kReject, kDeny, kTransportError, kDrop };

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
  uint64_t not_before_ns = 0;      // reply_after(); 0: at once
  base::Links<CallContext> links;  // in the dispatcher's list of delayed ones, or of waiting ones
  // Of procedures that are not idempotent, for the Dispatcher; null: not, or not any more.
  OnceRecord* replay = nullptr;
  CallContext* next_waiter = nullptr;
  bool is_early = false;  // among the first calls of its connection that are to run once

  ServerCall handle() noexcept { return ServerCall(this); }
  static CallContext& of(const ServerCall& call) noexcept { return *call.context_; }
  // Without an answer: whoever has it now owes one.
  static CallContext& take(ServerCall&& call) noexcept {
    return *std::exchange(call.context_, nullptr);
  }
  void enter_handler() noexcept {
    if (service->removed.load(std::memory_order_relaxed)) [[unlikely]]
      return refuse_removed();
    if (call->stages != nullptr) [[unlikely]]
      call->stages->stamp(Stage::kEntered);
    procedure->handler(handle(), procedure->context);
  }
  void refuse_removed() noexcept;
  // Starts the reply: header of a success, results to follow.
  void open_reply() noexcept;
  // Any thread: the handler's answer is complete; the core does the rest.
  void end(Answer how) noexcept;
};

// Of one core; grows to the number of calls that were ever in service at once.
class ContextPool {
 public:
  CallContext& get() {
    if (free_.empty()) [[unlikely]]
      grow();
    CallContext* context = free_.back();
    free_.pop_back();
    return *context;
  }
  void put(CallContext& context) noexcept { free_.push_back(&context); }

 private:
  void grow();

  std::vector<std::unique_ptr<CallContext[]>> slabs_;
  std::vector<CallContext*> free_;
};

}  // namespace rrdk::service
