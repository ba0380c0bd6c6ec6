// Kerberos behind the GSS-API (RFC 2743, RFC 4121): MIT's library, which is loaded when a program
// first asks for it. A program without RPCSEC_GSS needs no Kerberos on its machine.
//
// Nothing here knows of RPC. The functions that establish a context read files and may ask a KDC,
// so they never run on a poll core. The others compute checksums and ciphers, and allocate.
#pragma once

#include <gssapi/gssapi.h>
#include <gssapi/gssapi_ext.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "rrdk/error.h"

namespace rrdk::gss {

// Bytes that the library has allocated.
class Token {
 public:
  Token() = default;
  ~Token();
  Token(const Token&) = delete;
  Token& operator=(const Token&) = delete;

  std::span<const std::byte> bytes() const noexcept {
    return {static_cast<const std::byte*>(buffer_.value), buffer_.length};
  }
  // For the library to fill in; what was there is freed.
  gss_buffer_t out() noexcept;
  void clear() noexcept { (void)out(); }

 private:
  gss_buffer_desc buffer_ = GSS_C_EMPTY_BUFFER;
};

// A name with its keys: of a service, which accepts contexts, or of a caller, which initiates them.
class Identity {
 public:
  // Accepts contexts for `service`, such as "nfs@server.example.org" or "nfs", with keys of
  // `key_table`. Empty: for each service in the table; the table that KRB5_KTNAME names. Errors:
  // kNotFound (no such table, or no key of that service in it), kUnsupported (no Kerberos here).
  static Result<std::shared_ptr<const Identity>> acceptor(const std::string& service,
                                                          const std::string& key_table);
  // Initiates contexts for `principal`, such as "alice" or "alice@EXAMPLE.ORG", out of the caches
  // of tickets and the key tables that the environment names (KRB5CCNAME, KRB5_CLIENT_KTNAME).
  // Empty: the default one. Errors: kNotFound (no ticket and no key), kUnsupported.
  static Result<std::shared_ptr<const Identity>> initiator(const std::string& principal);
  ~Identity();
  Identity(const Identity&) = delete;
  Identity& operator=(const Identity&) = delete;

  gss_cred_id_t get() const noexcept { return credential_; }

 private:
  Identity() = default;
  static Result<std::shared_ptr<const Identity>> acquire(gss_name_t name, gss_cred_usage_t usage,
                                                         gss_const_key_value_set_t store,
                                                         const std::string& lacks);
  gss_cred_id_t credential_ = GSS_C_NO_CREDENTIAL;
};

// What the library says of a status, in words.
std::string describe(uint32_t major, uint32_t minor);

// What gss_accept_sec_context() and gss_init_sec_context() return.
struct Step {
  uint32_t major = GSS_S_FAILURE;
  uint32_t minor = 0;
  std::string error;  // in words, if it failed

  bool complete() const noexcept { return major == GSS_S_COMPLETE; }
  bool goes_on() const noexcept { return major == GSS_S_CONTINUE_NEEDED; }
};

// A security context. Any thread. Its users take turns, since the library keeps derived keys in
// it: a thread may wait for as long as one checksum or cipher takes.
class Context {
 public:
  Context() = default;
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Takes the next token of the initiator; `answer` is the one to return. Loads the library.
  Step accept(const Identity& identity, std::span<const std::byte> token, Token& answer);

  // The initiator's side. `token` is empty at first; `target` is the service, as "nfs@host".
  Step initiate(const Identity& identity, const std::string& target,
                std::span<const std::byte> token, Token& next);

  // Once it is complete: the principal at the other end, and when the context ends, in seconds
  // since 1970.
  const std::string& peer() const noexcept { return peer_; }
  const std::string& own_name() const noexcept { return own_name_; }  // of an initiator
  uint64_t ends_at() const noexcept { return ends_at_; }

  // Each returns false if the library refuses, for example what a peer has changed.
  bool sign(std::span<const std::byte> message, Token& checksum) noexcept;
  bool verify(std::span<const std::byte> message, std::span<const std::byte> checksum) noexcept;
  bool wrap(std::span<const std::byte> clear, Token& sealed) noexcept;
  bool unwrap(std::span<const std::byte> sealed, Token& clear) noexcept;

 private:
  static void note_name(gss_name_t name, std::string& text);
  void note_end(uint32_t seconds);

  std::mutex mutex_;
  gss_ctx_id_t context_ = GSS_C_NO_CONTEXT;
  std::string peer_, own_name_;
  uint64_t ends_at_ = 0;
};

}  // namespace rrdk::gss
