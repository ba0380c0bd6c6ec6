// From a handler's answer to the engine.
#include "rpc/reply_datapath.h"

#include <algorithm>
#include <utility>

#include "rpc/auth.h"
#include "runtime/poll_core.h"
#include "server/server_impl.h"
#include "server/server_link.h"

namespace rrdk::server {

namespace {

void finish_on_core(runtime::WorkItem& item) {
  auto& context = static_cast<CallContext&>(item);
  context.link->finish(context);
}

}  // namespace

void CallContext::end(Answer how) noexcept {
  answer = how;
  if (link->core().here()) {
    link->finish(*this);
    return;
  }
  run = finish_on_core;
  link->core().submit(*this);
}

// Calls may come while the link is not yet up; on its way down it delays no more.
void ServerLink::finish(CallContext& context) noexcept {
  if (context.not_before_ns > core().now() && state() <= runtime::LinkState::kUp)
    delay(context);
  else
    send(context);
}

void ServerLink::delay(CallContext& context) noexcept {
  context.previous = nullptr;
  context.following = delayed_;
  if (delayed_ != nullptr)
    delayed_->previous = &context;
  delayed_ = &context;
  context.fire = [](runtime::Timer& timer) {
    auto& due = static_cast<CallContext&>(timer);
    ServerLink& link = *due.link;
    (due.previous != nullptr ? due.previous->following : link.delayed_) = due.following;
    if (due.following != nullptr)
      due.following->previous = due.previous;
    link.send(due);
  };
  core().timers().start(context, context.not_before_ns);
}

// An empty reply: forgets what a handler may have written.
void ServerLink::restart_reply(CallContext& context) noexcept {
  context.results.emplace(context.call->reply(), server_.runtime.memory,
                          context.call->inline_size(), context.call->max_reply());
}

void ServerLink::send(CallContext& context) noexcept {
  if (context.answer == Answer::kResults && !context.results->ok()) [[unlikely]] {
    context.answer = Answer::kReject;
    context.accept_stat = AcceptStat::kSystemErr;
  }
  if (context.answer != Answer::kResults) [[unlikely]] {
    rejected_.fetch_add(1, std::memory_order_relaxed);
    restart_reply(context);
    if (context.answer == Answer::kDeny)
      rpc::encode_auth_error(*context.results, context.header.xid, context.auth_stat);
    else if (context.service != nullptr)
      rpc::encode_accepted(*context.results, context.header.xid, context.accept_stat,
                           context.service->low, context.service->high);
    else
      rpc::encode_accepted(*context.results, context.header.xid, context.accept_stat);
  }
  bool whole = context.results->ok();
  context.results.reset();  // finishes the message
  if (context.replay != nullptr) [[unlikely]]
    client_.replays.finish(context, context.answer == Answer::kDrop, whole, core().now());
  // What can not even be refused, for want of a buffer, is not answered at all (V1-ERR-20).
  if (context.answer == Answer::kDrop || !whole) [[unlikely]] {
    dropped_ = true;
    engine().drop(*context.call);
  } else if (context.answer == Answer::kTransportError) [[unlikely]] {
    refuse_chunks(context);
  } else {
    engine().reply(*context.call);
  }
  contexts_.put(context);
  core().mark_dirty(*this);
}

void ServerLink::refuse_chunks(CallContext& context) noexcept {
  const ProcedureBinding* entry = context.service->binding->find(context.header.procedure);
  bool none = entry == nullptr || rpc::transforms_body(context.header.credential);
  engine().refuse(*context.call, none ? 0 : entry->eligible_args,
                  none ? 0 : entry->eligible_results);
}

}  // namespace rrdk::server

namespace rrdk {

using server::Answer;

namespace {

constexpr uint64_t kLongestDelayNs = 60'000'000'000;

}  // namespace

ServerCall& ServerCall::operator=(ServerCall&& other) noexcept {
  if (this != &other) {
    if (context_ != nullptr)
      std::move(*this).reject(AcceptStat::kSystemErr);
    context_ = std::exchange(other.context_, nullptr);
  }
  return *this;
}

ServerCall::~ServerCall() {
  if (context_ != nullptr)
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

const std::string& ServerCall::peer() const noexcept {
  return context_->link->peer();
}

Memory& ServerCall::memory() noexcept {
  return context_->link->server().runtime.memory;
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

void ServerCall::reply() && {
  std::exchange(context_, nullptr)->end(Answer::kResults);
}

void ServerCall::reply_after(uint64_t delay_ns) && {
  context_->not_before_ns = Runtime::now_ns() + std::min(delay_ns, kLongestDelayNs);
  std::exchange(context_, nullptr)->end(Answer::kResults);
}

void ServerCall::reject(AcceptStat status) && {
  // SUCCESS is no refusal: results would have to follow.
  context_->accept_stat = status == AcceptStat::kSuccess ? AcceptStat::kSystemErr : status;
  std::exchange(context_, nullptr)->end(Answer::kReject);
}

void ServerCall::deny(AuthStat reason) && {
  context_->auth_stat = reason;
  std::exchange(context_, nullptr)->end(Answer::kDeny);
}

void ServerCall::drop() && {
  std::exchange(context_, nullptr)->end(Answer::kDrop);
}

}  // namespace rrdk
