#include "gss/session.h"

#include <algorithm>

#include "base/lifetime.h"

namespace rrdk::gss {

namespace {

// XID to procedure, then flavour and length of the credential (RFC 5531 section 9).
constexpr uint32_t kBeforeCredential = 32;
constexpr uint32_t kSequenceAt = kBeforeCredential + 8;
// In the credential with its flavour and length: what the call is for.
constexpr uint32_t kControlAt = 12;

}  // namespace

bool Path::take(std::unique_ptr<Session>& session) noexcept {
  const std::lock_guard lock(mutex_);
  if (owner_ == nullptr)
    return false;
  owner_->end_context(std::move(session));
  return true;
}

void Path::end() noexcept {
  over_.store(true, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  owner_ = nullptr;
}

void Session::let_go(Session* session) noexcept {
  std::unique_ptr<Session> last(session);
  const bool is_known = !last->blank_.empty() && !last->unknown_.load(std::memory_order_relaxed);
  if (!is_known || base::forked)
    return;
  for (const std::shared_ptr<Path>& path : std::exchange(last->paths_, {})) {
    if (path->take(last))
      return;
  }
}

void Session::use(const std::shared_ptr<Path>& path) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(paths_, path) != paths_.end())
    return;
  std::erase_if(paths_, [](const auto& other) { return other->is_over(); });
  paths_.push_back(path);
}

const rpc::CallTarget& Session::begin_end() noexcept {
  xdr::store_u32(&blank_[kControlAt], static_cast<uint32_t>(Control::kDestroy));
  return null_call_;
}

std::vector<std::byte> Session::credential(Control control, Protection protection,
                                           std::span<const std::byte> handle) {
  std::vector<std::byte> body;
  append_u32(body, kVersion);
  append_u32(body, static_cast<uint32_t>(control));
  append_u32(body, 0);
  append_u32(body, static_cast<uint32_t>(protection));
  append_opaque(body, handle);
  return body;
}

bool Session::open(std::span<const std::byte> handle, uint32_t window,
                   std::span<const std::byte> checksum) {
  std::byte words[4];
  xdr::store_u32(words, window);
  Token ours;
  const std::vector<std::byte> body = credential(Control::kData, protection_, handle);
  if (body.size() > kMaxAuthBody || !context_.verify(words, checksum) ||
      !context_.sign(words, ours))
    return false;
  window_ = window;
  blank_.clear();
  append_u32(blank_, static_cast<uint32_t>(AuthFlavor::kRpcsecGss));
  append_opaque(blank_, body);
  signed_bytes_ = kBeforeCredential - 8 + static_cast<uint32_t>(blank_.size());
  // Checksums of one context have one length (RFC 4121 section 4.2.6.1).
  checksum_bytes_ = static_cast<uint32_t>(ours.bytes().size());
  append_u32(blank_, static_cast<uint32_t>(AuthFlavor::kRpcsecGss));
  append_opaque(blank_, std::vector<std::byte>(checksum_bytes_));
  return true;
}

// Not the number that equals the window: the server's checksum of that came with the context, and
// would verify a forged reply.
uint64_t Session::next_number() noexcept {
  const uint64_t next = next_.fetch_add(1, std::memory_order_relaxed);
  return next != window_ ? next : next_.fetch_add(1, std::memory_order_relaxed);
}

bool Session::take_number(uint32_t& sequence) noexcept {
  const uint64_t next = next_number();
  sequence = static_cast<uint32_t>(next);
  return next < kHighestSequence;
}

uint32_t Session::take_last_number() noexcept {
  return static_cast<uint32_t>(std::min<uint64_t>(next_number(), kHighestSequence));
}

bool Session::sign_header(std::byte* header, uint32_t sequence) noexcept {
  xdr::store_u32(header + kSequenceAt, sequence);
  Token checksum;
  if (!context_.sign({header, signed_bytes_}, checksum) ||
      checksum.bytes().size() != checksum_bytes_)
    return false;
  std::ranges::copy(checksum.bytes(), header + signed_bytes_ + 8);
  return true;
}

bool Session::protect(std::span<const std::byte> clear, Encoder& out) noexcept {
  Token token;
  if (protection_ == Protection::kPrivacy) {
    if (!context_.wrap(clear, token))
      return false;
  } else {
    if (!context_.sign(clear, token))
      return false;
    out.put_opaque(clear);
  }
  out.put_opaque(token.bytes());
  return true;
}

bool Session::verify_reply(uint32_t sequence, const ItemView& checksum) noexcept {
  std::byte words[4];
  xdr::store_u32(words, sequence);
  std::byte bytes[kMaxAuthBody];
  if (checksum.size() > sizeof bytes)
    return false;
  checksum.copy_to(bytes);
  return context_.verify(words, {bytes, checksum.size()});
}

// The verifier is the checksum of the sequence number alone, and so is that of empty results. The
// server gives each checksum a number of its own (RFC 4121 section 4.2.6.1), so results with the
// verifier's own token come from somebody else.
bool Session::open_results(ProtectedCall& call, Decoder& in, const ItemView& verifier) {
  const bool is_private = protection_ == Protection::kPrivacy;
  const ItemView body = in.get_opaque(UINT32_MAX);
  const ItemView checksum = is_private ? ItemView() : in.get_opaque(kMaxAuthBody);
  if (!in.at_end())
    return false;
  std::span<const std::byte> clear = join(body, call.joined);
  if (is_private) {
    if (!context_.unwrap(clear, call.unwrapped))
      return false;
    clear = call.unwrapped.bytes();
    call.joined = {};
  } else {
    std::byte of_body[kMaxAuthBody];
    checksum.copy_to(of_body);
    std::byte of_header[kMaxAuthBody];
    verifier.copy_to(of_header);  // verify_reply() takes none that is longer
    const std::span<const std::byte> token(of_body, checksum.size());
    if (std::ranges::equal(token, std::span<const std::byte>(of_header, verifier.size())) ||
        !context_.verify(clear, token))
      return false;
  }
  if (clear.size() < sizeof(uint32_t) || clear.size() % 4 != 0 ||
      xdr::load_u32(clear.data()) != call.sequence)
    return false;
  const auto rest = clear.subspan(sizeof(uint32_t));
  call.results = {rest.data(), static_cast<uint32_t>(rest.size())};
  return true;
}

}  // namespace rrdk::gss
