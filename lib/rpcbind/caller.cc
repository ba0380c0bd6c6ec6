#include "rpcbind/caller.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/random.h"
#include "base/system.h"
#include "rpc/headers_datapath.h"

namespace rrdk::rpcbind {

namespace {

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

int poll_ms(uint64_t now_ns, uint64_t until_ns) {
  constexpr uint64_t kMillisecondNs = 1'000'000;
  return static_cast<int>(std::min<uint64_t>((until_ns - now_ns) / kMillisecondNs + 1, 1000));
}

// Waits until the socket is ready. Returns kTimeout if it was not.
Result<void> wait_for(int socket, short events, uint64_t deadline_ns) {
  for (;;) {
    uint64_t now = base::Tsc::now_ns();
    if (now >= deadline_ns)
      return fail(Errc::kTimeout, "no answer in time");
    pollfd entry{.fd = socket, .events = events, .revents = 0};
    int ready = ::poll(&entry, 1, poll_ms(now, deadline_ns));
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

// Attempts at the addresses of a host, which overlap (RFC 8305 section 5): an address that does not
// answer must not use up the time of the others.
class Attempts {
 public:
  struct Connected {
    base::Fd socket;
    base::SocketAddress far;
  };

  explicit Attempts(std::span<const base::SocketAddress> addresses) : left_(addresses) {}

  // Addresses that may still connect.
  size_t left() const { return left_.size() + open_.size(); }

  // Returns the next connection that is established; otherwise the error of the last address that
  // failed.
  Result<Connected> next(uint64_t deadline_ns) {
    while (!connected_) {
      const uint64_t now = base::Tsc::now_ns();
      if (now >= deadline_ns)
        return fail(Errc::kTimeout, "no answer in time");
      if (!left_.empty() && now >= next_ns_)
        start_next(now);
      else if (open_.empty())
        return tl::unexpected(last_);
      else if (Result<void> waited =
                   wait(now, left_.empty() ? deadline_ns : std::min(next_ns_, deadline_ns));
               !waited)
        return tl::unexpected(waited.error());
    }
    next_ns_ = 0;  // if the caller comes again, this one was useless
    return *std::exchange(connected_, std::nullopt);
  }

 private:
  static constexpr uint64_t kNextAfterNs =
      std::chrono::nanoseconds(base::kNextAddressAfter).count();

  void start_next(uint64_t now) {
    const base::SocketAddress address = left_.front();
    left_ = left_.subspan(1);
    next_ns_ = now + kNextAfterNs;
    Result<base::Fd> socket = make_socket(address.storage.ss_family);
    if (!socket)
      return failed(socket.error());
    if (::connect(socket->get(), address.get(), address.length) == 0)
      connected_ = {std::move(*socket), address};
    else if (errno == EINPROGRESS)
      open_.push_back({std::move(*socket), address});
    else
      failed({code_of(errno), base::system_message(errno)});
  }

  Result<void> wait(uint64_t now, uint64_t until) {
    std::vector<pollfd> entries;
    entries.reserve(open_.size());
    for (const Connected& attempt : open_)
      entries.push_back({.fd = attempt.socket.get(), .events = POLLOUT, .revents = 0});
    if (::poll(entries.data(), entries.size(), poll_ms(now, until)) < 0 && errno != EINTR)
      return base::system_failure("poll");
    for (size_t i = entries.size(); i-- != 0;) {
      if (entries[i].revents != 0)
        finish(open_.begin() + static_cast<ptrdiff_t>(i));
    }
    return {};
  }

  void finish(std::vector<Connected>::iterator attempt) {
    int error = 0;
    socklen_t length = sizeof(error);
    if (::getsockopt(attempt->socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0)
      error = errno;
    if (error == 0)
      connected_ = std::move(*attempt);
    else
      failed({code_of(error), base::system_message(error)});
    open_.erase(attempt);
  }

  // The next address need not wait.
  void failed(Error why) {
    last_ = std::move(why);
    next_ns_ = 0;
  }

  std::span<const base::SocketAddress> left_;
  std::vector<Connected> open_;
  std::optional<Connected> connected_;
  uint64_t next_ns_ = 0;
  Error last_;
};

// In one piece: a record that is sent in several pieces may wait for the peer's acknowledgements.
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

Result<void> Caller::ask_host(const std::string& what, const std::string& host, uint16_t port,
                              const Terms& terms, const Calls& calls) {
  std::string peer = what + " at " + host + " port " + std::to_string(port);
  Result<std::vector<base::SocketAddress>> addresses = base::look_up_addresses(host, port);
  if (!addresses)
    return fail(Errc::kNotFound, peer + ": " + addresses.error().message);
  Attempts attempts(*addresses);
  Result<void> asked;
  while (attempts.left() != 0) {
    Result<Attempts::Connected> made = attempts.next(terms.deadline_ns);
    if (!made)  // the result of an address that took a call says more
      return asked ? fail(made.error().code, peer + ": " + made.error().message) : asked;
    Caller caller(std::move(made->socket), made->far, peer, terms);
    const uint64_t now = base::Tsc::now_ns();
    const uint64_t time_left = terms.deadline_ns - std::min(now, terms.deadline_ns);
    caller.terms_.deadline_ns = now + time_left / (attempts.left() + 1);
    asked = calls(caller);
    if (asked ||
        (asked.error().code != Errc::kTimeout && asked.error().code != Errc::kConnectionLost))
      return asked;
  }
  return asked;
}

Result<Caller> Caller::connect_local(const std::string& path, const Terms& terms) {
  sockaddr_un address{};
  if (path.size() >= sizeof(address.sun_path))
    return fail(Errc::kInvalidArgument, "the path of rpcbind's socket is too long: " + path);
  Result<base::Fd> socket = make_socket(AF_UNIX);
  if (!socket)
    return tl::unexpected(socket.error());
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  if (::connect(socket->get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    // EAGAIN, for example, means an rpcbind that is busy.
    return fail(errno == ENOENT || errno == ECONNREFUSED ? Errc::kNotFound : code_of(errno),
                "no rpcbind answers on this host at " + path + " (" + base::system_message(errno) +
                    "): start it, or do without");
  return Caller(std::move(*socket), {}, "rpcbind of this host", terms);
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
    // Also if there is always a byte to read: the deadline counts.
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
    // No sender makes such fragments, which could go on for ever.
    if (length == 0 && (word & kLastFragment) == 0)
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
    return tl::unexpected(not_a_peer("what answers does not send an RPC reply"));
  return reply;
}

Error Caller::not_a_peer(std::string_view why) const {
  return {Errc::kNotAPeer, peer_ + ": " + std::string(why)};
}

}  // namespace rrdk::rpcbind
