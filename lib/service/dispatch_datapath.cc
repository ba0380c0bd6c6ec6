// From a call's arrival to its handler, which is looked up in the service table.
#include <algorithm>

#include "base/assert.h"
#include "rpc/headers_datapath.h"
#include "runtime/poll_core.h"
#include "service/dispatcher.h"
#include "service/service_table.h"

namespace rrdk::service {

namespace {

bool allows(const Binding& binding, const CallContext& context) noexcept {
  const xprt::IncomingCall& call = *context.call;
  uint32_t reads = call.read_chunks();
  uint32_t writes = call.write_chunks();
  bool is_long = call.is_long();
  if (reads + writes + is_long == 0) [[likely]]
    return true;
  uint32_t procedure = context.header.procedure;
  return binding.allows(procedure, reads, writes) && (!is_long || binding.allows_long(procedure)) &&
         (reads + writes == 0 || !rpc::transforms_body(context.header.credential));
}

Refusal refusal_of(rpc::CallVerdict verdict) {
  switch (verdict) {
    case rpc::CallVerdict::kRpcMismatch:
      return Refusal::kRpcVersion;
    case rpc::CallVerdict::kGarbage:
      return Refusal::kGarbageCall;
    case rpc::CallVerdict::kBadCredential:
      return Refusal::kBadCredential;
    case rpc::CallVerdict::kBadVerifier:
      return Refusal::kBadVerifier;
    case rpc::CallVerdict::kOk:
    case rpc::CallVerdict::kNotACall:
      break;
  }
  return Refusal::kNotACall;
}

// Whoever has ended the call, and may use its context again, is the handler itself.
void run_on_worker(runtime::WorkItem& item) {
  auto& context = static_cast<CallContext&>(item);
  const runtime::WorkerPool::Running running(context.service);
  context.enter_handler();
}

// The call is still open: so its Dispatcher is there.
void run_counted_on_worker(runtime::WorkItem& item) {
  static_cast<CallContext&>(item).dispatcher->note_entered();
  run_on_worker(item);
}

}  // namespace

const Procedure* ServiceTable::Entry::find(uint32_t number) const noexcept {
  // Most tables are dense from zero, or from one: an entry's index follows from its number.
  if (number < procedures.size() && procedures[number].number == number)
    return &procedures[number];
  if (number - 1 < procedures.size() && procedures[number - 1].number == number)
    return &procedures[number - 1];
  const auto entry = std::ranges::lower_bound(procedures, number, {}, &Procedure::number);
  if (entry != procedures.end() && entry->number == number)
    return &*entry;
  if (number == 0 || procedures.empty() || procedures.back().number != kOtherProcedures)
    return nullptr;
  return &procedures.back();
}

ServiceTable::Found ServiceTable::find(uint32_t program, uint32_t version) const noexcept {
  const Entries* entries = published_.load(std::memory_order_acquire);
  if (entries == nullptr)
    return {Verdict::kNoProgram, nullptr};
  const Entry* other = nullptr;
  for (const Entry* entry : entries->all) {
    if (entry->binding->program != program)
      continue;
    if (entry->binding->version == version)
      return {Verdict::kFound, entry};
    other = entry;
  }
  return {other != nullptr ? Verdict::kNoVersion : Verdict::kNoProgram, other};
}

void Dispatcher::note_entered() noexcept {
  RRDK_ASSERT(entries_ != nullptr);
  entries_->entered.fetch_add(1, std::memory_order_seq_cst);
  if (entries_->awaited.load(std::memory_order_seq_cst)) [[unlikely]]
    tell_entered();
}

// Its service has been removed since it came.
void CallContext::refuse_removed() noexcept {
  accept_stat = AcceptStat::kProgMismatch;  // or that there is none
  end(Answer::kReject);
}

void CallContext::open_reply() noexcept {
  RRDK_ASSERT(call != nullptr && !results);
  results.emplace(call->reply(), dispatcher->memory(), call->inline_size(), call->max_reply());
  rpc::encode_success(*results, header.xid);
}

void Dispatcher::take(xprt::IncomingCall& call) noexcept {
  RRDK_ON_CORE(link_.core());
  CallContext& context = contexts_.get();
  context.dispatcher = this;
  context.call = &call;
  context.service = nullptr;
  context.procedure = nullptr;
  context.counters = nullptr;
  context.not_before_ns = 0;
  context.replay = nullptr;
  context.args = Decoder(call.message());
  if (admit(context))
    dispatch(context);
}

// Nearly always it is the one of the connection's last call. False: the call has been refused.
bool Dispatcher::find_service(CallContext& context) noexcept {
  const rpc::CallHeader& header = context.header;
  const uint64_t edition = services_.edition();
  context.service = last_service_;
  if (edition == last_edition_ && last_service_->binding->program == header.program &&
      last_service_->binding->version == header.version) [[likely]]
    return true;
  ServiceTable::Found found = services_.find(header.program, header.version);
  context.service = found.entry;
  if (found.verdict == ServiceTable::Verdict::kFound) {
    last_edition_ = edition;
    last_service_ = found.entry;
    last_counters_ = found.entry->counters_of(link_.core().index());
    return true;
  }
  bool is_known = found.verdict == ServiceTable::Verdict::kNoVersion;
  link_.engine().count_refusal(is_known ? Refusal::kNoVersion : Refusal::kNoProgram);
  refuse(context, is_known ? AcceptStat::kProgMismatch : AcceptStat::kProgUnavail);
  return false;
}

// Finds the procedure. False: the call has been answered, with an error or as NULL, or waits for
// the one that it repeats.
bool Dispatcher::admit(CallContext& context) noexcept {
  rpc::CallHeader& header = context.header;
  rpc::CallVerdict verdict = rpc::decode_call(context.args, header);
  if (verdict != rpc::CallVerdict::kOk) [[unlikely]] {
    ++counts_.calls_rejected;
    link_.engine().count_refusal(refusal_of(verdict));
    restart_reply(context);
    bool answered = rpc::encode_refusal(*context.results, header.xid, verdict);
    context.answer = answered ? Answer::kResults : Answer::kDrop;
    send(context);
    return false;
  }
  if (context.call->is_padded()) [[unlikely]]
    context.args.expect_padding(context.call->padding());
  if (!find_service(context))
    return false;
  context.procedure = context.service->find(header.procedure);
  if (context.procedure == nullptr && header.procedure != 0) [[unlikely]] {
    link_.engine().count_refusal(Refusal::kNoProcedure);
    refuse(context, AcceptStat::kProcUnavail);
    return false;
  }
  if (last_counters_ != nullptr) [[likely]] {
    context.counters = &last_counters_[context.service->index_of(context.procedure)];
    ++context.counters->calls_in_progress;
  }
  // A long call is held to the same limits (V1-LONG-11, EXP-31).
  const Binding& binding = *context.service->binding;
  if (!allows(binding, context)) [[unlikely]] {
    if (binding.on_breach == BreachAnswer::kTransportError) {
      context.answer = Answer::kTransportError;
      send(context);
    } else {
      link_.engine().count_refusal(Refusal::kBindingChunks);
      refuse(context, AcceptStat::kGarbageArgs);
    }
    return false;
  }
  if (context.call->stages != nullptr) [[unlikely]]
    note_decoded(context);
  if (context.procedure == nullptr) {  // procedure 0 does nothing, for whoever asks
    context.open_reply();
    context.answer = Answer::kResults;
    send(context);
    return false;
  }
  if (!context.procedure->idempotent && !begin_once(context)) [[unlikely]]
    return false;
  context.open_reply();
  return true;
}

void Dispatcher::note_decoded(CallContext& context) noexcept {
  xprt::StageRecord& stages = *context.call->stages;
  const rpc::CallHeader& header = context.header;
  stages.name(link_.id(), header.program, header.version, header.procedure);
  uint64_t now = stages.pass(Stage::kDecoded, base::Tsc::ticks());
  stages.stamp(Stage::kDecoded, now);
  if (context.procedure == nullptr) {  // nobody is to be entered
    for (Stage stage : {Stage::kEntered, Stage::kAnswered})
      stages.stamp(stage, now = stages.pass(stage, now));
  }
}

void Dispatcher::dispatch(CallContext& context) noexcept {
  const Procedure& procedure = *context.procedure;
  if (procedure.dispatch == Dispatch::kWorker && link_.core().workers() != nullptr) {
    context.run = run_on_worker;
    if (entries_ != nullptr) {
      ++entries_->given;
      context.run = run_counted_on_worker;
    }
    link_.core().to_worker(for_workers_, context);
    return;
  }
  context.enter_handler();
}

void Dispatcher::refuse(CallContext& context, AcceptStat status) noexcept {
  context.answer = Answer::kReject;
  context.accept_stat = status;
  send(context);
}

}  // namespace rrdk::service
