#include "nfs3_tcp_call.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "rrdk/rpc.h"
#include "rrdk/runtime.h"
#include "rrdk/xdr.h"

namespace rrdk::nfs3 {
namespace {

constexpr uint32_t kMostReply = 64 << 10;  // bytes; what MOUNT and rpcbind answer is far shorter
constexpr uint32_t kLastFragment = 1u << 31;
constexpr uint32_t kXid = 0x7272646b;  // one call a connection: nothing to be told apart

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0)
      close(fd_);
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&&) = delete;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// One exchange: what its errors are called by, and until when it may last.
struct Exchange {
  std::string where;  // "host:port"
  uint64_t deadline_ns;
};

tl::unexpected<Error> system_failure(const Exchange& exchange) {
  Errc code = errno == ECONNREFUSED ? Errc::kRefused : Errc::kSystem;
  return fail(code, exchange.where + ": " + std::strerror(errno));
}

// False when the time is up; errno is ETIMEDOUT then.
bool wait_for(const Exchange& exchange, int fd, short events) {
  for (;;) {
    uint64_t now = Runtime::now_ns();
    int left_ms =
        now >= exchange.deadline_ns ? 0 : static_cast<int>((exchange.deadline_ns - now) / 1000000);
    pollfd event = {fd, events, 0};
    int ready = poll(&event, 1, left_ms);
    if (ready > 0)
      return true;
    if (ready == 0)
      errno = ETIMEDOUT;
    else if (errno == EINTR)
      continue;
    return false;
  }
}

tl::unexpected<Error> time_is_up(const Exchange& exchange) {
  if (errno != ETIMEDOUT)
    return system_failure(exchange);
  return fail(Errc::kTimeout, exchange.where + " does not answer in time");
}

Result<Socket> connect_to(const Exchange& exchange, const addrinfo& address) {
  Socket socket(
      ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  if (socket.fd() < 0)
    return system_failure(exchange);
  if (connect(socket.fd(), address.ai_addr, address.ai_addrlen) == 0)
    return socket;
  if (errno != EINPROGRESS)
    return system_failure(exchange);
  if (!wait_for(exchange, socket.fd(), POLLOUT))
    return time_is_up(exchange);
  socklen_t length = sizeof errno;
  getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &errno, &length);
  if (errno != 0)
    return system_failure(exchange);
  return socket;
}

Result<Socket> connect_to(const Exchange& exchange, const TcpCall& call) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  int status = getaddrinfo(call.host.c_str(), std::to_string(call.port).c_str(), &hints, &list);
  if (status != 0)
    return fail(Errc::kNotFound, "host '" + call.host + "': " + gai_strerror(status));
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  Result<Socket> connected = connect_to(exchange, *list);
  for (const addrinfo* next = list->ai_next; next != nullptr && !connected; next = next->ai_next) {
    Result<Socket> other = connect_to(exchange, *next);
    if (other)
      return other;
  }
  return connected;
}

Result<void> send_all(const Exchange& exchange, int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (!wait_for(exchange, fd, POLLOUT))
      return time_is_up(exchange);
    ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR)
      return system_failure(exchange);
    bytes = bytes.subspan(n < 0 ? 0 : static_cast<size_t>(n));
  }
  return {};
}

Result<void> receive_all(const Exchange& exchange, int fd, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    if (!wait_for(exchange, fd, POLLIN))
      return time_is_up(exchange);
    ssize_t n = recv(fd, bytes.data(), bytes.size(), 0);
    if (n == 0)
      return fail(Errc::kNotAPeer, exchange.where + " closed the connection without an answer");
    if (n < 0 && errno != EAGAIN && errno != EINTR)
      return system_failure(exchange);
    bytes = bytes.subspan(n < 0 ? 0 : static_cast<size_t>(n));
  }
  return {};
}

