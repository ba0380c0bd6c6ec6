/**
 * One RPC over TCP (RFC 5531 sections 9 and 11), for what precedes the data path, as the MOUNT
 * protocol precedes NFS (RFC 1813 appendix I).
 *
 *   rrdk::TcpArguments args;
 *   args.put_string("/export");
 *   auto results = rrdk::call_over_tcp({.host = "10.0.0.1", .port = 20048, .program = 100005,
 *                                       .version = 3, .procedure = 1, .args = args});
 *   if (!results) complain(results.error().message);  // names program, host, port and reason
 *   rrdk::Fragment bytes{results->data(), static_cast<uint32_t>(results->size())};
 *   rrdk::Decoder decoder(std::span(&bytes, 1));  // rrdk/xdr.h; `results` and `bytes` outlive it
 *
 * Threads: any. It blocks, for set-up only. Never call it from a handler or callback; use a thread
 * of your own, or the Runtime's helper (Runtime::run_aside() in rrdk/runtime.h).
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rrdk/error.h"

namespace rrdk {

/**
 * Arguments in XDR (RFC 4506), made of words and strings; less than 2 GiB together with the header.
 */
class TcpArguments {
 public:
  void put_u32(uint32_t value);
  void put_string(std::string_view text);
  /** Valid until the next put. */
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

struct TcpCall {
  std::string host;  ///< name or numeric address; a name's addresses are tried as RFC 8305 says
  uint16_t port = 0;
  uint32_t program = 0;
  uint32_t version = 0;
  uint32_t procedure = 0;
  TcpArguments args;
  /**
   * For the whole call, all addresses together. Resolving a name counts, but is not cut short. An
   * address that accepts the call and does not answer has its share; then the call is made at the
   * next one, and may run twice.
   */
  uint32_t timeout_ms = 5000;
  uint32_t longest_reply = 64 << 10;  ///< bytes, RPC header included; a longer reply is kNotAPeer
};

/**
 * Connects from a port that is not privileged, calls with AUTH_SYS (RFC 5531 appendix A) as this
 * process's effective user and group, without further groups, and closes. Returns the results' XDR.
 *
 * Errors: kNotFound (no such host), kRefused (nothing listens there, or the server says that it
 * cannot decode the arguments, or that it failed), kUnsupported (no such program, version or
 * procedure there, or another version of RPC), kPermission (the credential is refused), kTimeout,
 * kConnectionLost, kNotAPeer (the answer is not an RPC reply, or too long), kSystem. For a host
 * with several addresses it is the error of the last one that accepted the call, or else of the
 * last one.
 */
[[nodiscard]] Result<std::vector<std::byte>> call_over_tcp(const TcpCall& call);

}  // namespace rrdk
