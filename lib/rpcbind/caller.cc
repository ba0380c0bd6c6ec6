#include "rpcbind/caller.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/random.h"
#include "base/system.h"
#include "rpc/headers_datapath.h"

namespace rrdk::rpcbind {

namespace {

// Where an rpcbind listens for programs of its host. Not the abstract name that some have besides:
// any user could bind that.
constexpr std::string_view kSocketPath = "/run/rpcbind.sock";
// Bits of a record mark (RFC 5531 section 11).
constexpr uint32_t kLastFragment = 1u << 31;
constexpr auto kAuthNone = rpc::words(AuthFlavor::kNone, 0);

Errc code_of(int error) {
  switch (error) {
    case ECONNREFUSED:
      return Errc::kRefused;
    case ETIMEDOUT:
      return Errc::kTimeout;
    case ECONNRESET:
    case EPIPE:
      return Errc::kConnectionLost;
    default:
      return Errc::kSystem;
  }
}

// Until the socket is ready. kTimeout: it was not.
Result<void> wait_for(int socket, short events, uint64_t deadline_ns) {
  constexpr uint64_t kMillisecondNs = 1'000'000;
  for (;;) {
    uint64_t now = base::Tsc::now_ns();
    if (now >= deadline_ns)
      return fail(Errc::kTimeout, "no answer in time");
    pollfd entry{.fd = socket, .events = events, .revents = 0};
    uint64_t left_ms = (deadline_ns - now) / kMillisecondNs + 1;
    int ready = ::poll(&entry, 1, static_cast<int>(std::min<uint64_t>(left_ms, 1000)));
    if (ready > 0)
      return {};
    if (ready < 0 && errno != EINTR)
      return base::system_failure("poll");
  }
}

Result<base::Fd> make_socket(int family) {
  base::Fd socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket)
    return base::system_failure("socket");
  return socket;
}

Result<base::Fd> connect_to(const addrinfo& address, uint64_t deadline_ns) {
  Result<base::Fd> socket = make_socket(address.ai_family);
  if (!socket || ::connect(socket->get(), address.ai_addr, address.ai_addrlen) == 0)
    return socket;
  int error = errno;
  if (error == EINPROGRESS) {
    if (Result<void> ready = wait_for(socket->get(), POLLOUT, deadline_ns); !ready)
      return tl::unexpected(ready.error());
    socklen_t length = sizeof(error);
    ::getsockopt(socket->get(), SOL_SOCKET, SO_ERROR, &error, &length);
  }
  if (error == 0)
    return socket;
  return fail(code_of(error), base::system_message(error));
}

// In one piece: what is sent in several may wait for the peer's acknowledgements.
std::vector<std::byte> make_record(uint32_t xid, const rpc::CallTarget& target,
                                   std::span<const std::byte> credential,
                                   const TcpArguments& args) {
  std::vector<std::byte> record(4);
  const auto header = rpc::words(xid, MsgType::kCall, rpc::kRpcVersion, target.program,
                                 target.version, target.procedure);
  const std::span<const std::byte> none = kAuthNone;
  for (std::span<const std::byte> part :
       {std::span<const std::byte>(header), credential.empty() ? none : credential, none,
        args.bytes()})
    record.insert(record.end(), part.begin(), part.end());
  xdr::store_u32(record.data(), kLastFragment | static_cast<uint32_t>(record.size() - 4));
  return record;
}

}  // namespace

Result<Caller> Caller::connect(const std::string& what, const std::string& host, uint16_t port,
                               const Terms& terms) {
  std::string peer = what + " at " + host + " port " + std::to_string(port);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0)
    return fail(Errc::kNotFound, peer + ": " + ::gai_strerror(error));
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  Error last;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    Result<base::Fd> socket = connect_to(*each, terms.deadline_ns);
    if (socket)
      return Caller(std::move(*socket), each->ai_family, peer, terms);
    last = {socket.error().code, peer + ": " + socket.error().message};
  }
  return tl::unexpected(last);
}

Result<Caller> Caller::connect_local(const Terms& terms) {
  Result<base::Fd> socket = make_socket(AF_UNIX);
  if (!socket)
    return tl::unexpected(socket.error());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, kSocketPath.data(), kSocketPath.size());
  if (::connect(socket->get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    return fail(Errc::kNotFound, "no rpcbind answers on this host at " + std::string(kSocketPath) +
                                     " (" + base::system_message(errno) +
                                     "): start it, or do without");
  return Caller(std::move(*socket), AF_UNIX, "rpcbind of this host", terms);
}

tl::unexpected<Error> Caller::system_failure() const {
  const int error = errno;
  return fail(code_of(error), peer_ + ": " + base::system_message(error));
}

Result<void> Caller::wait(short events) {
  Result<void> ready = wait_for(socket_.get(), events, terms_.deadline_ns);
  if (!ready)
    return fail(ready.error().code, peer_ + ": " + ready.error().message);
  return {};
}

Result<void> Caller::send(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0)
      bytes = bytes.subspan(static_cast<size_t>(sent));
    else if (errno != EAGAIN && errno != EINTR)
      return system_failure();
    else if (Result<void> ready = wait(POLLOUT); !ready)
      return ready;
  }
  return {};
}

Result<void> Caller::receive(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    // Also when there is always a byte: the deadline counts.
    if (Result<void> ready = wait(POLLIN); !ready)
      return ready;
    ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (got > 0)
      bytes = bytes.subspan(static_cast<size_t>(got));
    else if (got == 0)
      return fail(Errc::kConnectionLost, peer_ + ": it closed the connection without an answer");
    else if (errno != EAGAIN && errno != EINTR)
      return system_failure();
  }
  return {};
}

Result<std::vector<std::byte>> Caller::receive_record() {
  std::array<std::byte, 4> mark;
  std::vector<std::byte> record;
  for (uint32_t word = 0; (word & kLastFragment) == 0;) {
    if (Result<void> got = receive(mark); !got)
      return tl::unexpected(got.error());
    word = xdr::load_u32(mark.data());
    size_t length = word & ~kLastFragment;
    if (length == 0 && (word & kLastFragment) == 0)  // no sender makes them; they could go on
      return tl::unexpected(not_a_peer("it sends empty fragments"));
    if (length > terms_.longest_reply - record.size())
      return tl::unexpected(not_a_peer("its answer is longer than any that is expected"));
    record.resize(record.size() + length);
    if (Result<void> got = receive(std::span(record).last(length)); !got)
      return tl::unexpected(got.error());
  }
  return record;
}

Result<Reply> Caller::call(const rpc::CallTarget& target, const TcpArguments& args) {
  uint32_t xid = base::Random().next();
  if (auto sent = send(make_record(xid, target, terms_.credential.bytes(), args)); !sent)
    return tl::unexpected(sent.error());
  Result<std::vector<std::byte>> record = receive_record();
  if (!record)
    return tl::unexpected(record.error());
  Reply reply;
  reply.message = std::move(*record);
  reply.whole =
      std::make_unique<Fragment>(reply.message.data(), static_cast<uint32_t>(reply.message.size()));
  reply.results = Decoder(std::span(reply.whole.get(), 1));
  if (!rpc::decode_reply(reply.results, reply.header) || reply.header.xid != xid)
    return tl::unexpected(not_a_peer("what answers sends no RPC reply"));
  return reply;
}

Error Caller::not_a_peer(std::string_view why) const {
  return {Errc::kNotAPeer, peer_ + ": " + std::string(why)};
}

}  // namespace rrdk::rpcbind
