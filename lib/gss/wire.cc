#include "gss/wire.h"

#include <algorithm>

namespace rrdk::gss {

bool decode(const Credential& credential, CredentialBody& to) noexcept {
  if (credential.body.size() > kMaxAuthBody)
    return false;
  std::byte body[kMaxAuthBody];
  credential.body.copy_to(body);
  const Fragment whole[] = {{body, credential.body.size()}};
  Decoder in(whole);
  to.version = in.get_u32();
  to.control = static_cast<Control>(in.get_u32());
  to.sequence = in.get_u32();
  to.protection = static_cast<Protection>(in.get_u32());
  const ItemView handle = in.get_opaque(kMaxAuthBody);
  if (!in.at_end() || to.version != kVersion || to.control > Control::kDestroy)
    return false;
  to.handle_length = handle.size();
  if (handle.size() == to.handle.size())
    handle.copy_to(to.handle.data());
  return true;
}

AuthStat denial(const CredentialBody& refused) noexcept {
  const bool makes_context =
      refused.control == Control::kInit || refused.control == Control::kContinueInit;
  return makes_context && refused.version != kVersion ? AuthStat::kRejectedCred
                                                      : AuthStat::kBadCred;
}

bool SequenceWindow::use(uint32_t sequence) noexcept {
  if (sequence > highest_) {
    // The numbers between are new, in words that may have held older ones.
    if (sequence - highest_ >= kSize) {
      used_ = {};
    } else {
      for (uint32_t next = highest_ + 1; next != sequence; ++next)
        word(next) &= ~(uint64_t{1} << next % 64);
      word(sequence) &= ~(uint64_t{1} << sequence % 64);
    }
    highest_ = sequence;
  } else if (highest_ - sequence >= kSize) {
    return false;
  }
  const uint64_t bit = uint64_t{1} << sequence % 64;
  const bool is_new = (word(sequence) & bit) == 0;
  word(sequence) |= bit;
  return is_new;
}

void append_u32(std::vector<std::byte>& to, uint32_t value) {
  to.resize(to.size() + sizeof value);
  xdr::store_u32(to.data() + to.size() - sizeof value, value);
}

void append_opaque(std::vector<std::byte>& to, std::span<const std::byte> bytes) {
  append_u32(to, static_cast<uint32_t>(bytes.size()));
  to.insert(to.end(), bytes.begin(), bytes.end());
  to.resize(to.size() + xdr_pad(bytes.size()));
}

std::span<const std::byte> join(const ItemView& item, std::vector<std::byte>& joined) {
  if (item.contiguous())
    return {item.data(), item.size()};
  joined.resize(item.size());
  item.copy_to(joined.data());
  return joined;
}

void append(std::vector<std::byte>& to, std::span<const Piece> pieces, uint32_t skipped) {
  for (const Piece& piece : pieces) {
    for (const MemorySpan& run : piece.runs()) {
      const uint32_t left_out = std::min(skipped, run.length);
      skipped -= left_out;
      to.insert(to.end(), run.data + left_out, run.data + run.length);
    }
    if (piece.item)
      to.resize(to.size() + xdr_pad(piece.bytes.length));
  }
}

}  // namespace rrdk::gss
