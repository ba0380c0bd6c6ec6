// Tells the server of contexts that have no user any more (RFC 2203 section 5.4), so that it need
// not keep them until their tickets have ended.
//
// It is a courtesy: nothing waits for such a call, and a context whose connections are gone ends
// without one. The calls count neither as the program's nor for a drain.
#include <algorithm>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "client/client_impl.h"
#include "rpc/headers_datapath.h"

namespace rrdk {

namespace {

// Contexts that wait until others have been ended. Further ones are left to the server.
constexpr size_t kMostWaiting = 1024;
// Such calls at a time. One that is not answered holds a credit for as long as the connection
// lasts, so there are no more then.
constexpr size_t kMostLastCalls = 4;
constexpr uint32_t kHeaderBytes = 1024;

}  // namespace

struct ClientConnection::Impl::LastCall : engine::OutgoingCall {
  LastCall() { by_library = secured = true; }
  std::unique_ptr<gss::Session> session;  // null: the call is not in use
  uint32_t sequence = 0;
};

// Any thread.
void ClientConnection::Impl::end_context(std::unique_ptr<gss::Session> session) noexcept {
  try {
    const std::lock_guard lock(ended_mutex_);
    if (ended_contexts_.size() == kMostWaiting)
      return;
    post([this] { end_contexts(); });
    ended_contexts_.push_back(std::move(session));
  } catch (const std::bad_alloc&) {
    return;  // the server forgets it in time
  }
}

// What has ended is dropped without a link.
void ClientConnection::Impl::end_contexts() noexcept {
  RRDK_ON_CORE(core());
  const bool can_send = link_ != nullptr && (is_up() || drains_up_) && !ignores_last_calls_;
  for (;;) {
    LastCall* const free = can_send ? free_last_call() : nullptr;
    std::unique_ptr<gss::Session> next;
    {
      const std::lock_guard lock(ended_mutex_);
      if (ended_contexts_.empty() || (can_send && free == nullptr))
        return;
      next = std::move(ended_contexts_.back());
      ended_contexts_.pop_back();
    }
    if (free != nullptr)
      send_last_call(*free, std::move(next));
  }
}

ClientConnection::Impl::LastCall* ClientConnection::Impl::free_last_call() noexcept {
  const auto found =
      std::ranges::find_if(last_calls_, [](const auto& call) { return call->session == nullptr; });
  if (found != last_calls_.end())
    return found->get();
  if (last_calls_.size() == kMostLastCalls)
    return nullptr;
  try {
    return last_calls_.emplace_back(std::make_unique<LastCall>()).get();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

// It has no protected body, as with Linux's client; section 5.4 does not say.
void ClientConnection::Impl::send_last_call(LastCall& call, std::unique_ptr<gss::Session> session) {
  const rpc::CallTarget& target = session->begin_end();
  {
    Encoder out(call.message, runtime.memory, kHeaderBytes, kHeaderBytes);
    rpc::encode_signed_call(out, 0, target, session->blank());
    if (!out.ok())
      return;
  }
  call.session = std::move(session);
  call.deadline_ns = base::Tsc::now_ns() + kCourtesyNs;
  link_->engine().submit(call);
  core().mark_dirty(*link_);
}

CallStatus ClientConnection::Impl::seal_last_call(LastCall& call) noexcept {
  std::byte* const header = call.message.pieces().front().bytes.data;
  xdr::store_u32(header, call.xid);
  if (!call.sealed)
    call.sequence = call.session->take_last_number();
  return call.session->sign_header(header, call.sequence) ? CallStatus::kOk
                                                          : CallStatus::kAuthError;
}

// Whatever the server has said, there is nothing more to do.
void ClientConnection::Impl::on_last_call_ended(engine::OutgoingCall& outgoing) noexcept {
  auto& call = static_cast<LastCall&>(outgoing);
  ignores_last_calls_ |= call.status == CallStatus::kTimeout;
  call.release();
  call.session.reset();
  try {
    post([this] { end_contexts(); });  // not here: it may have ended while it was submitted
  } catch (const std::bad_alloc&) {
    return;  // others that wait are ended later, or not
  }
}

bool ClientConnection::Impl::is_ending_contexts() const noexcept {
  return std::ranges::any_of(last_calls_,
                             [](const auto& call) { return call->session != nullptr; });
}

CallStatus ClientConnection::Impl::seal_call(engine::OutgoingCall& call) {
  return call.by_library ? seal_last_call(static_cast<LastCall&>(call))
                         : seal(static_cast<Call::Impl&>(call));
}

}  // namespace rrdk
