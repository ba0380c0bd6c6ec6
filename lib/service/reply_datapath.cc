// From a handler's answer to the engine.

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/lifetime.h"
#include "mem/loans.h"
#include "rpc/headers_datapath.h"
#include "runtime/poll_core.h"
#include "service/dispatcher.h"

namespace rrdk::service {

namespace {

constexpr engine::EndReason kNoAnswer = {
    EndedBy::kLimit, {}, Errc::kNoMemory, "no buffer was left to answer a call"};

Mistake mistake_of(EncoderFault fault) {
  switch (fault) {
    case EncoderFault::kLimit:
    case EncoderFault::kTooManySegments:
      return Mistake::kTooLarge;
    case EncoderFault::kNoMemory:
      return Mistake::kNoBuffers;
    case EncoderFault::kInvalidMemory:
      return Mistake::kInvalidMemory;
    case EncoderFault::kNone:
    case EncoderFault::kByCaller:
      break;
  }
  return Mistake::kFailed;
}

}  // namespace

// A delayed answer says nothing about our speed.
void note_times(ProcedureCounters& counters, const engine::StageRecord& stages,
                bool late) noexcept {
  if (stages.at(Stage::kEntered) == 0)
    return;
  counters.fetch.record(stages.ns(Stage::kReceived, Stage::kWhole));
  counters.decode.record(stages.ns(Stage::kWhole, Stage::kDecoded));
  counters.queue.record(stages.ns(Stage::kDecoded, Stage::kEntered));
  counters.handler.record(stages.ns(Stage::kEntered, Stage::kAnswered));
  if (!late)
    counters.reply.record(base::Tsc::to_ns(base::Tsc::ticks() - stages.at(Stage::kAnswered)));
}

// Calls may arrive before the link is up; a link that is closing no longer delays answers. From
// here on the buffers of the results are lent to the client, which decides how long the reply needs
// them.
void Dispatcher::finish(ServedCall& call) noexcept {
  RRDK_ON_CORE(link_.core());
  RRDK_ASSERT(call.dispatcher == this && call.results);
  std::span<Buffer> buffers = call.reply.buffers();
  for (size_t i = 1; i < buffers.size(); ++i)
    call.borrower().lend(buffers[i]);
  if (call.not_before_ns > link_.core().now() && link_.state() <= runtime::LinkState::kUp)
    delay(call);
  else
    send(call);
}

void end(ServedCall& call, Answer how) noexcept {
  if (base::forked) [[unlikely]]
    return note_foreign_end();  // the parent process answers
  call.answer = how;
  if (call.stages != nullptr) [[unlikely]]
    call.stages->stamp(Stage::kAnswered);
  runtime::PollCore& core = call.dispatcher->link().core();
  if (core.passing()) {
    if (call.plain) {
      call.answered = true;  // PlainCalls::run() does the rest
      return;
    }
    call.dispatcher->finish(call);
    return;
  }
  call.run = [](runtime::WorkItem& item) {
    auto& ended = static_cast<ServedCall&>(item);
    ended.dispatcher->finish(ended);
  };
  core.submit(call);
}

void Dispatcher::delay(ServedCall& call) noexcept {
  RRDK_ASSERT(call.not_before_ns != 0 && link_.state() <= runtime::LinkState::kUp, link_.state());
  delayed_.push_front(call);
  call.fire = [](runtime::Timer& timer) {
    auto& due = static_cast<ServedCall&>(timer);
    Dispatcher& dispatcher = *due.dispatcher;
    dispatcher.delayed_.remove(due);
    dispatcher.send(due);
  };
  link_.core().timers().start(call, call.not_before_ns);
}

// Sends these replies without further delay.
void Dispatcher::release_delayed() noexcept {
  RRDK_ON_CORE(link_.core());
  while (!delayed_.empty()) {
    ServedCall& call = *delayed_.front();
    link_.core().timers().cancel(call);
    call.fire(call);
  }
}

// Makes the reply empty: discards what a handler may have written.
void Dispatcher::restart_reply(ServedCall& call) noexcept {
  call.results.emplace(call.reply, memory_, call.inline_size(), call.max_reply());
}

// Whether the results can be sent, as far as the handler is concerned.
bool Dispatcher::has_good_results(const ServedCall& call) noexcept {
  if (!call.results->ok()) [[unlikely]] {
    note(mistake_of(call.results->fault()), call, call.results->faulty_item());
    return false;
  }
  if (!call.reply.borrows()) [[likely]]
    return true;
  RegionId region = link_.device().out_of_reach(memory_, call.reply);
  if (region != kNoRegion) [[unlikely]]
    note(Mistake::kUnusableMemory, call, region);
  return region == kNoRegion;
}

void Dispatcher::refuse_call(ServedCall& call) noexcept {
  Encoder& out = *call.results;
  const uint32_t xid = call.header.xid;
  if (call.answer == Answer::kDeny)
    return rpc::encode_auth_error(out, xid, call.auth_stat);
  if (call.answer == Answer::kMismatch)
    return rpc::encode_accepted(out, xid, AcceptStat::kProgMismatch, call.low, call.high);
  const uint32_t high = call.service != nullptr ? call.service->high.load() : 0;
  const uint32_t low = high != 0 ? call.service->low.load() : 0;
  // The program's last version may have been removed meanwhile.
  if (call.accept_stat == AcceptStat::kProgMismatch && high == 0)
    call.accept_stat = AcceptStat::kProgUnavail;
  rpc::encode_accepted(out, xid, call.accept_stat, low, high);
}

void Dispatcher::send(ServedCall& call) noexcept {
  RRDK_ON_CORE(link_.core());
  RRDK_ASSERT(call.dispatcher == this && !call.running());
  if (call.answer == Answer::kResults && !has_good_results(call)) [[unlikely]] {
    call.answer = Answer::kReject;
    call.accept_stat = AcceptStat::kSystemErr;
  }
  if (call.answer != Answer::kResults) [[unlikely]] {
    ++counts_.calls_rejected;
    restart_reply(call);
    refuse_call(call);
  }
  bool whole = call.results->ok();
  call.results.reset();  // finishes the message
  if (call.counters != nullptr) [[likely]]
    count(call);
  if (call.replay != nullptr) [[unlikely]]
    end_watched(call, whole);
  if (call.secured != nullptr) [[unlikely]]
    whole = end_secured(call, whole);
  // The engine may use the record for another call once it has the answer.
  ProcedureCounters* const counters = call.counters;
  const engine::StageRecord* const stages = call.stages;  // the core's, so it stays valid
  const bool times = stages != nullptr && call.procedure != nullptr;
  const bool late = call.not_before_ns != 0;
  // A call that cannot even be refused, because there is no buffer, is not answered at all
  // (V1-ERR-20).
  if (call.answer == Answer::kDrop || !whole) [[unlikely]] {
    link_.engine().drop(call, call.answer == Answer::kDrop ? engine::kCallDropped : kNoAnswer);
  } else if (call.answer == Answer::kTransportError) [[unlikely]] {
    refuse_chunks(call);
  } else {
    link_.engine().reply(call);
  }
  if (counters != nullptr) [[likely]] {
    if (times) [[unlikely]]
      note_times(*counters, *stages, late);
    // The last access to its service, which may be destroyed now.
    counters->calls_in_progress.take_one();
  }
  link_.core().mark_dirty(link_);
}

// What only calls have that must run once, or that are intercepted.
void Dispatcher::end_watched(ServedCall& call, bool whole) noexcept {
  if (call.intercepted)
    tell_interceptor(call, whole);
  if (call.replay == &intercepted_only)
    call.replay = nullptr;
  else
    end_once(call, whole);
}

void Dispatcher::count(const ServedCall& call) noexcept {
  RRDK_ASSERT(call.counters != nullptr && !call.results);
  ProcedureCounters& counters = *call.counters;
  ++counters.calls;
  counters.received_bytes += call.args.length();
  if (call.answer == Answer::kResults) [[likely]]
    counters.sent_bytes += call.reply.stream_length();
  else
    ++counters.errors;
}

void Dispatcher::drop(ServedCall& call) noexcept {
  restart_reply(call);
  call.answer = Answer::kDrop;
  send(call);
}

void Dispatcher::refuse_chunks(ServedCall& call) noexcept {
  RRDK_ASSERT(call.service != nullptr);
  const ProcedureBinding* entry = call.service->binding->find(call.header.procedure);
  bool none = entry == nullptr || rpc::transforms_body(call.header.credential);
  link_.engine().refuse(call, none ? 0 : entry->eligible_args, none ? 0 : entry->eligible_results);
}

}  // namespace rrdk::service

