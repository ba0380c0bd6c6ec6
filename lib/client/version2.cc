// The parts of version 2 besides calls, as programs see them: transport properties, and messages of
// registered types.
#include "rrdk/version2.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "base/clock.h"
#include "base/internals.h"
#include "client/client_impl.h"
#include "engine/version2/optional.h"
#include "rrdk/extensions.h"

namespace rrdk {

// Transport properties of draft-04, as programs see them: requests go to the core, and known values
// are read where the engine keeps them.

void ClientConnection::Impl::request_receive_size(uint32_t bytes) {
  size_requests_.ask();
  post([this, bytes] {
    bool sent = is_up() && up()->engine().request_receive_size(bytes);
    if (sent)
      core().mark_dirty(*up());
    else
      size_requests_.refuse();
  });
}

void ClientConnection::Impl::raise_receive_size(uint32_t bytes) {
  post([this, bytes] {
    if (is_up())
      up()->engine().properties().raise(bytes);
  });
}

ReceiveSizes ClientConnection::Impl::receive_sizes() const {
  // First what has ended, then the sizes, which are set before that is counted.
  const Stats counted = link_stats();
  std::lock_guard lock(link_mutex_);
  const bool is_there = link_ && is_established();
  return size_requests_.report(is_there ? link_->receive_sizes() : runtime::Link::ReceiveSizes{},
                               counted);
}

void request_receive_size(ClientConnection& connection, uint32_t bytes) {
  Internals::of(connection).request_receive_size(bytes);
}
void raise_receive_size(ClientConnection& connection, uint32_t bytes) {
  Internals::of(connection).raise_receive_size(bytes);
}
ReceiveSizes receive_sizes(const ClientConnection& connection) {
  return Internals::of(connection).receive_sizes();
}

// Messages of registered types (rrdk/extensions.h), as programs send them: checked in the caller's
// thread, handed to the core, and ended there as a call is.

// From send_option() until its end has been reported.
struct ClientConnection::Impl::OptionCall {
  std::vector<std::byte> info, payload;
  uint32_t timeout_ms;
  OptionDone done;
  void* argument;
  engine::Optional option;
  engine::OutgoingCall outgoing;
  std::array<std::byte, kMostOptionInfo + kMostOptionPayload> room;
};

namespace {

// Without an answer nothing is known. A code that the peer uses for what it does not know means no;
// every other code shows that it examined the message (draft-00 section 3.1).
OptionSupport support_of(CallStatus status, const proto::ErrorBody& error) {
  switch (status) {
    case CallStatus::kOk:
    case CallStatus::kMalformedReply:
    case CallStatus::kChunkError:
      return OptionSupport::kSupported;
    case CallStatus::kVersionError:
      return OptionSupport::kUnsupported;
    case CallStatus::kRemoteError: {
      bool unknown =
          error.code == proto::ErrorCode::kBadOption || error.code == proto::ErrorCode::kBadProc;
      return unknown ? OptionSupport::kUnsupported : OptionSupport::kSupported;
    }
    default:
      return OptionSupport::kUnknown;
  }
}

bool was_refused(CallStatus status) {
  return status == CallStatus::kRemoteError || status == CallStatus::kChunkError;
}

}  // namespace

Result<void> ClientConnection::Impl::send_option(const OptionRequest& request, OptionDone done,
                                                 void* argument) {
  const OptionType* type = options.version2.extensions != nullptr
                               ? options.version2.extensions->find(request.type)
                               : nullptr;
  const std::string what = "send_option(), type " + std::to_string(request.type) + ": ";
  if (type == nullptr)
    return fail(Errc::kInvalidArgument,
                what + "ClientOptions::version2.extensions has no such type");
  if (const auto* fault = engine::fault_of(*type, false, request.info, request.payload))
    return fail(Errc::kInvalidArgument, what + fault->what);
  auto call = std::make_shared<OptionCall>();
  call->info.assign(request.info.begin(), request.info.end());
  call->payload.assign(request.payload.begin(), request.payload.end());
  call->timeout_ms = request.timeout_ms != 0 ? request.timeout_ms : options.call_timeout_ms;
  call->done = done;
  call->argument = argument;
  call->option.type = request.type;
  call->option.info = call->info;
  call->option.payload = call->payload;
  call->option.room = call->room;
  call->outgoing.option = &call->option;
  call->outgoing.by_library = true;
  // Only the core has it: buffers go back there, and before the program continues after the
  // callback.
  post([this, call = std::move(call)] { start_option(call); });
  return {};
}

// It does not wait for a connection: what was learned from the last peer by trial may not apply to
// the next.
void ClientConnection::Impl::start_option(const std::shared_ptr<OptionCall>& call) {
  if (!is_up())
    return end_option(*call, CallStatus::kConnectionLost);
  if (call->timeout_ms != 0)
    call->outgoing.deadline_ns = base::Tsc::now_ns() + uint64_t{call->timeout_ms} * 1'000'000;
  options_.push_back(call);
  up()->engine().submit(call->outgoing);
  core().mark_dirty(*up());
}

void ClientConnection::Impl::on_option_ended(engine::OutgoingCall& outgoing) {
  auto at =
      std::ranges::find(options_, &outgoing, [](const auto& call) { return &call->outgoing; });
  std::shared_ptr<OptionCall> call = std::move(*at);
  options_.erase(at);
  end_option(*call, outgoing.status);
}

void ClientConnection::Impl::end_option(OptionCall& call, CallStatus status) {
  OptionOutcome outcome;
  bool by_us = status == CallStatus::kConnectionLost &&
               (shutting_down || draining_.load(std::memory_order_relaxed));
  outcome.status = by_us ? CallStatus::kShutdown : status;
  outcome.support = support_of(status, call.outgoing.error);
  if (was_refused(status))
    outcome.error_code = call.outgoing.error.raw;
  if (status == CallStatus::kOk) {
    const engine::Optional& option = call.option;
    outcome.type = option.answer_type;
    outcome.info.assign(option.answer_info.begin(), option.answer_info.end());
    outcome.payload.assign(option.answer_payload.begin(), option.answer_payload.end());
  }
  if (call.done != nullptr)
    call.done(std::move(outcome), call.argument);
}

Result<OptionOutcome> ClientConnection::Impl::send_option_and_wait(const OptionRequest& request) {
  struct Waiting {
    OptionOutcome outcome;
    std::atomic<bool> over = false;
  };
  if (Runtime::Impl::in_any_pass())
    return fail(Errc::kInvalidArgument,
                "send_option_and_wait() in a callback or handler on a poll core would wait for "
                "itself: use send_option()");
  Waiting waiting;
  auto tell = [](OptionOutcome&& outcome, void* argument) {
    auto& waits = *static_cast<Waiting*>(argument);
    waits.outcome = std::move(outcome);
    waits.over.store(true, std::memory_order_release);
  };
  if (Result<void> sent = send_option(request, tell, &waiting); !sent)
    return tl::unexpected(sent.error());
  runtime.wait_until([&] { return waiting.over.load(std::memory_order_acquire); });
  return std::move(waiting.outcome);
}

Result<void> send_option(ClientConnection& connection, const OptionRequest& request,
                         OptionDone done, void* argument) {
  return Internals::of(connection).send_option(request, done, argument);
}
Result<OptionOutcome> send_option_and_wait(ClientConnection& connection,
                                           const OptionRequest& request) {
  return Internals::of(connection).send_option_and_wait(request);
}

}  // namespace rrdk
