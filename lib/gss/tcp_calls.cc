#include "gss/tcp_calls.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include "base/addresses.h"
#include "base/uri.h"
#include "rpc/headers_datapath.h"
#include "rrdk/xdr.h"

namespace rrdk::gss {

namespace {

constexpr int kBacklog = 16;
constexpr int kLookMs = 500;                  // how soon the end of a connection's time is noticed
constexpr uint32_t kLastFragment = 1u << 31;  // RFC 5531 section 11
constexpr uint32_t kMarkBytes = 4;

template <typename... Values>
void append_words(std::vector<std::byte>& to, Values... values) {
  (append_u32(to, static_cast<uint32_t>(values)), ...);
}

// The host, or the network that a host of IPv6 can have all addresses of. A socket of [::] has
// hosts of IPv4, too.
fabric::Identity origin_of(const base::SocketAddress& far) {
  fabric::Identity origin = {{AF_INET}};
  if (far.storage.ss_family == AF_INET) {
    std::memcpy(&origin.words[1], &reinterpret_cast<const sockaddr_in*>(far.get())->sin_addr, 4);
    return origin;
  }
  const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(far.get())->sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    std::memcpy(&origin.words[1], &address.s6_addr[12], 4);
    return origin;
  }
  const bool is_local = IN6_IS_ADDR_LINKLOCAL(&address) || IN6_IS_ADDR_LOOPBACK(&address);
  origin.words[0] = AF_INET6;
  std::memcpy(&origin.words[1], &address, is_local ? 16 : 8);
  return origin;
}

tl::unexpected<Error> cannot_listen(const std::string& where) {
  const int error = errno;
  const Errc code = error == EADDRINUSE ? Errc::kAddressInUse
                    : error == EACCES   ? Errc::kPermission
                                        : Errc::kSystem;
  return fail(code, "GssAcceptorOptions::tcp: '" + where + "': " + base::system_message(error));
}

}  // namespace

struct TcpCalls::Connection {
  TcpCalls* owner = nullptr;
  base::Fd socket;
  fabric::Identity origin;
  uint64_t number = 0;
  Clock::time_point began;
  bool waits = false;                      // for the acceptor's thread, which knows this object
  std::unique_ptr<Establishment> checked;  // what that thread is done with; under the mutex

  // What is read: a mark, then its fragment, until the record is whole.
  std::byte mark[kMarkBytes] = {};
  uint32_t mark_bytes = 0;
  uint32_t left = 0;  // of the fragment
  std::vector<std::byte> record;
  uint32_t xid = 0;

  std::vector<std::byte> reply;
  size_t sent = 0;

  bool is_last_fragment() const { return (xdr::load_u32(mark) & kLastFragment) != 0; }

  // A reply up to the status of an accepted call (RFC 5531 section 9).
  void accept(AcceptStat status, std::span<const std::byte> verifier = {}) {
    begin_reply(ReplyStat::kAccepted);
    append_words(reply, verifier.empty() ? AuthFlavor::kNone : AuthFlavor::kRpcsecGss);
    append_opaque(reply, verifier);
    append_words(reply, status);
  }
  void deny(AuthStat why) {
    begin_reply(ReplyStat::kDenied);
    append_words(reply, RejectStat::kAuthError, why);
  }
  void mismatch() {
    begin_reply(ReplyStat::kDenied);
    append_words(reply, RejectStat::kRpcMismatch, rpc::kRpcVersion, rpc::kRpcVersion);
  }
  void begin_reply(ReplyStat status) {
    reply.clear();
    append_words(reply, 0, xid, MsgType::kReply, status);  // the mark follows
  }
  // It is whole, and can be sent.
  void end_reply() {
    xdr::store_u32(reply.data(), kLastFragment | static_cast<uint32_t>(reply.size() - kMarkBytes));
    sent = 0;
    record.clear();
  }
};

