// RPCSEC_GSS version 1 on the wire (RFC 2203 section 5): its credential, the window of sequence
// numbers that keeps replays out, and bodies that are protected as a whole.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rrdk/gss.h"
#include "rrdk/rpc.h"
#include "rrdk/xdr.h"

namespace rrdk::gss {

constexpr uint32_t kVersion = 1;                   // RFC 2203 section 5
constexpr uint32_t kHighestSequence = 0x80000000;  // MAXSEQ, section 5.3.3.1

// Section 5, rpc_gss_proc_t.
enum class Control : uint32_t { kData = 0, kInit = 1, kContinueInit = 2, kDestroy = 3 };

// Section 5, rpc_gss_service_t.
using Protection = GssProtection;

// The name of a context at the end that accepted it. Peers may use others of any length; ours have
// this one.
using Handle = std::array<std::byte, 16>;

// rpc_gss_cred_vers_1_t.
struct CredentialBody {
  uint32_t version = 0;
  Control control = Control::kData;
  uint32_t sequence = 0;
  Protection protection = Protection::kNone;
  Handle handle = {};
  uint32_t handle_length = 0;  // as sent; other lengths than that of a Handle name nothing here
};

// Returns false unless the body is exactly such a credential, of version 1.
bool decode(const Credential& credential, CredentialBody& to) noexcept;
// How a call is denied whose credential is not. A caller that asks for a context of another version
// is told that from other faults, and may try this one (section 5.1, erratum 4067).
AuthStat denial(const CredentialBody& refused) noexcept;

// Which sequence numbers have been used. Those that lie further back than the window count as used.
//
// The window that a peer is told is half of this one: calls whose arguments are read by RDMA are
// checked when these are whole, so they may be overtaken by many others.
class SequenceWindow {
 public:
  static constexpr uint32_t kSize = 4096;
  static constexpr uint32_t kTold = kSize / 2;

  // Returns false if the number has been used. Call it only with a number whose checksum was
  // verified: a forged one would move the window.
  bool use(uint32_t sequence) noexcept;

 private:
  uint64_t& word(uint32_t sequence) noexcept { return used_[sequence % kSize / 64]; }

  uint32_t highest_ = 0;
  std::array<uint64_t, kSize / 64> used_ = {};
};

// The bytes of an item in one piece, which are copied to `joined` only if they lie in several.
std::span<const std::byte> join(const ItemView& item, std::vector<std::byte>& joined);
// Appends the bytes of a message from `skipped` on, as they would be on the wire without chunks.
void append(std::vector<std::byte>& to, std::span<const Piece> pieces, uint32_t skipped);
void append_u32(std::vector<std::byte>& to, uint32_t value);
// opaque<>: count, bytes, pad.
void append_opaque(std::vector<std::byte>& to, std::span<const std::byte> bytes);

}  // namespace rrdk::gss
