// From a call's arrival to its handler, which is looked up in the service table.
#include <algorithm>

#include "base/assert.h"
#include "rpc/headers_datapath.h"
#include "runtime/poll_core.h"
#include "service/dispatcher.h"
#include "service/secured.h"
#include "service/service_table.h"

namespace rrdk::service {

namespace {

bool allows(const Binding& binding, const ServedCall& call) noexcept {
  uint32_t reads = call.item_chunks;
  uint32_t writes = call.write_chunks();
  bool is_long = call.is_long();
  if (reads + writes + is_long == 0) [[likely]]
    return true;
  uint32_t procedure = call.header.procedure;
  return binding.allows(procedure, reads, writes) && (!is_long || binding.allows_long(procedure)) &&
         (reads + writes == 0 || !rpc::transforms_body(call.header.credential));
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

// The handler may end its call, whose record is then used again, so nothing here reads it
// afterwards.
void run_on_worker(runtime::WorkItem& item) {
  auto& call = static_cast<ServedCall&>(item);
  const runtime::WorkerPool::Running running(call.service);
  enter_handler(call);
}

// The call is still open, so its Dispatcher exists.
void run_counted_on_worker(runtime::WorkItem& item) {
  static_cast<ServedCall&>(item).dispatcher->note_entered();
  run_on_worker(item);
}

}  // namespace

const Procedure* ServiceEntry::find(uint32_t number) const noexcept {
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
  const ServiceEntry* other = nullptr;
  for (const ServiceEntry* entry : entries->all) {
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

// Its service has been removed since it arrived.
void refuse_removed(ServedCall& call) noexcept {
  call.accept_stat = AcceptStat::kProgMismatch;  // or that the program is unknown
  end(call, Answer::kReject);
}

void enter_handler(ServedCall& call) noexcept {
  if (call.service->removed.load(std::memory_order_seq_cst)) [[unlikely]]
    return refuse_removed(call);
  if (call.stages != nullptr) [[unlikely]]
    call.stages->stamp(Stage::kEntered);
  RRDK_ASSERT(call.procedure != nullptr && call.results, call.header.procedure);
  call.procedure->handler(CallAccess::handle(call), call.procedure->context);
}

void open_reply(ServedCall& call) noexcept {
  RRDK_ASSERT(!call.results);
  call.results.emplace(call.reply, call.dispatcher->memory(), call.inline_size(), call.max_reply());
  if (call.secured != nullptr) [[unlikely]]
    return open_secured_reply(call);
  rpc::encode_success(*call.results, call.header.xid);
}

void Dispatcher::take(ServedCall& call) noexcept {
  RRDK_ON_CORE(link_.core());
  call.dispatcher = this;
  call.service = nullptr;
  call.procedure = nullptr;
  call.counters = nullptr;
  call.not_before_ns = 0;
  call.replay = nullptr;
  call.secured = nullptr;
  call.args = Decoder(call.message);
  if (admit(call))
    dispatch(call);
}

// Nearly always the service is that of the connection's last call. Returns false if the call has
// been refused.
bool Dispatcher::find_service(ServedCall& call) noexcept {
  const rpc::CallHeader& header = call.header;
  const uint64_t edition = services_.edition();
  call.service = last_service_;
  if (edition == last_edition_ && last_service_->binding->program == header.program &&
      last_service_->binding->version == header.version) [[likely]]
    return true;
  ServiceTable::Found found = services_.find(header.program, header.version);
  call.service = found.entry;
  if (found.verdict == ServiceTable::Verdict::kFound) {
    last_edition_ = edition;
    last_service_ = found.entry;
    last_counters_ = found.entry->counters_of(link_.core().index());
    return true;
  }
  bool is_known = found.verdict == ServiceTable::Verdict::kNoVersion;
  link_.engine().count_refusal(is_known ? Refusal::kNoVersion : Refusal::kNoProgram);
  refuse(call, is_known ? AcceptStat::kProgMismatch : AcceptStat::kProgUnavail);
  return false;
}

// Finds the procedure. Returns false if the call has been answered, with an error or as NULL, or
// waits for the call that it repeats.
bool Dispatcher::admit(ServedCall& call) noexcept {
  rpc::CallHeader& header = call.header;
  rpc::CallVerdict verdict = rpc::decode_call(call.args, header);
  if (verdict != rpc::CallVerdict::kOk) [[unlikely]] {
    ++counts_.calls_rejected;
    if (verdict == rpc::CallVerdict::kNotACall)
      link_.engine().end(Refusal::kNotACall,
                         "it sent an RPC message that is neither call nor reply");
    else
      link_.engine().count_refusal(refusal_of(verdict));
    restart_reply(call);
    bool answered = rpc::encode_refusal(*call.results, header.xid, verdict);
    RRDK_ASSERT(answered == (verdict != rpc::CallVerdict::kNotACall), verdict);
    call.answer = answered ? Answer::kResults : Answer::kDrop;
    send(call);
    return false;
  }
  if (call.is_padded()) [[unlikely]]
    call.args.expect_padding(call.padding());
  if (gss_ != nullptr && header.credential.flavor == AuthFlavor::kRpcsecGss && !open_secured(call))
      [[unlikely]]
    return false;
  if (!find_service(call))
    return false;
  call.procedure = call.service->find(header.procedure);
  if (call.procedure == nullptr && header.procedure != 0) [[unlikely]] {
    link_.engine().count_refusal(Refusal::kNoProcedure);
    refuse(call, AcceptStat::kProcUnavail);
    return false;
  }
  if (last_counters_ != nullptr) [[likely]] {
    call.counters = &last_counters_[call.service->index_of(call.procedure)];
    ++call.counters->calls_in_progress;
  }
  // A long call is subject to the same limits (V1-LONG-11, EXP-31).
  const Binding& binding = *call.service->binding;
  if (!allows(binding, call)) [[unlikely]] {
    if (binding.on_breach == BreachAnswer::kTransportError) {
      call.answer = Answer::kTransportError;
      send(call);
    } else {
      link_.engine().count_refusal(Refusal::kBindingChunks);
      refuse(call, AcceptStat::kGarbageArgs);
    }
    return false;
  }
  if (call.stages != nullptr) [[unlikely]]
    note_decoded(call);
  if (call.procedure == nullptr) {  // procedure 0 does nothing, for every caller
    open_reply(call);
    call.answer = Answer::kResults;
    send(call);
    return false;
  }
  if (call.procedure->accepts != kAcceptAny && !accepts(call)) [[unlikely]] {
    deny(call, Refusal::kFlavor, AuthStat::kTooWeak);
    return false;
  }
  if (!call.procedure->idempotent && !begin_once(call)) [[unlikely]]
    return false;
  open_reply(call);
  return true;
}

void Dispatcher::note_decoded(ServedCall& call) noexcept {
  engine::StageRecord& stages = *call.stages;
  const rpc::CallHeader& header = call.header;
  stages.name(link_.id(), header.program, header.version, header.procedure);
  uint64_t now = stages.pass(Stage::kDecoded, base::Tsc::ticks());
  stages.stamp(Stage::kDecoded, now);
  if (call.procedure == nullptr) {  // there is no handler
    for (Stage stage : {Stage::kEntered, Stage::kAnswered})
      stages.stamp(stage, now = stages.pass(stage, now));
  }
}

void Dispatcher::dispatch(ServedCall& call) noexcept {
  const Procedure& procedure = *call.procedure;
  if (procedure.dispatch == Dispatch::kWorker && link_.core().workers() != nullptr) {
    call.run = run_on_worker;
    if (entries_ != nullptr) {
      ++entries_->given;
      call.run = run_counted_on_worker;
    }
    link_.core().to_worker(for_workers_, call);
    return;
  }
  enter_handler(call);
}

void Dispatcher::refuse(ServedCall& call, AcceptStat status) noexcept {
  call.answer = Answer::kReject;
  call.accept_stat = status;
  send(call);
}

}  // namespace rrdk::service
