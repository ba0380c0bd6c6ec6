// A call that is authenticated by RPCSEC_GSS, from its header to its sealed reply.
//
//   open_secured    a call with such a credential: establish(), or verify() and open_body()
//   establish       the tokens of a new context go to the acceptor's thread and come back as the
//                   call's results (RFC 2203 section 5.2.3)
//   verify          context, checksum of the header, sequence number, in this order: nothing in the
//                   header is believed before its checksum was verified (section 5.3.3.1)
//   open_body       the arguments, checked or decrypted
//   seal            the reply's verifier, and its results protected as the arguments were
#include "service/secured.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/assert.h"
#include "gss/wire.h"
#include "rpc/headers_datapath.h"
#include "runtime/poll_core.h"
#include "service/dispatcher.h"

namespace rrdk::service {

namespace {

// Tokens of one connection that wait at a time: a client makes contexts one after the other.
constexpr uint32_t kMostEstablishments = 4;
// XID, type, RPC version, program, version, procedure, flavour and length (RFC 5531 section 9).
constexpr uint32_t kBeforeCredential = 32;
// XID, REPLY, then the reply_stat.
constexpr uint32_t kReplyStat = 8;
// XID, REPLY, MSG_ACCEPTED, flavour and length of the verifier.
constexpr uint32_t kBeforeVerifier = 20;

void put_verifier(Encoder& out, std::span<const std::byte> checksum) noexcept {
  out.put_u32(static_cast<uint32_t>(checksum.empty() ? AuthFlavor::kNone : AuthFlavor::kRpcsecGss));
  out.put_opaque(checksum);
}

void put_reply_header(Encoder& out, uint32_t xid, std::span<const std::byte> checksum,
                      AcceptStat status) noexcept {
  out.put_u32(xid);
  out.put_fixed(rpc::words(MsgType::kReply, ReplyStat::kAccepted));
  put_verifier(out, checksum);
  out.put_u32(static_cast<uint32_t>(status));
}

// Returns false if the results cannot be protected.
bool put_results(Encoder& out, const SecuredCall& secured, AcceptStat status,
                 const std::vector<std::byte>& results) noexcept {
  gss::Token protection;
  gss::Context& context = secured.context->context;
  if (status != AcceptStat::kSuccess || !secured.transforms_body()) {
    out.put_fixed(results);
    return true;
  }
  if (secured.credential.protection == gss::Protection::kPrivacy) {
    if (!context.wrap(results, protection))
      return false;
    out.put_opaque(protection.bytes());
    return true;
  }
  if (!context.sign(results, protection))
    return false;
  out.put_opaque(std::span<const std::byte>(results));
  out.put_opaque(protection.bytes());
  return true;
}

}  // namespace

// The reply's header has its verifier from the beginning if the results are not transformed: their
// items can then move by RDMA.
void open_secured_reply(ServedCall& call) noexcept {
  RRDK_ASSERT(call.secured != nullptr && call.secured->context != nullptr);
  const SecuredCall& secured = *call.secured;
  if (secured.transforms_body())
    return rpc::encode_success(*call.results, call.header.xid);
  put_reply_header(*call.results, call.header.xid, secured.checksum.bytes(), AcceptStat::kSuccess);
}

// Returns true if the call goes on as any other. Protection allocates; without memory the call is
// lost, and no other one.
bool Dispatcher::open_secured(ServedCall& call) noexcept {
  RRDK_ON_CORE(link_.core());
  RRDK_ASSERT(gss_ != nullptr && call.secured == nullptr);
  try {
    return open_with_memory(call);
  } catch (const std::bad_alloc&) {
    if (call.secured != nullptr && call.secured->context == nullptr)
      delete std::exchange(call.secured, nullptr);
    refuse(call, AcceptStat::kSystemErr);
    return false;
  }
}

bool Dispatcher::open_with_memory(ServedCall& call) {
  gss::CredentialBody credential;
  if (!gss::decode(call.header.credential, credential)) {
    deny(call, Refusal::kGssCredential, gss::denial(credential));
    return false;
  }
  if (credential.control == gss::Control::kInit ||
      credential.control == gss::Control::kContinueInit) {
    establish(call, credential);
    return false;
  }
  if (!verify(call, credential))
    return false;
  if (credential.control == gss::Control::kDestroy) {
    destroy(call);
    return false;
  }
  if (open_body(call)) [[likely]]
    return true;
  link_.engine().count_refusal(Refusal::kGssBody);
  refuse(call, AcceptStat::kGarbageArgs);
  return false;
}

// Section 5.4. Linux's client sends this call without a protected body, others with one; there is
// nothing in it. The results are as Linux and libtirpc expect them, without one.
void Dispatcher::destroy(ServedCall& call) noexcept {
  gss::CredentialBody& credential = call.secured->credential;
  credential.protection = gss::Protection::kNone;
  if (call.header.procedure != 0) {
    link_.engine().count_refusal(Refusal::kGssCredential);
    return refuse(call, AcceptStat::kProcUnavail);
  }
  gss_->destroy(credential.handle);
  open_reply(call);
  call.answer = Answer::kResults;
  send(call);
}

void Dispatcher::deny(ServedCall& call, Refusal why, AuthStat said) noexcept {
  link_.engine().count_refusal(why);
  call.answer = Answer::kDeny;
  call.auth_stat = said;
  send(call);
}

bool Dispatcher::verify(ServedCall& call, const gss::CredentialBody& credential) {
  if (credential.protection < gss::Protection::kNone ||
      credential.protection > gss::Protection::kPrivacy) {
    deny(call, Refusal::kGssCredential, AuthStat::kBadCred);
    return false;
  }
  auto secured = std::make_unique<SecuredCall>();
  secured->credential = credential;
  if (credential.handle_length == credential.handle.size())
    secured->context = gss_->find(credential.handle);
  if (secured->context == nullptr) {
    deny(call, Refusal::kGssContext, AuthStat::kGssCredProblem);
    return false;
  }
  // The checksum is of the header from the XID to the end of the credential.
  const uint32_t body = call.header.credential.body.size();
  const uint32_t length = kBeforeCredential + body + xdr_pad(body);
  std::byte header[kBeforeCredential + kMaxAuthBody];
  Decoder in(call.message);
  in.get_fixed(length).copy_to(header);
  std::byte checksum[kMaxAuthBody];
  const Credential& verifier = call.header.verifier;
  verifier.body.copy_to(checksum);
  if (verifier.flavor != AuthFlavor::kRpcsecGss ||
      !secured->context->context.verify({header, length}, {checksum, verifier.body.size()})) {
    deny(call, Refusal::kGssVerifier, AuthStat::kGssCredProblem);
    return false;
  }
  if (credential.sequence > gss::kHighestSequence) {
    deny(call, Refusal::kGssSequence, AuthStat::kGssCtxProblem);
    return false;
  }
  gss_->note_use(secured->context);
  if (!secured->context->use(credential.sequence)) {
    link_.engine().count_refusal(Refusal::kGssReplay);
    link_.engine().leave_unanswered(call);
    link_.core().mark_dirty(link_);
    return false;
  }
  std::byte sequence[4];
  xdr::store_u32(sequence, credential.sequence);
  if (!secured->context->context.sign(sequence, secured->checksum)) {
    deny(call, Refusal::kGssContext, AuthStat::kGssCtxProblem);
    return false;
  }
  call.secured = secured.release();
  return true;
}

// Sections 5.3.2.2 and 5.3.2.3. What is protected begins with the sequence number once more.
bool Dispatcher::open_body(ServedCall& call) {
  SecuredCall& secured = *call.secured;
  if (!secured.transforms_body())
    return true;
  const bool is_private = secured.credential.protection == gss::Protection::kPrivacy;
  gss::Context& context = secured.context->context;
  const ItemView body = call.args.get_opaque(UINT32_MAX);
  const ItemView checksum = is_private ? ItemView() : call.args.get_opaque(kMaxAuthBody);
  if (!call.args.at_end() || body.size() > gss_->options().max_protected_bytes)
    return false;
  std::span<const std::byte> clear = gss::join(body, secured.joined);
  if (is_private) {
    if (!context.unwrap(clear, secured.unwrapped))
      return false;
    secured.joined = {};
    clear = secured.unwrapped.bytes();
  } else {
    std::byte of_body[kMaxAuthBody];
    checksum.copy_to(of_body);
    if (!context.verify(clear, {of_body, checksum.size()}))
      return false;
  }
  if (clear.size() < sizeof(uint32_t) || clear.size() % 4 != 0 ||
      xdr::load_u32(clear.data()) != secured.credential.sequence)
    return false;
  const auto rest = clear.subspan(sizeof(uint32_t));
  secured.clear = {rest.data(), static_cast<uint32_t>(rest.size())};
  call.args = Decoder({&secured.clear, 1});
  return true;
}

// Replaces the reply by one with a verifier, and with the results protected. Returns whether there
// is a whole reply.
bool Dispatcher::seal(ServedCall& call) {
  SecuredCall& secured = *call.secured;
  const std::span<const std::byte> checksum = secured.checksum.bytes();
  const Piece& first = call.reply.pieces().front();
  RRDK_ASSERT(!first.item && first.bytes.length >= kBeforeVerifier);
  std::byte* const header = first.bytes.data;
  if (xdr::load_u32(header + kReplyStat) != static_cast<uint32_t>(ReplyStat::kAccepted))
    return true;  // such a reply has no verifier
  const uint32_t verifier = xdr::load_u32(header + kBeforeVerifier - 4);
  if (!secured.transforms_body() && verifier == checksum.size()) {
    std::ranges::copy(checksum, header + kBeforeVerifier);  // it may be that of an earlier answer
    return true;
  }
  const uint32_t status_at = kBeforeVerifier + verifier + xdr_pad(verifier);
  auto status = static_cast<AcceptStat>(xdr::load_u32(header + status_at));
  std::vector<std::byte> results;
  results.reserve(call.reply.stream_length());
  if (status == AcceptStat::kSuccess && secured.transforms_body())
    gss::append_u32(results, secured.credential.sequence);
  gss::append(results, call.reply.pieces(), status_at + 4);

  if (secured.transforms_body() && results.size() > gss_->options().max_protected_bytes) {
    status = AcceptStat::kSystemErr;
    results.clear();
  }
  for (;;) {
    restart_reply(call);
    put_reply_header(*call.results, call.header.xid, checksum, status);
    if (!put_results(*call.results, secured, status, results))
      call.results->fail();
    const bool whole = call.results->ok();
    call.results.reset();
    if (whole || status == AcceptStat::kSystemErr)
      return whole;
    status = AcceptStat::kSystemErr;  // they do not fit
    results.clear();
  }
}

// The protected reply refers to nothing that the call had in clear.
bool Dispatcher::end_secured(ServedCall& call, bool whole) noexcept {
  RRDK_ASSERT(call.secured != nullptr && call.secured->context != nullptr && !call.results);
  bool sealed = false;
  try {
    sealed = whole && call.answer != Answer::kDrop && seal(call);
  } catch (const std::bad_alloc&) {
    call.results.reset();
  }
  delete std::exchange(call.secured, nullptr);
  const std::span<Buffer> buffers = call.reply.buffers();
  for (size_t i = 1; i < buffers.size(); ++i)
    call.borrower().lend(buffers[i]);
  return sealed;
}

// The call is kept until the acceptor's thread has looked at its token.
void Dispatcher::establish(ServedCall& call, const gss::CredentialBody& credential) {
  const ItemView token = call.args.get_opaque(gss::kLongestToken);
  if (!call.args.at_end()) {
    link_.engine().count_refusal(Refusal::kGssBody);
    return refuse(call, AcceptStat::kGarbageArgs);
  }
  // Section 5.2.2: the call is NULL's; a new context has no name yet.
  const bool is_new = credential.control == gss::Control::kInit;
  if (call.header.procedure != 0 || (is_new && credential.handle_length != 0))
    return deny(call, Refusal::kGssCredential, AuthStat::kBadCred);
  if (!is_new && credential.handle_length != credential.handle.size())
    return deny(call, Refusal::kGssContext, AuthStat::kGssCredProblem);
  auto work = std::make_unique<gss::Establishment>();
  work->control = credential.control;
  work->handle = credential.handle;
  work->token.resize(token.size());
  token.copy_to(work->token.data());
  work->from = gss::owner_of(origin_of_peer(), link_.id());
  work->call = &call;
  work->done = [](gss::Establishment& done) {
    auto& its = *static_cast<ServedCall*>(done.call);
    its.secured->establishment.reset(&done);
    its.run = [](runtime::WorkItem& item) {
      auto& ended = static_cast<ServedCall&>(item);
      ended.dispatcher->end_establishment(ended);
    };
    its.dispatcher->link().core().submit(its);
  };
  call.secured = new SecuredCall;
  if (establishments_ < kMostEstablishments && gss_->establish(std::move(work))) {
    ++establishments_;
    return;
  }
  delete std::exchange(call.secured, nullptr);
  link_.engine().count_refusal(Refusal::kGssBusy);
  refuse(call, AcceptStat::kSystemErr);
}

// rpc_gss_init_res (section 5.2.3.1). Without a complete context there is nothing to sign with.
void Dispatcher::end_establishment(ServedCall& call) noexcept {
  RRDK_ON_CORE(link_.core());
  RRDK_ASSERT(call.secured != nullptr && establishments_ != 0, establishments_);
  const std::unique_ptr<SecuredCall> secured(std::exchange(call.secured, nullptr));
  const gss::Establishment* const work = secured->establishment.get();
  --establishments_;
  if (work->made_way) {
    link_.engine().count_refusal(Refusal::kGssBusy);
    return refuse(call, AcceptStat::kSystemErr);
  }
  if (!work->known)
    return deny(call, Refusal::kGssContext, AuthStat::kGssCredProblem);
  restart_reply(call);
  Encoder& out = *call.results;
  put_reply_header(out, call.header.xid, work->checksum.bytes(), AcceptStat::kSuccess);
  const bool failed = GSS_ERROR(work->major) != 0;
  out.put_opaque(failed ? std::span<const std::byte>() : std::span<const std::byte>(work->handle));
  out.put_u32(work->major);
  out.put_u32(work->minor);
  out.put_u32(gss::SequenceWindow::kTold);
  out.put_opaque(work->answer.bytes());
  call.answer = Answer::kResults;
  send(call);
}

// The callers that a procedure takes, if it does not take all.
bool accepts(const ServedCall& call) noexcept {
  const Acceptance taken = call.procedure->accepts;
  switch (call.header.credential.flavor) {
    case AuthFlavor::kNone:
      return (taken & kAcceptNone) != 0;
    case AuthFlavor::kSys:
      return (taken & kAcceptSys) != 0;
    case AuthFlavor::kRpcsecGss:
      break;
    default:
      return false;
  }
  if (call.secured == nullptr)
    return false;  // nothing has verified it
  switch (call.secured->credential.protection) {
    case gss::Protection::kNone:
      return (taken & kAcceptAuthentic) != 0;
    case gss::Protection::kIntegrity:
      return (taken & kAcceptIntegrity) != 0;
    case gss::Protection::kPrivacy:
      break;
  }
  return (taken & kAcceptPrivacy) != 0;
}

}  // namespace rrdk::service

namespace rrdk {

CallSecurity ServerCall::security() const noexcept {
  CallSecurity security;
  security.flavor = call_->header.credential.flavor;
  if (const service::SecuredCall* const secured = call_->secured) {
    security.protection = secured->credential.protection;
    security.principal = secured->context->context.peer();
  }
  return security;
}

}  // namespace rrdk
