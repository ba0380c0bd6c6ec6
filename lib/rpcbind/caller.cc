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
#include "base/system_message.h"

namespace rrdk::rpcbind {

namespace {

// A host's whole list is far below this.
constexpr size_t kLongestReply = 1u << 20;
constexpr uint32_t kProgram = 100000;  // RFC 1833
// Where an rpcbind listens for programs of its host. Not the abstract name that some have besides:
// any user could bind that.
constexpr std::string_view kSocketPath = "/run/rpcbind.sock";
// Bits of a record mark (RFC 5531 section 11).
constexpr uint32_t kLastFragment = 1u << 31;

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
      return fail(Errc::kSystem, "poll: " + base::system_message(errno));
  }
}

Result<base::Fd> connect_to(const addrinfo& address, uint64_t deadline_ns) {
  base::Fd socket(::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket)
    return fail(Errc::kSystem, "socket: " + base::system_message(errno));
  if (::connect(socket.get(), address.ai_addr, address.ai_addrlen) == 0)
    return socket;
  int error = errno;
  if (error == EINPROGRESS) {
    if (Result<void> ready = wait_for(socket.get(), POLLOUT, deadline_ns); !ready)
      return tl::unexpected(ready.error());
    socklen_t length = sizeof(error);
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  }
  if (error == 0)
    return socket;
  return fail(error == ECONNREFUSED ? Errc::kRefused : Errc::kConnectionLost,
              base::system_message(error));
}

}  // namespace

Result<Caller> Caller::connect(const std::string& host, uint16_t port, uint64_t deadline_ns) {
  std::string peer = "rpcbind at " + host + " port " + std::to_string(port);
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
    Result<base::Fd> socket = connect_to(*each, deadline_ns);
    if (socket)
      return Caller(std::move(*socket), each->ai_family, peer, deadline_ns);
    last = {socket.error().code, peer + ": " + socket.error().message};
  }
  return tl::unexpected(last);
}

Result<Caller> Caller::connect_local(uint64_t deadline_ns) {
  base::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, kSocketPath.data(), kSocketPath.size());
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    return fail(Errc::kNotFound, "no rpcbind answers on this host at " + std::string(kSocketPath) +
                                     " (" + base::system_message(errno) +
                                     "): start it, or do without");
  return Caller(std::move(socket), AF_UNIX, "rpcbind of this host", deadline_ns);
}

Result<void> Caller::wait(short events) {
  Result<void> ready = wait_for(socket_.get(), events, deadline_ns_);
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
      return fail(Errc::kConnectionLost, peer_ + ": " + base::system_message(errno));
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
      return fail(Errc::kConnectionLost, peer_ + ": " + base::system_message(errno));
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
    if (length > kLongestReply - record.size())
      return tl::unexpected(not_rpcbind());
    record.resize(record.size() + length);
    if (Result<void> got = receive(std::span(record).last(length)); !got)
      return tl::unexpected(got.error());
  }
  return record;
}

Result<Reply> Caller::call(uint32_t version, Procedure procedure, const Arguments& arguments) {
  uint32_t xid = base::Random().next();
  Arguments call;  // RFC 5531 section 9; AUTH_NONE twice
  for (uint32_t word :
       {xid, 0u, 2u, kProgram, version, static_cast<uint32_t>(procedure), 0u, 0u, 0u, 0u})
    call.put_u32(word);
  auto length = static_cast<uint32_t>(call.bytes().size() + arguments.bytes().size());
  Arguments mark;
  mark.put_u32(kLastFragment | length);
  for (std::span<const std::byte> part : {mark.bytes(), call.bytes(), arguments.bytes()}) {
    if (Result<void> sent = send(part); !sent)
      return tl::unexpected(sent.error());
  }
  Result<std::vector<std::byte>> record = receive_record();
  if (!record)
    return tl::unexpected(record.error());
  Reply reply;
  reply.message = std::move(*record);
  reply.whole =
      std::make_unique<Fragment>(reply.message.data(), static_cast<uint32_t>(reply.message.size()));
  reply.results = Decoder(std::span(reply.whole.get(), 1));
  if (!rpc::decode_reply(reply.results, reply.header) || reply.header.xid != xid)
    return tl::unexpected(not_rpcbind());
  return reply;
}

Error Caller::not_rpcbind() const {
  return {Errc::kNotAPeer, peer_ + ": what answers does not speak the rpcbind protocol"};
}

void Arguments::put_u32(uint32_t value) {
  bytes_.resize(bytes_.size() + sizeof(value));
  xdr::store_u32(&bytes_[bytes_.size() - sizeof(value)], value);
}

void Arguments::put_string(std::string_view text) {
  put_u32(static_cast<uint32_t>(text.size()));
  auto bytes = std::as_bytes(std::span(text));
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  bytes_.resize((bytes_.size() + 3) / 4 * 4);
}

}  // namespace rrdk::rpcbind