namespace rrdk {

using service::Answer;

namespace {

constexpr uint64_t kLongestDelayNs = 60'000'000'000;

}  // namespace

ServerCall& ServerCall::operator=(ServerCall&& other) noexcept {
  if (this != &other) {
    if (call_ != nullptr && !base::forked)
      end_unanswered();
    call_ = std::exchange(other.call_, nullptr);
  }
  return *this;
}

ServerCall::~ServerCall() {
  if (call_ != nullptr && !base::forked)
    end_unanswered();
}

void ServerCall::end_unanswered() noexcept {
  call_->dispatcher->note(service::Mistake::kUnanswered, *call_);
  std::move(*this).reject(AcceptStat::kSystemErr);
}

uint32_t ServerCall::program() const noexcept {
  return call_->header.program;
}

uint32_t ServerCall::version() const noexcept {
  return call_->header.version;
}

uint32_t ServerCall::procedure() const noexcept {
  return call_->header.procedure;
}

uint32_t ServerCall::xid() const noexcept {
  return call_->header.xid;
}

bool ServerCall::wanted() const noexcept {
  return call_ != nullptr && !call_->dispatcher->link().is_over();
}

const Credential& ServerCall::credential() const noexcept {
  return call_->header.credential;
}

std::optional<AuthSys> ServerCall::auth_sys() const {
  AuthSys identity;
  if (!decode(call_->header.credential, identity))
    return std::nullopt;
  return identity;
}

ServerConnection& ServerCall::connection() const noexcept {
  return *call_->dispatcher;
}

Memory& ServerCall::memory() noexcept {
  return call_->dispatcher->memory();
}

Decoder& ServerCall::args() noexcept {
  return call_->args;
}

Encoder& ServerCall::results() noexcept {
  return *call_->results;
}

void ServerCall::on_released(Released released, void* argument) noexcept {
  call_->on_ended = released;
  call_->user = argument;
}

Buffer ServerCall::result_buffer(uint32_t size) noexcept {
  Buffer buffer = memory().get(size);
  mem::Borrower& borrower = call_->borrower();
  if (buffer) [[likely]] {
    borrower.lend(buffer);
  } else {
    // A size beyond the largest buffer is not a shortage that others could end.
    if (size <= memory().largest_buffer())
      borrower.note_missing();
    call_->dispatcher->note(service::Mistake::kNoBuffers, *call_);
  }
  return buffer;
}

void ServerCall::reply() && {
  if (call_ == nullptr) [[unlikely]]
    return service::note_second_end("reply");
  service::end(*std::exchange(call_, nullptr), Answer::kResults);
}

void ServerCall::reply_after(uint64_t delay_ns) && {
  if (call_ == nullptr) [[unlikely]]
    return service::note_second_end("reply_after");
  call_->not_before_ns = Runtime::now_ns() + std::min(delay_ns, kLongestDelayNs);
  service::end(*std::exchange(call_, nullptr), Answer::kResults);
}

void ServerCall::reject(AcceptStat status) && {
  if (call_ == nullptr) [[unlikely]]
    return service::note_second_end("reject");
  // SUCCESS is not a refusal: results would have to follow.
  call_->accept_stat = status == AcceptStat::kSuccess ? AcceptStat::kSystemErr : status;
  service::end(*std::exchange(call_, nullptr), Answer::kReject);
}

void ServerCall::reject_versions(uint32_t low, uint32_t high) && {
  if (call_ == nullptr) [[unlikely]]
    return service::note_second_end("reject_versions");
  call_->low = low;
  call_->high = high;
  service::end(*std::exchange(call_, nullptr), Answer::kMismatch);
}

void ServerCall::deny(AuthStat reason) && {
  if (call_ == nullptr) [[unlikely]]
    return service::note_second_end("deny");
  call_->auth_stat = reason;
  service::end(*std::exchange(call_, nullptr), Answer::kDeny);
}

void ServerCall::drop() && {
  if (call_ == nullptr) [[unlikely]]
    return service::note_second_end("drop");
  service::end(*std::exchange(call_, nullptr), Answer::kDrop);
}

}  // namespace rrdk
