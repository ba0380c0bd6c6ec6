// Calls of services with an interceptor (rrdk/interceptor.h). Each of their procedures has
// enter_intercepted() as its handler, so calls without an interceptor pay nothing.
//
//   enter_intercepted    asks the interceptor, then enters the procedure's own handler
//   tell_interceptor     from Dispatcher::send(), or, in a burst of plain calls, after the handler
#include <utility>

#include "base/assert.h"
#include "rpc/headers_datapath.h"
#include "rrdk/interceptor.h"
#include "service/dispatcher.h"
#include "service/service_table.h"

namespace rrdk::service {

namespace {

// What the caller sees. Without a `whole` answer its connection is closed (V1-ERR-20).
CallOutcome outcome_of(const ServedCall& call, bool whole) noexcept {
  if (!whole)
    return {.status = CallStatus::kConnectionLost};
  switch (call.answer) {
    case Answer::kResults:
      return {};
    case Answer::kReject:
      return {.status = rpc::call_status(call.accept_stat)};
    case Answer::kMismatch:
      return {.status = CallStatus::kProgMismatch};
    case Answer::kDeny:
      return {.status = CallStatus::kAuthError, .auth_stat = call.auth_stat};
    case Answer::kTransportError:
      return {.status = CallStatus::kChunkError};
    case Answer::kDrop:
      break;
  }
  return {.status = CallStatus::kConnectionLost};
}

void enter(const InterceptedHandler& own, const Admission& admission, ServerCall&& call) {
  switch (admission.kind()) {
    case Admission::Kind::kEnter:
      return own.handler(std::move(call), own.context);
    case Admission::Kind::kReject:
      return std::move(call).reject(static_cast<AcceptStat>(admission.reason()));
    case Admission::Kind::kDeny:
      return std::move(call).deny(static_cast<AuthStat>(admission.reason()));
    case Admission::Kind::kDrop:
      return std::move(call).drop();
  }
}

}  // namespace

void enter_intercepted(ServerCall handle, void* context) {
  const auto& own = *static_cast<const InterceptedHandler*>(context);
  const ServiceInterceptor& interceptor = *own.interceptor;
  ServedCall& call = CallAccess::of(handle);
  const bool tells = interceptor.after != nullptr;
  // Only the record of a burst of plain calls is still this call's when its handler has returned.
  const bool plain = call.plain;
  call.note = 0;
  call.intercepted = tells;
  if (tells && call.replay == nullptr)
    call.replay = &intercepted_only;
  Admission admission;
  if (interceptor.before != nullptr)
    admission = interceptor.before(std::as_const(handle), call.note, interceptor.context);
  enter(own, admission, std::move(handle));
  if (plain && tells && call.answered)
    call.dispatcher->end_intercepted_plain(call);
}

// Its answer may leave from the lane, without send().
void Dispatcher::end_intercepted_plain(ServedCall& call) noexcept {
  RRDK_ASSERT(call.plain && call.answered && call.replay == &intercepted_only);
  if (call.answer == Answer::kResults && !has_good_results(call)) {
    call.answer = Answer::kReject;
    call.accept_stat = AcceptStat::kSystemErr;
  }
  tell_interceptor(call, true);
  call.replay = nullptr;
}

void Dispatcher::tell_interceptor(ServedCall& call, bool whole) noexcept {
  call.intercepted = false;
  const auto& own = *static_cast<const InterceptedHandler*>(call.procedure->context);
  ServerCall handle = CallAccess::handle(call);
  own.interceptor->after(std::as_const(handle), outcome_of(call, whole), call.note,
                         own.interceptor->context);
  CallAccess::take(std::move(handle));  // it has been answered
}

}  // namespace rrdk::service
