// Calls to an rpcbind over a stream socket (RFC 5531 section 11, record marking), which end in time
// and in size whatever is at the other end. libtirpc's calls wait for each read anew, and keep
// lists of any length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "rpc/reply_datapath.h"
#include "rrdk/error.h"
#include "rrdk/xdr.h"

namespace rrdk::rpcbind {

// Procedures (RFC 1833 section 2.2.1).
enum class Procedure : uint32_t { kSet = 1, kUnset = 2, kDump = 4 };

// Arguments, in words and strings.
class Arguments {
 public:
  void put_u32(uint32_t value);
  void put_string(std::string_view text);
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// A reply, decoded as far as its results.
struct Reply {
  std::vector<std::byte> message;
  std::unique_ptr<Fragment> whole;  // of it, for `results`
  rpc::ReplyHeader header;
  Decoder results;
};

class Caller {
 public:
  // Tries the host's addresses in turn. Errors: kNotFound, kRefused, kTimeout, kConnectionLost.
  static Result<Caller> connect(const std::string& host, uint16_t port, uint64_t deadline_ns);
  // This host's. Error: kNotFound.
  static Result<Caller> connect_local(uint64_t deadline_ns);

  int family() const noexcept { return family_; }
  const std::string& peer() const noexcept { return peer_; }
  // One call, without credentials: over the local socket rpcbind asks the kernel who calls. Any
  // well-formed reply is taken. Errors: kTimeout, kConnectionLost, kNotAPeer.
  Result<Reply> call(uint32_t version, Procedure procedure, const Arguments& arguments);
  Error not_rpcbind() const;

 private:
  Caller(base::Fd socket, int family, std::string peer, uint64_t deadline_ns)
      : socket_(std::move(socket)),
        family_(family),
        peer_(std::move(peer)),
        deadline_ns_(deadline_ns) {}
  Result<void> send(std::span<const std::byte> bytes);
  Result<void> receive(std::span<std::byte> bytes);
  Result<std::vector<std::byte>> receive_record();
  Result<void> wait(short events);

  base::Fd socket_;
  int family_;
  std::string peer_;
  uint64_t deadline_ns_;
};

}  // namespace rrdk::rpcbind
