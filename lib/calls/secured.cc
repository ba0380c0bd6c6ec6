// Calls that are authenticated by RPCSEC_GSS (RFC 2203), at the caller; lib/service/secured.cc is
// the other end.
//
//   establish_context   makes a context (new_context.h)
//   begin_secured       the header, with space for number and checksum
//   seal                each time that the call is sent: number, checksum, protected arguments
//   open_reply          the reply's verifier, and its results
//   take_denied         once the server has forgotten the context
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/internals.h"
#include "calls/calls.h"
#include "calls/new_context.h"
#include "gss/session.h"
#include "rpc/headers_datapath.h"
#include "rrdk/gss_context.h"

namespace rrdk {

namespace {

// A call's message of more bytes may have chunks.
constexpr uint64_t kSurelyInline = 256;

// The header of a call's message lies in one piece, since it was written first. Null: it does not.
std::byte* header_of(const Message& message, uint32_t length) noexcept {
  const std::span<const Piece> pieces = message.pieces();
  const bool is_whole = !pieces.empty() && !pieces[0].item && pieces[0].bytes.length >= length;
  return is_whole ? pieces[0].bytes.data : nullptr;
}

// Writes the message of which `call.clear` is the clear form.
CallStatus put_protected(Encoder& out, gss::Session& session, const gss::ProtectedCall& call,
                         std::span<const std::byte> header) noexcept {
  try {
    std::vector<std::byte> clear;
    clear.reserve(call.clear.stream_length());
    clear.resize(sizeof(uint32_t));
    xdr::store_u32(clear.data(), call.sequence);
    gss::append(clear, call.clear.pieces(), static_cast<uint32_t>(header.size()));
    out.put_fixed(header);
    if (!session.protect(clear, out))
      return CallStatus::kAuthError;
  } catch (const std::bad_alloc&) {
    return CallStatus::kNoMemory;
  }
  if (out.ok())
    return CallStatus::kOk;
  return out.fault() == EncoderFault::kNoMemory ? CallStatus::kNoMemory : CallStatus::kTooLarge;
}

}  // namespace

Result<SharedCredential> establish_context(Caller& caller, const Binding& binding,
                                           const GssContextOptions& options) {
  const auto refused = [&](Errc code, const std::string& why) {
    return fail(code, caller.address() + ": no security context: " + why);
  };
  if (options.protection < GssProtection::kNone || options.protection > GssProtection::kPrivacy)
    return refused(Errc::kInvalidArgument, "there is no such protection");
  if (const size_t at = options.target.find('@'); at == 0 || at >= options.target.size() - 1)
    return refused(Errc::kInvalidArgument,
                   "'" + options.target + "' is not of the form service@host");
  if (Runtime::Impl::in_any_pass())  // before anything that takes time
    return refused(Errc::kInvalidArgument,
                   "a callback or handler on a poll core would wait for itself");
  auto initiator = std::make_shared<gss::Initiator>(options.target, options.principal,
                                                    options.protection, binding);
  calls::NewContext context;
  Call call(caller);
  Result<void> step = context.ask_kdc(*initiator);
  while (step && !context.is_open()) {
    step = context.begin_call(call, binding)
               .and_then([&] {
                 (void)call.submit_and_wait();
                 return context.take_reply(call);
               })
               .and_then([&] { return context.check_answer(); });
  }
  if (!step)
    return refused(step.error().code, step.error().message);
  auto session = context.take_session();
  initiator->principal = session->own_name();  // also if another one is the default by then
  initiator->renewed(std::move(session));
  return Internals::make<SharedCredential>(
      std::make_shared<const rpc::PreparedAuth>(std::move(initiator)));
}

void Call::Impl::begin_secured() noexcept {
  try {
    if (protection == nullptr)
      protection = std::make_unique<gss::ProtectedCall>();
  } catch (const std::bad_alloc&) {  // submit() finds it
    args->fail();
    secured = reply_planned = false;
    has_extras = true;
    bad_room = CallStatus::kNoMemory;
    head = 0;
    return;
  }
  protection->clear.clear();
  protection->unwrapped.clear();
  protection->joined = {};
  const auto session = credential->initiator()->session();
  protection->blank_bytes = static_cast<uint32_t>(session->blank().size());
  rpc::encode_signed_call(*args, 0, {program, version, procedure.load(std::memory_order_relaxed)},
                          session->blank());
  head = protects_body() ? 0 : static_cast<uint32_t>(args->run().size());
}

// Gives the call a number of the context that is present, unless it has one and was not sent with
// that: when something else was missing then, it keeps its number, and does not move the window.
CallStatus Caller::Impl::number(Call::Impl& call) noexcept {
  gss::ProtectedCall& its = *call.protection;
  auto present = call.credential->initiator()->session();
  const bool was_sent = its.complete && !call.sealed;
  try {
    if (path_ == nullptr)
      path_ = std::make_shared<gss::Path>(context_owner());
    const uint64_t now_ns = base::Tsc::now_ns();
    if (its.numbered && !was_sent && its.session == present &&
        present->keep_number(path_, now_ns, its))
      return CallStatus::kOk;
    give_back_number(call);
    its.session = std::move(present);
    if (its.session->blank().size() != its.blank_bytes) {
      call.head = 0;  // begin() writes another header
      its.session.reset();
      return CallStatus::kAuthError;
    }
    its.may_be_fetched =
        std::max(call.message.stream_length(), its.clear.stream_length()) > kSurelyInline;
    switch (its.session->take_number(path_, now_ns, its)) {
      case gss::Numbering::kTaken:
        return CallStatus::kOk;
      case gss::Numbering::kLater:
        return CallStatus::kFull;
      case gss::Numbering::kOver:
        break;
    }
    return CallStatus::kAuthError;
  } catch (const std::bad_alloc&) {
    return CallStatus::kNoMemory;
  }
}

void Caller::Impl::give_back_number(Call::Impl& call) noexcept {
  gss::ProtectedCall& its = *call.protection;
  if (its.session != nullptr)
    its.session->give_back(its);
}

// What was written is kept in `clear` if it must be protected, so that this can be done again when
// the call is sent again: with the context that is present then, if that fits into the header.
CallStatus Caller::Impl::seal(Call::Impl& call) noexcept {
  RRDK_ON_CORE(core_);
  RRDK_ASSERT(call.secured && call.credential != nullptr && call.protection != nullptr);
  gss::ProtectedCall& protection = *call.protection;
  call.reply_header = {};
  call.reply_header.auth_stat = AuthStat::kGssCtxProblem;  // for kAuthError
  if (const CallStatus numbered = number(call); numbered != CallStatus::kOk)
    return numbered;
  gss::Session& session = *protection.session;
  const bool is_clear = session.transforms_body() && !protection.complete;
  if (is_clear && protection.clear.pieces().empty())
    std::swap(protection.clear, call.message);
  const uint32_t length = call.header_bytes();
  std::byte* const header = header_of(is_clear ? protection.clear : call.message, length);
  if (header == nullptr)
    return CallStatus::kTooLarge;
  xdr::store_u32(header, call.xid);
  std::ranges::copy(session.blank(), header + rpc::kCallTargetBytes);
  if (!session.sign_header(header, protection.sequence))
    return CallStatus::kAuthError;
  protection.complete = true;
  if (!is_clear)
    return CallStatus::kOk;
  CallStatus status = CallStatus::kOk;
  {
    Encoder out(call.message, memory, defaults.inline_size, defaults.max_call);
    status = put_protected(out, session, protection, {header, length});
  }
  protection.complete = status == CallStatus::kOk;
  if (!protection.complete)
    call.message.clear();  // others may be waiting for its buffers
  return status;
}

// The server does not know the context, or its time is over (RFC 2203 section 5.3.3.3). It has not
// looked at the call.
static bool is_forgotten(const rpc::ReplyHeader& header) noexcept {
  return header.reply_stat == ReplyStat::kDenied &&
         (header.auth_stat == AuthStat::kGssCredProblem ||
          header.auth_stat == AuthStat::kGssCtxProblem);
}

CallStatus Caller::Impl::open_reply(Call::Impl& call) noexcept {
  gss::Session& session = *call.protection->session;
  path_->note_arrival(call.protection->position);
  rpc::ReplyHeader& header = call.reply_header;
  if (header.reply_stat == ReplyStat::kDenied) {  // such a reply has no verifier
    // An earlier connection has carried the call, and the server may have run it then.
    return call.resend && is_forgotten(header) ? CallStatus::kConnectionLost
                                               : rpc::call_status(header);
  }
  const bool has_results = header.accept_stat == AcceptStat::kSuccess && session.transforms_body();
  gss::ProtectedCall& protection = *call.protection;
  const auto refuse = [&](AuthStat why) {
    header.auth_stat = why;
    call.decoder.fail();  // nothing in it can be believed
    return CallStatus::kAuthError;
  };
  const auto refuse_forged = [&] {
    carrier_->engine().count_refusal(Refusal::kGssReply);
    return refuse(AuthStat::kInvalidResp);
  };
  if (header.verifier.flavor != AuthFlavor::kRpcsecGss ||
      !session.verify_reply(protection.sequence, header.verifier.body))
    return refuse_forged();
  try {
    if (has_results && !session.open_results(protection, call.decoder, header.verifier.body))
      return refuse_forged();
  } catch (const std::bad_alloc&) {
    return refuse(AuthStat::kFailed);  // the server has run the call: not kNoMemory
  }
  header.auth_stat = AuthStat::kOk;
  if (has_results)
    call.decoder = Decoder(protection.results, 0);
  return rpc::call_status(header);
}

// Also if seal() could not use the context. The call is left as it was before it was sent.
bool Caller::Impl::take_denied(Call::Impl& call, CallStatus status) noexcept {
  const bool was_refused =
      status == CallStatus::kAuthError || status == CallStatus::kConnectionLost;
  const bool was_answered = call.status == CallStatus::kOk;
  const bool lacks_context =
      was_answered ? is_forgotten(call.reply_header) : call.status == CallStatus::kAuthError;
  if (!was_refused || !lacks_context || call.protection->session == nullptr)
    return false;
  if (was_answered && call.reply_header.auth_stat == AuthStat::kGssCredProblem)
    call.protection->session->note_unknown();
  if (!wait_for_context(call))
    return false;
  const AuthStat why = call.reply_header.auth_stat;  // should there be no other context
  call.reply_header = {};
  call.reply_header.auth_stat = why;
  call.decoder = {};
  call.receive.reset();
  return true;
}

}  // namespace rrdk