Result<std::unique_ptr<TcpCalls>> TcpCalls::start(Contexts& contexts, const std::string& where,
                                                  std::chrono::milliseconds most) {
  const auto uri = base::parse_uri("tcp://" + where);
  std::vector<base::SocketAddress> found;
  if (uri && uri->port && uri->path.empty() && uri->query.empty())
    found = base::numeric_address(uri->host, *uri->port);
  if (found.empty())
    return fail(Errc::kInvalidArgument, "GssAcceptorOptions::tcp: '" + where +
                                            "' is not an address with a port, like 0.0.0.0:2049");
  base::SocketAddress at = found.front();
  base::Fd listener(::socket(at.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (!listener || ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      ::bind(listener.get(), at.get(), at.length) != 0 || ::listen(listener.get(), kBacklog) != 0 ||
      ::getsockname(listener.get(), at.get(), &at.length) != 0)
    return cannot_listen(where);
  base::Fd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake)
    return base::system_failure("eventfd");
  const uint16_t port =
      ntohs(at.storage.ss_family == AF_INET ? reinterpret_cast<sockaddr_in*>(at.get())->sin_port
                                            : reinterpret_cast<sockaddr_in6*>(at.get())->sin6_port);
  return std::unique_ptr<TcpCalls>(
      new TcpCalls(contexts, std::move(listener), std::move(wake), port, most));
}

TcpCalls::TcpCalls(Contexts& contexts, base::Fd listener, base::Fd wake, uint16_t port,
                   std::chrono::milliseconds most)
    : contexts_(contexts),
      listener_(std::move(listener)),
      wake_(std::move(wake)),
      port_(port),
      most_(most) {
  const base::SignalsBlocked blocked;
  thread_ = std::thread([this] { run(); });
}

TcpCalls::~TcpCalls() {
  ends_ = true;
  wake();
  thread_.join();
  const std::lock_guard lock(mutex_);  // the acceptor's thread may just be leaving
}

void TcpCalls::wake() noexcept {
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

// It goes on until no token is waiting, because the acceptor's thread would answer to it.
void TcpCalls::run() {
  while (!ends_ || std::ranges::any_of(connections_, [](auto& one) { return one->waits; }))
    pass();
}

void TcpCalls::pass() {
  std::vector<pollfd> events = {{wake_.get(), POLLIN, 0},
                                {accepts_ && !ends_ ? listener_.get() : -1, POLLIN, 0}};
  const size_t first = events.size();
  for (const auto& one : connections_) {
    const short wanted = one->reply.empty() ? POLLIN : POLLOUT;
    events.push_back({one->waits ? -1 : one->socket.get(), wanted, 0});
  }
  const bool nothing_to_time = connections_.empty() && accepts_;
  if (::poll(events.data(), events.size(), nothing_to_time ? -1 : kLookMs) < 0)
    return;
  accepts_ = true;
  if (events[0].revents != 0)
    take_answers();
  for (size_t i = 0; i + first != events.size(); ++i) {
    Connection& one = *connections_[i];
    if (events[i + first].revents != 0 && one.socket && !serve(one))
      one.socket.reset();
  }
  close_old();
  if (events[1].revents != 0)
    accept_one();
}

void TcpCalls::take_answers() {
  uint64_t count;
  (void)!::read(wake_.get(), &count, sizeof count);
  for (const auto& one : connections_) {
    std::unique_ptr<Establishment> work;
    {
      const std::lock_guard lock(mutex_);
      work = std::move(one->checked);
    }
    if (work != nullptr)
      give_results(*one, *work);
  }
}

// rpc_gss_init_res (RFC 2203 section 5.2.3.1).
void TcpCalls::give_results(Connection& connection, const Establishment& work) try {
  connection.waits = false;
  if (work.made_way) {
    ++refused_;
    connection.accept(AcceptStat::kSystemErr);
    return connection.end_reply();
  }
  if (!work.known) {
    ++refused_;
    connection.deny(AuthStat::kGssCredProblem);
    return connection.end_reply();
  }
  connection.accept(AcceptStat::kSuccess, work.checksum.bytes());
  const bool failed = GSS_ERROR(work.major) != 0;
  append_opaque(connection.reply,
                failed ? std::span<const std::byte>() : std::span<const std::byte>(work.handle));
  append_words(connection.reply, work.major, work.minor, SequenceWindow::kTold);
  append_opaque(connection.reply, work.answer.bytes());
  connection.end_reply();
} catch (const std::bad_alloc&) {
  connection.socket.reset();
}

// Those whose time is over, and those that have been closed.
void TcpCalls::close_old() {
  const Clock::time_point limit = Clock::now() - most_;
  std::erase_if(connections_, [&](const std::unique_ptr<Connection>& one) {
    if (!one->socket)
      return true;
    const bool is_over = !one->waits && one->began < limit;
    refused_ += is_over;
    return is_over;
  });
}

// The oldest of the host with the most gives way. Returns false if all connections wait for the
// acceptor's thread.
bool TcpCalls::make_space() {
  if (connections_.size() < kMostConnections)
    return true;
  ++refused_;
  const auto rank = [this](const std::unique_ptr<Connection>& one) {
    return one->waits ? -1 : std::ranges::count(connections_, one->origin, [](const auto& other) {
      return other->origin;
    });
  };
  const auto oldest = std::ranges::max_element(connections_, {}, rank);
  if ((*oldest)->waits)
    return false;
  connections_.erase(oldest);
  return true;
}

void TcpCalls::accept_one() {
  base::SocketAddress far;
  far.length = sizeof far.storage;
  base::Fd socket(::accept4(listener_.get(), far.get(), &far.length, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    accepts_ = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
    return;
  }
  if (!make_space())
    return;
  auto& one = *connections_.emplace_back(std::make_unique<Connection>());
  one.owner = this;
  one.socket = std::move(socket);
  one.origin = origin_of(far);
  one.number = ~accepted_++;  // not the number of a link
  one.began = Clock::now();
}

// Returns false if the connection has ended.
bool TcpCalls::serve(Connection& connection) try {
  return connection.reply.empty() ? read(connection) : write(connection);
} catch (const std::bad_alloc&) {
  return false;
}

bool TcpCalls::write(Connection& connection) {
  const auto rest = std::span(connection.reply).subspan(connection.sent);
  const ssize_t sent = ::send(connection.socket.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
  if (sent < 0)
    return errno == EAGAIN || errno == EINTR;
  connection.sent += static_cast<size_t>(sent);
  if (connection.sent == connection.reply.size())
    connection.reply.clear();
  return true;
}

// Takes what is there of the mark or the fragment, and no byte of a call behind.
bool TcpCalls::read(Connection& one) {
  std::byte bytes[4096];
  const bool in_mark = one.mark_bytes != kMarkBytes;
  const size_t wanted =
      in_mark ? kMarkBytes - one.mark_bytes : std::min(sizeof bytes, static_cast<size_t>(one.left));
  const ssize_t got = ::recv(one.socket.get(), bytes, wanted, 0);
  if (got < 0)
    return errno == EAGAIN || errno == EINTR;
  if (got == 0)
    return false;
  if (in_mark) {
    std::copy_n(bytes, got, one.mark + one.mark_bytes);
    one.mark_bytes += static_cast<uint32_t>(got);
    if (one.mark_bytes != kMarkBytes)
      return true;
    one.left = xdr::load_u32(one.mark) & ~kLastFragment;
    if (one.left > kLongestCall - one.record.size()) {
      ++refused_;
      return false;
    }
  } else {
    one.record.insert(one.record.end(), bytes, bytes + got);
    one.left -= static_cast<uint32_t>(got);
  }
  if (one.left != 0)
    return true;
  one.mark_bytes = 0;
  return !one.is_last_fragment() || answer(one);
}

// Returns false if it is no call, which has no answer.
bool TcpCalls::answer(Connection& connection) {
  const Fragment whole[] = {
      {connection.record.data(), static_cast<uint32_t>(connection.record.size())}};
  Decoder in(whole);
  rpc::CallHeader header;
  const rpc::CallVerdict verdict = rpc::decode_call(in, header);
  connection.xid = header.xid;
  CredentialBody credential;
  const bool is_gss = header.credential.flavor == AuthFlavor::kRpcsecGss;
  if (verdict == rpc::CallVerdict::kNotACall) {
    ++refused_;
    return false;
  }
  if (verdict == rpc::CallVerdict::kRpcMismatch)
    connection.mismatch();
  else if (verdict == rpc::CallVerdict::kGarbage)
    connection.accept(AcceptStat::kGarbageArgs);
  else if (verdict == rpc::CallVerdict::kBadVerifier)
    connection.deny(AuthStat::kBadVerf);
  else if (verdict != rpc::CallVerdict::kOk)
    connection.deny(AuthStat::kBadCred);
  else if (is_gss && !decode(header.credential, credential))
    connection.deny(denial(credential));
  else if (header.procedure != 0)
    connection.accept(AcceptStat::kProcUnavail);
  else if (is_gss)
    return take_token(connection, credential, in);
  else {
    connection.accept(AcceptStat::kSuccess);
    connection.end_reply();
    return true;
  }
  ++refused_;
  connection.end_reply();
  return true;
}

// Hands the token to the acceptor's thread, or answers why not.
bool TcpCalls::take_token(Connection& connection, const CredentialBody& credential, Decoder& in) {
  const bool is_new = credential.control == Control::kInit;
  const ItemView token = in.get_opaque(kLongestToken);
  if (!is_new && credential.control != Control::kContinueInit) {
    connection.deny(AuthStat::kTooWeak);  // contexts are used over RDMA only
  } else if (!in.at_end()) {
    connection.accept(AcceptStat::kGarbageArgs);
  } else if (is_new && credential.handle_length != 0) {
    connection.deny(AuthStat::kBadCred);
  } else if (!is_new && credential.handle_length != credential.handle.size()) {
    connection.deny(AuthStat::kGssCredProblem);
  } else {
    auto work = std::make_unique<Establishment>();
    work->control = credential.control;
    work->handle = credential.handle;
    work->token.resize(token.size());
    token.copy_to(work->token.data());
    work->from = owner_of(connection.origin, connection.number);
    work->call = &connection;
    work->done = [](Establishment& done) {
      Connection& its = *static_cast<Connection*>(done.call);
      const std::lock_guard lock(its.owner->mutex_);
      its.checked.reset(&done);
      its.owner->wake();
    };
    connection.waits = contexts_.establish(std::move(work));
    if (connection.waits)
      return true;
    connection.accept(AcceptStat::kSystemErr);
  }
  ++refused_;
  connection.end_reply();
  return true;
}

}  // namespace rrdk::gss
