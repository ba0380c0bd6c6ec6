/**
 * The parts of ONC RPC version 2 (RFC 5531) that callers and handlers see: the meanings of answers,
 * and credentials. The library writes and reads the messages.
 *
 *   rrdk::AuthSys identity;
 *   identity.uid = 1000;
 *   connection->set_auth_sys(identity);                    // a caller
 *   std::optional<rrdk::AuthSys> who = call.auth_sys();    // a handler
 */
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "rrdk/xdr.h"

namespace rrdk {

/** RFC 5531 section 9, msg_type. */
enum class MsgType : uint32_t { kCall = 0, kReply = 1 };

/** RFC 5531 section 9, reply_stat. */
enum class ReplyStat : uint32_t { kAccepted = 0, kDenied = 1 };

/** RFC 5531 section 9, accept_stat. */
enum class AcceptStat : uint32_t {
  kSuccess = 0,       ///< the procedure ran; results follow
  kProgUnavail = 1,   ///< the program is not offered here
  kProgMismatch = 2,  ///< not this version; the lowest and highest one offered follow
  kProcUnavail = 3,   ///< the program has no such procedure
  kGarbageArgs = 4,   ///< the arguments do not decode
  kSystemErr = 5,     ///< memory exhausted, or the like
};

/** RFC 5531 section 9, reject_stat. */
enum class RejectStat : uint32_t {
  kRpcMismatch = 0,  ///< the RPC version is not 2
  kAuthError = 1,    ///< the caller could not be authenticated
};

/** RFC 5531 section 9, auth_stat. */
enum class AuthStat : uint32_t {
  kOk = 0,
  kBadCred = 1,       ///< the credential is malformed
  kRejectedCred = 2,  ///< the client must begin a new session
  kBadVerf = 3,       ///< the verifier is malformed
  kRejectedVerf = 4,  ///< the verifier expired or was replayed
  kTooWeak = 5,       ///< refused for security reasons
  kInvalidResp = 6,   ///< found by the client: the response's verifier is wrong
  kFailed = 7,        ///< found by the client: reason unknown
  // RPCSEC_GSS (RFC 2203); 8 to 12 belong to Kerberos version 4.
  kGssCredProblem = 13,  ///< the context is unknown or has ended, or a checksum is wrong
  kGssCtxProblem = 14,   ///< the context cannot be used any further
};

/**
 * RFC 5531 section 8.2. Others exist; a flavour that is not listed here is passed through
 * unchanged. kRpcsecGss is verified if the Server has an acceptor (rrdk/gss.h).
 */
enum class AuthFlavor : uint32_t {
  kNone = 0,
  kSys = 1,
  kShort = 2,
  kDh = 3,
  kRpcsecGss = 6,
};

/**
 * A description such as "garbage arguments". Never null, even for values outside the enumerations.
 */
const char* to_string(AcceptStat status) noexcept;
const char* to_string(RejectStat status) noexcept;
const char* to_string(AuthStat status) noexcept;
const char* to_string(AuthFlavor flavor) noexcept;

/** The longest body of a credential or verifier (RFC 5531 section 8.2). */
constexpr uint32_t kMaxAuthBody = 400;

/** A credential or verifier as received: its body is opaque and lies in the message. */
struct Credential {
  AuthFlavor flavor = AuthFlavor::kNone;
  ItemView body;
};

/**
 * The body of an AUTH_SYS credential (RFC 5531 appendix A). Has a fixed size, and can be copied.
 */
struct AuthSys {
  static constexpr uint32_t kMaxMachineName = 255;
  static constexpr uint32_t kMaxGids = 16;

  uint32_t stamp = 0;  ///< chosen by the client
  uint32_t uid = 0;    ///< effective ids
  uint32_t gid = 0;

  std::string_view machine_name() const noexcept { return {name_.data(), name_length_}; }
  /** The supplementary groups. */
  std::span<const uint32_t> gids() const noexcept { return {gids_.data(), num_gids_}; }
  /** Returns false, and changes nothing, if `name` is longer than kMaxMachineName. */
  bool set_machine_name(std::string_view name) noexcept;
  /** Returns false, and changes nothing, if there are more than kMaxGids. */
  bool set_gids(std::span<const uint32_t> gids) noexcept;

 private:
  std::array<char, kMaxMachineName> name_ = {};
  uint32_t name_length_ = 0;
  std::array<uint32_t, kMaxGids> gids_ = {};
  uint32_t num_gids_ = 0;
};

/**
 * Reads the fields of an AUTH_SYS credential. Returns false if its flavour differs, a limit is
 * exceeded, or its body is not exactly the fields; answer AuthStat::kBadCred then.
 */
bool decode(const Credential& credential, AuthSys& to) noexcept;

}  // namespace rrdk
