// Calls that are authenticated by RPCSEC_GSS (RFC 2203), at the caller; lib/service/secured.cc is
// the other end.
//
//   establish_context   makes a context by NULL calls
//   begin_secured       the header, with space for number and checksum
//   seal                each time that the call is sent: number, checksum, protected arguments
//   open_reply          the reply's verifier, and its results
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/internals.h"
#include "calls/calls.h"
#include "gss/session.h"
#include "rpc/headers_datapath.h"
#include "rrdk/gss_context.h"

namespace rrdk {

namespace {

// The longest reply to a token (RFC 2203 section 5.2.3.1). Kerberos answers in a few hundred bytes:
// only the token of the call has a ticket.
constexpr uint32_t kLongestInitReply = 3072;
constexpr uint32_t kMostSteps = 8;

std::string refused(const Caller& caller, const std::string& why) {
  return caller.address() + ": no security context: " + why;
}

// One exchange of tokens. `step` says whether another one is needed.
Result<void> exchange(Call& call, const Binding& binding, gss::Session& session,
                      std::vector<std::byte>& handle, gss::Step& step, gss::Token& token) {
  const auto control = handle.empty() ? gss::Control::kInit : gss::Control::kContinueInit;
  const auto credential = gss::Session::credential(control, session.protection(), handle);
  auto made = SharedCredential::make(AuthFlavor::kRpcsecGss, credential);
  if (!made)
    return tl::unexpected(made.error());
  if (!call.set_credential(*made))
    return fail(Errc::kConnectionLost, "the connection has been destroyed");
  call.begin(binding, 0).put_opaque(token.bytes());
  call.expect_reply(kLongestInitReply);
  // A reply in the lane leaves it as it is, and that would be the header of the last reply.
  Internals::of(call).reply_header = {};
  constexpr const char* kTakesNone = "the server takes no RPCSEC_GSS: it did not expect a token";
  const CallStatus status = call.submit_and_wait();
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
  const ItemView name = in.get_opaque(kMaxAuthBody);
  handle.resize(name.size());
  name.copy_to(handle.data());
  const uint32_t major = in.get_u32();
  const uint32_t minor = in.get_u32();
  const uint32_t window = in.get_u32();
  const ItemView answer = in.get_opaque(kLongestInitReply);
  if (!in.at_end())
    return fail(Errc::kNotAPeer, "the answer to a token cannot be decoded");
  if (GSS_ERROR(major))
    return fail(Errc::kRefused, "the server refused the token: " + gss::describe(major, minor));
  std::vector<std::byte> joined;
  const std::span<const std::byte> next = gss::join(answer, joined);
  if (!step.complete())
    step = session.begin(next, token);
  if (!step.error.empty())
    return fail(Errc::kRefused, step.error);
  if (major != GSS_S_COMPLETE)
    return {};
  const Credential& verifier = Internals::of(call).reply_header.verifier;
  std::byte sum[kMaxAuthBody];
  verifier.body.copy_to(sum);  // decode_reply() takes none that is longer
  if (!step.complete() || verifier.flavor != AuthFlavor::kRpcsecGss ||
      !session.open(handle, window, {sum, verifier.body.size()}))
    return fail(Errc::kRefused, "the server did not prove that it has the key of its service");
  return {};
}

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
  if (options.protection < GssProtection::kNone || options.protection > GssProtection::kPrivacy)
    return fail(Errc::kInvalidArgument, refused(caller, "there is no such protection"));
  if (const size_t at = options.target.find('@'); at == 0 || at >= options.target.size() - 1)
    return fail(Errc::kInvalidArgument,
                refused(caller, "'" + options.target + "' is not of the form service@host"));
  if (Runtime::Impl::in_any_pass())  // before anything that takes time
    return fail(Errc::kInvalidArgument,
                refused(caller, "a callback or handler on a poll core would wait for itself"));
  auto identity = gss::Identity::initiator(options.principal);
  if (!identity)
    return fail(identity.error().code, refused(caller, identity.error().message));
  auto session =
      std::make_shared<gss::Session>(std::move(*identity), options.target, options.protection);
  gss::Token token;
  gss::Step step = session->begin({}, token);
  if (!step.error.empty())
    return fail(Errc::kNotFound, refused(caller, "'" + options.target + "': " + step.error));
  std::vector<std::byte> handle;
  Call call(caller);
  for (uint32_t i = 0; i != kMostSteps && session->blank().empty(); ++i) {
    if (auto exchanged = exchange(call, binding, *session, handle, step, token); !exchanged)
      return fail(exchanged.error().code, refused(caller, exchanged.error().message));
  }
  if (session->blank().empty())
    return fail(Errc::kRefused, refused(caller, "it takes too many steps"));
  return Internals::make<SharedCredential>(
      std::make_shared<const rpc::PreparedAuth>(std::move(session)));
}

void Call::Impl::begin_secured() noexcept {
  const gss::Session& session = *credential->session();
  rpc::encode_signed_call(*args, 0, {program, version, procedure.load(std::memory_order_relaxed)},
                          session.blank());
  head = session.transforms_body() ? 0 : static_cast<uint32_t>(args->run().size());
  try {
    if (protection == nullptr)
      protection = std::make_unique<gss::ProtectedCall>();
    protection->clear.clear();
  } catch (const std::bad_alloc&) {  // submit() finds it
    has_extras = true;
    reply_planned = false;
    bad_room = CallStatus::kNoMemory;
  }
}

// What was written is kept in `clear` if it must be protected, so that this can be done again when
// the call is sent again.
CallStatus Caller::Impl::seal(Call::Impl& call) noexcept {
  RRDK_ON_CORE(core_);
  RRDK_ASSERT(call.secured && call.credential != nullptr && call.protection != nullptr);
  gss::Session& session = *call.credential->session();
  gss::ProtectedCall& protection = *call.protection;
  call.reply_header = {};
  call.reply_header.auth_stat = AuthStat::kGssCtxProblem;  // for kAuthError
  if (!call.sealed && !session.take_number(protection.sequence))
    return CallStatus::kAuthError;
  const bool is_clear = session.transforms_body() && !call.sealed;
  if (is_clear && protection.clear.pieces().empty())
    std::swap(protection.clear, call.message);
  const uint32_t length = call.header_bytes();
  std::byte* const header = header_of(is_clear ? protection.clear : call.message, length);
  if (header == nullptr)
    return CallStatus::kTooLarge;
  xdr::store_u32(header, call.xid);
  if (!session.sign_header(header, protection.sequence))
    return CallStatus::kAuthError;
  if (!is_clear)
    return CallStatus::kOk;
  CallStatus status = CallStatus::kOk;
  {
    Encoder out(call.message, memory, defaults.inline_size, defaults.max_call);
    status = put_protected(out, session, protection, {header, length});
  }
  if (status != CallStatus::kOk)
    call.message.clear();  // others may be waiting for its buffers
  return status;
}

CallStatus Caller::Impl::open_reply(Call::Impl& call) noexcept {
  gss::Session& session = *call.credential->session();
  rpc::ReplyHeader& header = call.reply_header;
  if (header.reply_stat == ReplyStat::kDenied) {  // such a reply has no verifier
    const bool forgotten = header.auth_stat == AuthStat::kGssCredProblem ||
                           header.auth_stat == AuthStat::kGssCtxProblem;
    // An earlier connection has carried the call, and the server may have run it then.
    return call.resend && forgotten ? CallStatus::kConnectionLost : rpc::call_status(header);
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

}  // namespace rrdk
