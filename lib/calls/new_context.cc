#include "calls/new_context.h"

#include <span>
#include <utility>

#include "base/internals.h"
#include "calls/calls.h"
#include "rpc/headers_datapath.h"
#include "rrdk/gss_context.h"

namespace rrdk::calls {

namespace {

// The longest reply to a token (RFC 2203 section 5.2.3.1). Kerberos answers in a few hundred bytes:
// only the token of the call has a ticket.
constexpr uint32_t kLongestInitReply = 3072;
constexpr uint32_t kMostSteps = 8;

}  // namespace

Result<void> NewContext::ask_kdc(const gss::Initiator& initiator) {
  auto identity = gss::Identity::initiator(initiator.principal);
  if (!identity)
    return tl::unexpected(identity.error());
  const Binding& binding = initiator.null_calls;
  session_ = gss::Session::make(std::move(*identity), initiator.target, initiator.protection,
                                {binding.program, binding.version, 0});
  step_ = session_->begin({}, token_);
  if (!step_.error.empty())
    return fail(Errc::kNotFound, "'" + initiator.target + "': " + step_.error);
  return {};
}

Result<void> NewContext::begin_call(Call& call, const Binding& binding) {
  if (++calls_ > kMostSteps)
    return fail(Errc::kRefused, "it takes too many steps");
  const auto control = handle_.empty() ? gss::Control::kInit : gss::Control::kContinueInit;
  const auto credential = gss::Session::credential(control, session_->protection(), handle_);
  auto made = SharedCredential::make(AuthFlavor::kRpcsecGss, credential);
  if (!made)
    return tl::unexpected(made.error());
  if (!call.set_credential(*made))
    return fail(Errc::kConnectionLost, "the connection has been destroyed");
  call.begin(binding, 0).put_opaque(token_.bytes());
  call.expect_reply(kLongestInitReply);
  // A reply in the lane leaves it as it is, and that would be the header of the last reply.
  Internals::of(call).reply_header = {};
  return {};
}

Result<void> NewContext::take_reply(Call& call) {
  constexpr const char* kTakesNone = "the server takes no RPCSEC_GSS: it did not expect a token";
  const CallStatus status = call.status();
  if (status == CallStatus::kGarbageArgs)
    return fail(Errc::kNotAPeer, kTakesNone);
  if (status == CallStatus::kAuthError)
    return fail(Errc::kRefused,
                std::string("the server denied the token: ") + to_string(call.auth_stat()));
  if (status != CallStatus::kOk)
    return fail(errc_of(status).value_or(Errc::kConnectionLost),
                std::string("the call with the token ended with: ") + to_string(status));
  Decoder& in = call.results();
  if (in.at_end())
    return fail(Errc::kNotAPeer, kTakesNone);
  const auto copy = [](const ItemView& from, std::vector<std::byte>& to) {
    to.resize(from.size());
    from.copy_to(to.data());
  };
  copy(in.get_opaque(kMaxAuthBody), handle_);
  const uint32_t major = in.get_u32();
  const uint32_t minor = in.get_u32();
  window_ = in.get_u32();
  copy(in.get_opaque(kLongestInitReply), answer_);
  if (!in.at_end())
    return fail(Errc::kNotAPeer, "the answer to a token cannot be decoded");
  if (GSS_ERROR(major))
    return fail(Errc::kRefused, "the server refused the token: " + gss::describe(major, minor));
  is_last_ = major == GSS_S_COMPLETE;
  const Credential& verifier = Internals::of(call).reply_header.verifier;
  if (verifier.flavor == AuthFlavor::kRpcsecGss)
    copy(verifier.body, verifier_);  // decode_reply() takes none that is longer than kMaxAuthBody
  else
    verifier_.clear();
  return {};
}

Result<void> NewContext::check_answer() {
  if (!step_.complete())
    step_ = session_->begin(answer_, token_);
  if (!step_.error.empty())
    return fail(Errc::kRefused, step_.error);
  if (!is_last_)
    return {};
  if (!step_.complete() || verifier_.empty() || !session_->open(handle_, window_, verifier_))
    return fail(Errc::kRefused, "the server did not prove that it has the key of its service");
  return {};
}

}  // namespace rrdk::calls
