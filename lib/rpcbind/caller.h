// Calls over a stream socket (RFC 5531 section 11, record marking), with limits on time and size
// whatever the peer does. In contrast, libtirpc's calls wait anew for each read, and keep lists of
// any length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/addresses.h"
#include "base/system.h"
#include "rpc/headers_datapath.h"
#include "rrdk/error.h"
#include "rrdk/tcp_call.h"
#include "rrdk/xdr.h"

namespace rrdk::rpcbind {

// A reply, decoded up to its results.
struct Reply {
  std::vector<std::byte> message;
  std::unique_ptr<Fragment> whole;  // the message, for `results`
  rpc::ReplyHeader header;
  Decoder results;
};

struct Terms {
  uint64_t deadline_ns;               // of all calls together
  size_t longest_reply;               // bytes
  rpc::PreparedAuth credential = {};  // AUTH_NONE
};

class Caller {
 public:
  using Calls = std::function<Result<void>(Caller&)>;
  // Makes calls at the address of the host that connects first (RFC 8305). If they end with
  // kTimeout or kConnectionLost they are made again at the next address. Each address has an equal
  // share of the remaining time. `what` names the service in messages. Errors: kNotFound, kRefused,
  // kTimeout, kConnectionLost, kSystem, and those of `calls`.
  static Result<void> ask_host(const std::string& what, const std::string& host, uint16_t port,
                               const Terms& terms, const Calls& calls);
  // Connects to this host's rpcbind, which asks the kernel about its caller. Errors: kNotFound,
  // kSystem.
  static Result<Caller> connect_local(const std::string& path, const Terms& terms);

  // The address of the peer; empty: on this host.
  const base::SocketAddress& far() const noexcept { return far_; }
  const std::string& peer() const noexcept { return peer_; }
  // Makes one call. Any well-formed reply is returned. Errors: kTimeout, kConnectionLost,
  // kNotAPeer, kSystem.
  Result<Reply> call(const rpc::CallTarget& target, const TcpArguments& args);
  Error not_a_peer(std::string_view why) const;

 private:
  Caller(base::Fd socket, const base::SocketAddress& far, std::string peer, const Terms& terms)
      : socket_(std::move(socket)), far_(far), peer_(std::move(peer)), terms_(terms) {}
  tl::unexpected<Error> system_failure() const;  // by errno
  Result<void> send(std::span<const std::byte> bytes);
  Result<void> receive(std::span<std::byte> bytes);
  Result<std::vector<std::byte>> receive_record();
  Result<void> wait(short events);

  base::Fd socket_;
  base::SocketAddress far_;
  std::string peer_;
  Terms terms_;
};

}  // namespace rrdk::rpcbind
