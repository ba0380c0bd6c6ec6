// Calls that are authenticated by RPCSEC_GSS (RFC 2203), at the caller; lib/service/secured.cc is
// the other end.
//
//   establish_context   makes a context by NULL calls
//   begin_secured       the header, with space for number and checksum
//   seal                each time that the call is sent: number, checksum, protected arguments
//   open_reply          the reply's verifier, and its results
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

// Of a reply to a token (RFC 2203 section 5.2.3.1), with a ticket of a directory service.
constexpr uint32_t kLongestInitReply = 65'536 + 1024;
constexpr uint32_t kMostSteps = 8;

std::string refused(Caller& caller, const std::string& why) {
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
  if (const CallStatus status = call.submit_and_wait(); status != CallStatus::kOk)
    return fail(errc_of(status), std::string("the server answered: ") + to_string(status));
  Decoder& in = call.results();
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
  const ItemView& checksum = Internals::of(call).reply_header.verifier.body;
  std::byte sum[kMaxAuthBody];
  if (checksum.size() <= sizeof sum)
    checksum.copy_to(sum);
  if (!step.complete() || checksum.size() > sizeof sum ||
      !session.open(handle, window, {sum, checksum.size()}))
    return fail(Errc::kRefused, "the server did not prove that it has the key of its service");
  return {};
}

}  // namespace

Result<SharedCredential> establish_context(Caller& caller, const Binding& binding,
                                           const GssContextOptions& options) {
  auto identity = gss::Identity::initiator(options.principal);
  if (!identity)
    return fail(identity.error().code, refused(caller, identity.error().message));
  auto session = std::make_shared<gss::Session>(std::move(*identity), options.target,
                                                static_cast<gss::Protection>(options.protection));
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
  if (protection == nullptr)
    protection = std::make_unique<gss::ProtectedCall>();
  protection->clear.clear();
  if (session.transforms_body()) {
    has_extras = true;  // so that the next begin() starts anew
    transformed = true;
    growth = 0;
  }
}

// The header lies in one piece, since it is the first thing that was written.
bool Caller::Impl::seal(Call::Impl& call) noexcept {
  RRDK_ON_CORE(core_);
  RRDK_ASSERT(call.secured && call.credential != nullptr && call.protection != nullptr);
  gss::Session& session = *call.credential->session();
  gss::ProtectedCall& protection = *call.protection;
  const auto header = static_cast<uint32_t>(rpc::kCallTargetBytes + session.blank().size());
  if (session.transforms_body() && protection.clear.pieces().empty())
    std::swap(protection.clear, call.message);
  const Message& written = session.transforms_body() ? protection.clear : call.message;
  if (written.pieces().empty() || written.pieces()[0].bytes.length < header)
    return false;
  std::byte* const start = written.pieces()[0].bytes.data;
  xdr::store_u32(start, call.xid);
  if (!session.sign_header(start, protection.sequence))
    return false;
  if (!session.transforms_body())
    return true;
  std::vector<std::byte> clear(sizeof(uint32_t));
  xdr::store_u32(clear.data(), protection.sequence);
  gss::append(clear, written.pieces(), header);
  Encoder out(call.message, memory, defaults.inline_size, defaults.max_call);
  out.put_fixed({start, header});
  return session.protect(clear, out) && out.ok();
}

CallStatus Caller::Impl::open_reply(Call::Impl& call) noexcept {
  gss::Session& session = *call.credential->session();
  rpc::ReplyHeader& header = call.reply_header;
  if (header.reply_stat == ReplyStat::kDenied)
    return rpc::call_status(header);  // such a reply has no verifier
  const bool has_results = header.accept_stat == AcceptStat::kSuccess && session.transforms_body();
  gss::ProtectedCall& protection = *call.protection;
  if (header.verifier.flavor != AuthFlavor::kRpcsecGss ||
      !session.verify_reply(protection.sequence, header.verifier.body) ||
      (has_results && !session.open_results(protection, call.decoder))) {
    header.auth_stat = AuthStat::kInvalidResp;
    return CallStatus::kAuthError;
  }
  if (has_results)
    call.decoder = Decoder(protection.results, 0);
  return rpc::call_status(header);
}

}  // namespace rrdk