// RFC 5531 section 11: fragments, each behind a word with its length and whether it is the last.
Result<std::vector<std::byte>> receive_record(const Exchange& exchange, int fd) {
  std::vector<std::byte> record;
  for (uint32_t mark = 0; (mark & kLastFragment) == 0;) {
    std::byte word[4];
    if (Result<void> got = receive_all(exchange, fd, word); !got)
      return tl::unexpected(got.error());
    mark = xdr::load_u32(word);
    uint32_t length = mark & ~kLastFragment;
    if (length > kMostReply - record.size() || (length == 0 && (mark & kLastFragment) == 0))
      return fail(Errc::kNotAPeer, exchange.where + " sends records that no RPC service sends");
    size_t before = record.size();
    record.resize(before + length);
    if (Result<void> got = receive_all(exchange, fd, std::span(record).subspan(before)); !got)
      return tl::unexpected(got.error());
  }
  return record;
}

std::vector<std::byte> make_record(const TcpCall& call) {
  std::vector<std::byte> identity;
  put_u32(identity, 0);  // stamp
  put_string(identity, "testrpc");
  put_u32(identity, geteuid());
  put_u32(identity, getegid());
  put_u32(identity, 0);  // no supplementary groups
  std::vector<std::byte> record(4);
  for (uint32_t word :
       {kXid, static_cast<uint32_t>(MsgType::kCall), 2u, call.program, call.version, call.procedure,
        static_cast<uint32_t>(AuthFlavor::kSys), static_cast<uint32_t>(identity.size())})
    put_u32(record, word);
  record.insert(record.end(), identity.begin(), identity.end());
  put_u32(record, static_cast<uint32_t>(AuthFlavor::kNone));
  put_u32(record, 0);
  record.insert(record.end(), call.args.begin(), call.args.end());
  xdr::store_u32(record.data(), kLastFragment | static_cast<uint32_t>(record.size() - 4));
  return record;
}

// The results behind the reply's header.
Result<std::vector<std::byte>> open_reply(const Exchange& exchange,
                                          const std::vector<std::byte>& record) {
  Fragment whole = {record.data(), static_cast<uint32_t>(record.size())};
  Decoder reply(std::span(&whole, 1));
  uint32_t xid = reply.get_u32();
  uint32_t type = reply.get_u32();
  auto stat = static_cast<ReplyStat>(reply.get_u32());
  if (!reply.ok() || xid != kXid || type != static_cast<uint32_t>(MsgType::kReply))
    return fail(Errc::kNotAPeer, exchange.where + " sends no RPC reply");
  if (stat != ReplyStat::kAccepted)
    return fail(Errc::kPermission, exchange.where + " denies the call");
  reply.get_u32();  // the verifier
  reply.get_opaque(kMaxAuthBody);
  auto accepted = static_cast<AcceptStat>(reply.get_u32());
  if (!reply.ok())
    return fail(Errc::kNotAPeer, exchange.where + " sends no RPC reply");
  if (accepted != AcceptStat::kSuccess)
    return fail(Errc::kUnsupported, exchange.where + " answers: " + to_string(accepted));
  return std::vector<std::byte>(record.end() - static_cast<ptrdiff_t>(reply.remaining()),
                                record.end());
}

}  // namespace

void put_u32(std::vector<std::byte>& to, uint32_t value) {
  to.resize(to.size() + 4);
  xdr::store_u32(to.data() + to.size() - 4, value);
}

void put_string(std::vector<std::byte>& to, std::string_view text) {
  put_u32(to, static_cast<uint32_t>(text.size()));
  auto bytes = std::as_bytes(std::span(text));
  to.insert(to.end(), bytes.begin(), bytes.end());
  to.resize(to.size() + xdr_pad(text.size()));
}

Result<std::vector<std::byte>> call_over_tcp(const TcpCall& call) {
  Exchange exchange = {call.host + ":" + std::to_string(call.port),
                       Runtime::now_ns() + call.timeout_ms * uint64_t{1000000}};
  Result<Socket> socket = connect_to(exchange, call);
  if (!socket)
    return tl::unexpected(socket.error());
  if (Result<void> sent = send_all(exchange, socket->fd(), make_record(call)); !sent)
    return tl::unexpected(sent.error());
  Result<std::vector<std::byte>> record = receive_record(exchange, socket->fd());
  if (!record)
    return record;
  return open_reply(exchange, *record);
}

}  // namespace rrdk::nfs3
