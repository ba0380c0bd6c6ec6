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

Mistake mistake_of(EncoderFault fault) {
  switch (fault) {
    case EncoderFault::kLimit:
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

// Calls may come while the link is not yet up; on its way down it delays no more. From here on the
// buffers of the results are the client's: it decides for how long the reply needs them.
inline void Dispatcher::finish(CallContext& context) noexcept {
  RRDK_ON_CORE(link_.core());
  RRDK_ASSERT(context.dispatcher == this && context.results);
  std::span<Buffer> buffers = context.call->reply().buffers();
  for (size_t i = 1; i < buffers.size(); ++i)
    context.call->borrower().lend(buffers[i]);
  if (context.not_before_ns > link_.core().now() && link_.state() <= runtime::LinkState::kUp)
    delay(context);
  else
    send(context);
}

void CallContext::end(Answer how) noexcept {
  if (base::forked) [[unlikely]]
    return note_foreign_end();  // our parent answers
  answer = how;
  if (call->stages != nullptr) [[unlikely]]
    call->stages->stamp(Stage::kAnswered);
  runtime::PollCore& core = dispatcher->link().core();
  if (core.passing()) {
    dispatcher->finish(*this);
    return;
  }
  run = [](runtime::WorkItem& item) {
    auto& context = static_cast<CallContext&>(item);
    context.dispatcher->finish(context);
  };
  core.submit(*this);
}

void Dispatcher::delay(CallContext& context) noexcept {
  RRDK_ASSERT(context.not_before_ns != 0 && link_.state() <= runtime::LinkState::kUp,
              link_.state());
  delayed_.push_front(context);
  context.fire = [](runtime::Timer& timer) {
    auto& due = static_cast<CallContext&>(timer);
    Dispatcher& dispatcher = *due.dispatcher;
    dispatcher.delayed_.remove(due);
    dispatcher.send(due);
  };
  link_.core().timers().start(context, context.not_before_ns);
}

// Nobody waits for these replies any more.
void Dispatcher::release_delayed() noexcept {
  RRDK_ON_CORE(link_.core());
  while (!delayed_.empty()) {
    CallContext& context = *delayed_.front();
    link_.core().timers().cancel(context);
    context.fire(context);
  }
}

// An empty reply: forgets what a handler may have written.
void Dispatcher::restart_reply(CallContext& context) noexcept {
  context.results.emplace(context.call->reply(), memory_, context.call->inline_size(),
                          context.call->max_reply());
}

// Whether they can be sent, as far as the handler is concerned.
bool Dispatcher::has_good_results(const CallContext& context) noexcept {
  if (!context.results->ok()) [[unlikely]] {
    note(mistake_of(context.results->fault()), context, context.results->faulty_item());
    return false;
  }
  if (!context.call->reply().borrows()) [[likely]]
    return true;
  RegionId region = link_.device().out_of_reach(memory_, context.call->reply());
  if (region != kNoRegion) [[unlikely]]
    note(Mistake::kUnusableMemory, context, region);
  return region == kNoRegion;
}

void Dispatcher::refuse_call(CallContext& context) noexcept {
  Encoder& out = *context.results;
  const uint32_t xid = context.header.xid;
  if (context.answer == Answer::kDeny)
    return rpc::encode_auth_error(out, xid, context.auth_stat);
  if (context.answer == Answer::kMismatch)
    return rpc::encode_accepted(out, xid, AcceptStat::kProgMismatch, context.low, context.high);
  const uint32_t high = context.service != nullptr ? context.service->high.load() : 0;
  const uint32_t low = high != 0 ? context.service->low.load() : 0;
  // The program's last version may have been removed meanwhile.
  if (context.accept_stat == AcceptStat::kProgMismatch && high == 0)
    context.accept_stat = AcceptStat::kProgUnavail;
  rpc::encode_accepted(out, xid, context.accept_stat, low, high);
}

void Dispatcher::send(CallContext& context) noexcept {
  RRDK_ON_CORE(link_.core());
  RRDK_ASSERT(context.dispatcher == this && context.call != nullptr && !context.running());
  if (context.answer == Answer::kResults && !has_good_results(context)) [[unlikely]] {
    context.answer = Answer::kReject;
    context.accept_stat = AcceptStat::kSystemErr;
  }
  if (context.answer != Answer::kResults) [[unlikely]] {
    ++counts_.calls_rejected;
    restart_reply(context);
    refuse_call(context);
  }
  bool whole = context.results->ok();
  context.results.reset();  // finishes the message
  if (context.counters != nullptr) [[likely]]
    count(context);
  if (context.replay != nullptr) [[unlikely]]
    end_once(context, whole);
  const xprt::StageRecord* const stages = context.call->stages;  // of the core for good
  // What can not even be refused, for want of a buffer, is not answered at all (V1-ERR-20).
  if (context.answer == Answer::kDrop || !whole) [[unlikely]] {
    dropped_ = true;
    link_.engine().drop(*context.call);
  } else if (context.answer == Answer::kTransportError) [[unlikely]] {
    refuse_chunks(context);
  } else {
    link_.engine().reply(*context.call);
  }
  if (context.counters != nullptr) [[likely]] {
    if (stages != nullptr) [[unlikely]]
      note_times(context, *stages);
    context.counters->calls_in_progress
        .take_one();  // the last look at its service, which may go now
  }
  contexts_.put(context);
  link_.core().mark_dirty(link_);
}

void Dispatcher::count(const CallContext& context) noexcept {
  RRDK_ASSERT(context.counters != nullptr && !context.results);
  ProcedureCounters& counters = *context.counters;
  ++counters.calls;
  counters.received_bytes += context.args.length();
  if (context.answer == Answer::kResults) [[likely]]
    counters.sent_bytes += context.call->reply().stream_length();
  else
    ++counters.errors;
}

// Calls without a handler, and answers that were to be late, say nothing of how fast we are.
void Dispatcher::note_times(const CallContext& context, const xprt::StageRecord& stages) noexcept {
  if (stages.at(Stage::kEntered) == 0 || context.procedure == nullptr)
    return;
  ProcedureCounters& counters = *context.counters;
  counters.fetch.record(stages.ns(Stage::kReceived, Stage::kWhole));
  counters.decode.record(stages.ns(Stage::kWhole, Stage::kDecoded));
  counters.queue.record(stages.ns(Stage::kDecoded, Stage::kEntered));
  counters.handler.record(stages.ns(Stage::kEntered, Stage::kAnswered));
  if (context.not_before_ns == 0)
    counters.reply.record(base::Tsc::to_ns(base::Tsc::ticks() - stages.at(Stage::kAnswered)));
}

void Dispatcher::drop(CallContext& context) noexcept {
  restart_reply(context);
  context.answer = Answer::kDrop;
  send(context);
}

void Dispatcher::refuse_chunks(CallContext& context) noexcept {
  RRDK_ASSERT(context.service != nullptr);
  const ProcedureBinding* entry = context.service->binding->find(context.header.procedure);
  bool none = entry == nullptr || rpc::transforms_body(context.header.credential);
  link_.engine().refuse(*context.call, none ? 0 : entry->eligible_args,
                        none ? 0 : entry->eligible_results);
}

}  // namespace rrdk::service

namespace rrdk {

using service::Answer;

namespace {

constexpr uint64_t kLongestDelayNs = 60'000'000'000;

}  // namespace

ServerCall& ServerCall::operator=(ServerCall&& other) noexcept {
  if (this != &other) {
    if (context_ != nullptr && !base::forked)
      end_unanswered();
    context_ = std::exchange(other.context_, nullptr);
  }
  return *this;
}

ServerCall::~ServerCall() {
  if (context_ != nullptr && !base::forked)
    end_unanswered();
}

void ServerCall::end_unanswered() noexcept {
  context_->dispatcher->note(service::Mistake::kUnanswered, *context_);
  std::move(*this).reject(AcceptStat::kSystemErr);
}

uint32_t ServerCall::program() const noexcept {
  return context_->header.program;
}

uint32_t ServerCall::version() const noexcept {
  return context_->header.version;
}

uint32_t ServerCall::procedure() const noexcept {
  return context_->header.procedure;
}

uint32_t ServerCall::xid() const noexcept {
  return context_->header.xid;
}

const Credential& ServerCall::credential() const noexcept {
  return context_->header.credential;
}

std::optional<AuthSys> ServerCall::auth_sys() const {
  AuthSys identity;
  if (!decode(context_->header.credential, identity))
    return std::nullopt;
  return identity;
}

ServerConnection& ServerCall::connection() const noexcept {
  return *context_->dispatcher;
}

Memory& ServerCall::memory() noexcept {
  return context_->dispatcher->memory();
}

Decoder& ServerCall::args() noexcept {
  return context_->args;
}

Encoder& ServerCall::results() noexcept {
  return *context_->results;
}

void ServerCall::on_released(Released released, void* argument) noexcept {
  context_->call->on_ended = released;
  context_->call->user = argument;
}

Buffer ServerCall::result_buffer(uint32_t size) noexcept {
  Buffer buffer = memory().get(size);
  mem::Borrower& borrower = context_->call->borrower();
  if (buffer) [[likely]] {
    borrower.lend(buffer);
  } else {
    // More than any buffer has is no lack of buffers that others could end.
    if (size <= memory().largest_buffer())
      borrower.note_missing();
    context_->dispatcher->note(service::Mistake::kNoBuffers, *context_);
  }
  return buffer;
}

void ServerCall::reply() && {
  if (context_ == nullptr) [[unlikely]]
    return service::note_second_end("reply");
  std::exchange(context_, nullptr)->end(Answer::kResults);
}

void ServerCall::reply_after(uint64_t delay_ns) && {
  if (context_ == nullptr) [[unlikely]]
    return service::note_second_end("reply_after");
  context_->not_before_ns = Runtime::now_ns() + std::min(delay_ns, kLongestDelayNs);
  std::exchange(context_, nullptr)->end(Answer::kResults);
}

void ServerCall::reject(AcceptStat status) && {
  if (context_ == nullptr) [[unlikely]]
    return service::note_second_end("reject");
  // SUCCESS is no refusal: results would have to follow.
  context_->accept_stat = status == AcceptStat::kSuccess ? AcceptStat::kSystemErr : status;
  std::exchange(context_, nullptr)->end(Answer::kReject);
}

void ServerCall::reject_versions(uint32_t low, uint32_t high) && {
  if (context_ == nullptr) [[unlikely]]
    return service::note_second_end("reject_versions");
  context_->low = low;
  context_->high = high;
  std::exchange(context_, nullptr)->end(Answer::kMismatch);
}

void ServerCall::deny(AuthStat reason) && {
  if (context_ == nullptr) [[unlikely]]
    return service::note_second_end("deny");
  context_->auth_stat = reason;
  std::exchange(context_, nullptr)->end(Answer::kDeny);
}

void ServerCall::drop() && {
  if (context_ == nullptr) [[unlikely]]
    return service::note_second_end("drop");
  std::exchange(context_, nullptr)->end(Answer::kDrop);
}

}  // namespace rrdk
