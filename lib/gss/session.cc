#include "gss/session.h"

#include <algorithm>

namespace rrdk::gss {

namespace {

// XID to procedure, then flavour and length of the credential (RFC 5531 section 9).
constexpr uint32_t kBeforeCredential = 32;
constexpr uint32_t kSequenceAt = kBeforeCredential + 8;

}  // namespace

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
bool Session::take_number(uint32_t& sequence) noexcept {
  uint64_t next = next_.fetch_add(1, std::memory_order_relaxed);
  if (next == window_) [[unlikely]]
    next = next_.fetch_add(1, std::memory_order_relaxed);
  sequence = static_cast<uint32_t>(next);
  return next <= kHighestSequence;
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
