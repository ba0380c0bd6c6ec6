// How a queue pair becomes connected, and what is told of its end: the control thread's part of
// QueuePair.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/system.h"
#include "drivers/iwarp/device.h"
#include "drivers/iwarp/parting.h"
#include "drivers/iwarp/queue_pair.h"

namespace rrdk::iwarp {

using drivers::Clock;

namespace {

// TCP gives up on a peer that answers nothing for so long, with data under way or without.
constexpr unsigned kSilenceMs = 30000;
constexpr int kKeepAliveSeconds = 10;
// Ticks until the first poke of a peer that has said nothing yet; each later one takes twice as
// long.
constexpr uint32_t kFirstPoke = 2;
constexpr uint32_t kLastPoke = 256;

void set(int socket, int level, int option, int value) {
  (void)::setsockopt(socket, level, option, &value, sizeof(value));
}

int error_of(int socket) {
  int error = 0;
  socklen_t length = sizeof(error);
  return ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

std::string why(int error) {
  return std::string(std::strerror(error)) +
         (error == ECONNREFUSED ? ": nobody listens there" : "");
}

// False: not all of it was taken, which a socket that carried nothing yet does not do to us.
bool send_all(int socket, std::span<const std::byte> bytes) {
  const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent == static_cast<ssize_t>(bytes.size());
}

uint16_t depth(uint32_t reads) {
  return static_cast<uint16_t>(std::min<uint32_t>(reads, kMpaAnyDepth - 1));
}

// RFC 5044 section 4.2.1: an FPDU fills a TCP segment, and has no pad. Where segments are as large
// as on loopback TCP begins with half of the peer's first window and grows; what counts is then
// what the interface carries.
uint32_t ulpdu_of(int socket) {
  constexpr uint32_t kLarge = 16384;
  constexpr uint32_t kLeastMulpdu = 128;
  tcp_info info{};
  socklen_t length = sizeof(info);
  uint32_t segment = 0;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) == 0)
    segment = info.tcpi_snd_mss < kLarge ? info.tcpi_snd_mss : info.tcpi_advmss;
  const uint32_t fits = (segment - std::min(segment, 4u)) & ~3u;
  const uint32_t longest = (kMaxUlpdu + kLengthField) & ~3u;
  return std::clamp(fits, kLeastMulpdu + kLengthField, longest) - kLengthField;
}

}  // namespace

void tune(int socket) {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveSeconds);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveSeconds);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(kSilenceMs));
}

fabric::Event QueuePair::new_event(fabric::EventType type) const {
  fabric::Event event;
  event.type = type;
  event.owner = owner_;
  return event;
}

// Tries the peer's places until one of them does not fail at once.
Result<void> QueuePair::dial() {
  Result<void> started = fail(Errc::kNotFound, "the name has no address");
  while (next_endpoint_ != host_.endpoints.size()) {
    far_ = host_.endpoints[next_endpoint_++];
    const Result<bool> up = open_socket();
    started = up ? device_.control().watch(*this, socket_.get(), EPOLLOUT)
                 : Result<void>(tl::unexpected(up.error()));
    if (!started) {
      socket_.reset();
      continue;
    }
    device_.control().set_ticking(*this, true);
    if (*up)
      tcp_connected();
    return started;
  }
  return started;
}

// Whether the connection is there already.
Result<bool> QueuePair::open_socket() {
  const int family = far_.storage.ss_family;
  socket_ = base::Fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_)
    return base::system_failure("socket");
  tune(socket_.get());
  int error = ::connect(socket_.get(), far_.get(), far_.length) == 0 ? 0 : errno;
  // A peer on this host has answered by now.
  pollfd writable{socket_.get(), POLLOUT, 0};
  if (error == EINPROGRESS && ::poll(&writable, 1, 0) == 1)
    error = error_of(socket_.get());
  if (error == 0 || error == EINPROGRESS)
    return error == 0;
  return fail(drivers::code_of(error), place() + why(error));
}

Result<void> QueuePair::start_connect(const Place& to, std::span<const std::byte> private_data) {
  const std::lock_guard lock(device_.control().mutex());
  Status idle = Status::kIdle;
  if (!status_.compare_exchange_strong(idle, Status::kConnecting))
    return fail(Errc::kInvalidArgument, "the queue pair was connected before");
  private_data_.assign(private_data.begin(), private_data.end());
  asked_ = to.address;
  host_ = to.host;
  next_endpoint_ = 0;
  deadline_ = Clock::now() + asked_.timeout;
  Result<void> started = dial();
  if (!started)
    status_.store(Status::kIdle, std::memory_order_release);
  return started;
}

void QueuePair::on_ready() {
  if (status_.load(std::memory_order_acquire) == Status::kConnecting)
    tcp_up_ ? read_reply() : tcp_connected();
}

void QueuePair::tcp_connected() {
  if (const int error = error_of(socket_.get()); error != 0) {
    device_.control().unwatch(socket_.get());
    device_.control().forget(*this);
    if (next_endpoint_ != host_.endpoints.size() && dial())
      return;
    return connect_failed(fabric::EventType::kConnectFailed, drivers::code_of(error), why(error));
  }
  tcp_up_ = true;
  const bool enhanced = asked_.mpa_revision > 1;
  const MpaFrame request{.kind = MpaKind::kRequest,
                         .revision = asked_.mpa_revision,
                         .crc = asked_.crc,
                         .enhanced = enhanced,
                         .ird = depth(reads_),
                         .ord = depth(reads_),
                         .peer_to_peer = enhanced,
                         .rtr_write = enhanced,
                         .rtr_read = enhanced,
                         .private_data = private_data_};
  if (!send_all(socket_.get(), encode(request)))
    return connect_failed(fabric::EventType::kConnectFailed, Errc::kConnectionLost,
                          "the MPA request could not be sent");
  device_.control().change(*this, socket_.get(), EPOLLIN);
}

// Not a byte more than the reply: what follows is the data path's.
void QueuePair::read_reply() {
  for (;;) {
    uint32_t wanted = kMpaHeader;
    uint32_t rest = 0;
    if (reply_.size() >= kMpaHeader) {
      const MpaVerdict verdict =
          check_header(std::span(reply_).first<kMpaHeader>(), MpaKind::kReply, rest);
      if (verdict != MpaVerdict::kOk)
        return connect_failed(fabric::EventType::kConnectFailed, Errc::kNotAPeer,
                              std::string("the answer is ") + to_string(verdict));
      wanted += rest;
    }
    if (reply_.size() >= kMpaHeader && reply_.size() == wanted) {
      MpaFrame frame;
      (void)decode(reply_, MpaKind::kReply, frame);
      return take_reply(frame);
    }
    std::array<std::byte, kMpaHeader + kMpaMaxPrivate> bytes;
    const ssize_t got = ::recv(socket_.get(), bytes.data(), wanted - reply_.size(), MSG_DONTWAIT);
    if (got > 0) {
      reply_.insert(reply_.end(), bytes.begin(), bytes.begin() + got);
      continue;
    }
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
      return;
    return connect_failed(
        fabric::EventType::kConnectFailed,
        got == 0 ? Errc::kConnectionLost : drivers::code_of(errno),
        got == 0 ? "the peer closed the connection without an answer" : std::strerror(errno));
  }
}

void QueuePair::take_reply(const MpaFrame& reply) {
  if (reply.rejected)
    return connect_failed(fabric::EventType::kRejected, Errc::kRefused,
                          "the peer rejected the connection", reply.private_data);
  if (reply.markers)
    return connect_failed(fabric::EventType::kConnectFailed, Errc::kUnsupported,
                          "the peer wants MPA markers, which we do not send");
  Agreement agreed{.crc = asked_.crc || reply.crc, .initiator = true, .ord = reads_, .ird = reads_};
  if (reply.enhanced) {
    if (reply.ird != kMpaAnyDepth)
      agreed.ord = std::min<uint32_t>(reads_, reply.ird);
    if (reply.ord != kMpaAnyDepth)
      agreed.ird = std::max<uint32_t>(1, std::min<uint32_t>(reads_, reply.ord));
    agreed.rtr_write = reply.peer_to_peer && reply.rtr_write;
    agreed.rtr_read = reply.peer_to_peer && reply.rtr_read && !reply.rtr_write;
  }
  fabric::Event event = new_event(fabric::EventType::kEstablished);
  event.private_data_length =
      static_cast<uint32_t>(std::min<size_t>(reply.private_data.size(), event.private_data.size()));
  std::copy_n(reply.private_data.begin(), event.private_data_length, event.private_data.begin());
  device_.control().unwatch(socket_.get());
  device_.control().forget(*this);
  if (Result<void> up = establish(agreed); !up)
    return connect_failed(fabric::EventType::kConnectFailed, up.error().code, up.error().message);
  device_.control().emit(*this, std::move(event));
  device_.control().set_ticking(*this, true);
}

Result<void> QueuePair::accept(base::Fd socket, const MpaFrame& request,
                               std::span<const std::byte> private_data) {
  const std::lock_guard lock(device_.control().mutex());
  Status idle = Status::kIdle;
  if (!status_.compare_exchange_strong(idle, Status::kConnecting))
    return fail(Errc::kInvalidArgument, "the queue pair was connected before");
  socket_ = std::move(socket);
  far_ = far_end(socket_.get());
  tcp_up_ = true;
  Agreement agreed{.crc = request.crc, .initiator = false, .ord = reads_, .ird = reads_};
  MpaFrame reply{.kind = MpaKind::kReply,
                 .revision = request.revision,
                 .crc = request.crc,
                 .enhanced = request.enhanced,
                 .private_data = {private_data.begin(), private_data.end()}};
  if (request.enhanced) {
    if (request.ird != kMpaAnyDepth)
      agreed.ord = std::min<uint32_t>(reads_, request.ird);
    if (request.ord != kMpaAnyDepth)
      agreed.ird = std::min<uint32_t>(reads_, request.ord);
    reply.ird = depth(agreed.ird);
    reply.ord = depth(agreed.ord);
    // One of those that are offered, the cheapest first (RFC 6581 section 5.1).
    reply.peer_to_peer = request.peer_to_peer;
    reply.rtr_write = agreed.rtr_write = request.peer_to_peer && request.rtr_write;
    reply.rtr_read = agreed.rtr_read =
        request.peer_to_peer && !request.rtr_write && request.rtr_read;
    reply.rtr_send = agreed.rtr_send =
        request.peer_to_peer && !request.rtr_write && !request.rtr_read && request.rtr_send;
  }
  if (agreed.rtr_read)
    agreed.ird = std::max(agreed.ird, 1u);
  if (!send_all(socket_.get(), encode(reply)) || !establish(agreed)) {
    socket_.reset();
    status_.store(Status::kError, std::memory_order_release);
    reported_ = true;  // the caller knows
    return fail(Errc::kConnectionLost, "the peer went away during the handshake");
  }
  device_.control().emit(*this, new_event(fabric::EventType::kEstablished));
  return {};
}

// Gives the data path its socket. disconnect() may have been first: then the data path has ended
// already, and on_tick() tells.
Result<void> QueuePair::establish(const Agreement& agreed) {
  agreed_ = agreed;
  socket_fd_ = socket_.get();
  near_ = local_end(socket_fd_);
  max_ulpdu_ = ulpdu_of(socket_fd_);
  may_speak_ = agreed.initiator;
  readable_ = true;
  if (agreed.initiator && agreed.rtr_write)
    keep_empty_write();
  rtr_read_pending_ = agreed.initiator && agreed.rtr_read;
  if (rtr_read_pending_)
    keep_empty_read();
  send_first();
  Result<void> watched = cq_.watch(*this, socket_fd_);
  if (!watched)
    return watched;
  Status connecting = Status::kConnecting;
  if (!status_.compare_exchange_strong(connecting, Status::kEstablished))
    cq_.unwatch(socket_fd_);
  cq_.ring(*this);
  return {};
}

// The peer may not speak before our ready-to-receive message has come (RFC 6581 section 5.1), so we
// send it without waiting for our completion queue to be polled. What TCP does not take, the data
// path sends.
void QueuePair::send_first() {
  if (kept_.empty())
    return;
  const ssize_t taken = ::send(socket_fd_, kept_.data(), kept_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  kept_sent_ = static_cast<size_t>(std::max<ssize_t>(taken, 0));
  if (kept_sent_ == kept_.size())
    drop_kept();
}

// Which of a name's addresses it was.
std::string QueuePair::place() const {
  return host_.by_name && far_.length != 0 ? to_text(far_) + ": " : "";
}

void QueuePair::connect_failed(fabric::EventType type, Errc code, const std::string& reason,
                               std::span<const std::byte> private_data) {
  fabric::Event event = new_event(type);
  event.code = code;
  event.reason = place() + reason;
  event.private_data_length =
      static_cast<uint32_t>(std::min(private_data.size(), event.private_data.size()));
  std::copy_n(private_data.begin(), event.private_data_length, event.private_data.begin());
  reported_ = true;
  if (socket_)
    device_.control().unwatch(socket_.get());
  socket_.reset();
  ended_.store(true, std::memory_order_release);
  status_.store(Status::kError, std::memory_order_release);
  device_.control().set_ticking(*this, false);
  device_.control().emit(*this, std::move(event));
  cq_.ring(*this);
}

void QueuePair::on_tick(Clock::time_point now) {
  switch (status_.load(std::memory_order_acquire)) {
    case Status::kConnecting:
      if (now > deadline_)
        connect_failed(fabric::EventType::kConnectFailed, Errc::kTimeout, "no answer");
      return;
    case Status::kEstablished:
      // An initiator's first message can lie unseen in the socket of Linux's siw, until another one
      // comes.
      if (heard_.load(std::memory_order_relaxed) || ticks_ > kLastPoke || !agreed_.initiator)
        return device_.control().set_ticking(*this, false);
      ++ticks_;
      if (ticks_ >= kFirstPoke && std::has_single_bit(ticks_)) {
        poke_wanted_.store(true, std::memory_order_relaxed);
        Counters::count(device_.counts().pokes);
        cq_.ring(*this);
      }
      return;
    case Status::kError:
      if (!ended_.load(std::memory_order_acquire))
        return;  // it is being ended at this moment
      device_.control().set_ticking(*this, false);
      return report_end();
    case Status::kIdle:
      return device_.control().set_ticking(*this, false);
  }
}

void QueuePair::report_end() {
  if (std::exchange(reported_, true))
    return;
  const bool was_up = end_ != End::kNeverConnected;
  if (!was_up && !socket_)
    return;  // it was never connecting
  fabric::Event event =
      new_event(was_up ? fabric::EventType::kDisconnected : fabric::EventType::kConnectFailed);
  event.code = was_up ? Errc::kConnectionLost : Errc::kShutdown;
  event.access_refused = end_ == End::kTerminated && access_refused_;
  event.reason = place() + reason();
  part();
  device_.control().emit(*this, std::move(event));
}

std::string QueuePair::reason() const {
  switch (end_) {
    case End::kDisconnected:
      return "disconnected";
    case End::kNeverConnected:
      return "given up while connecting";
    case End::kPeerClosed:
      return "the peer closed the connection";
    case End::kPeerLost:
      return "the connection broke";
    case End::kRefused:
      return "the peer broke the iWARP protocol: " + describe(cause_);
    case End::kTerminated:
      return "the peer terminated the connection: " + describe(cause_);
    case End::kLocalError:
      return "a request named memory that it must not";
    case End::kReadsDenied:
      return "the peer allows no RDMA Reads";
    case End::kNotYet:
      break;
  }
  return "for an unknown reason";
}

// The control thread has the socket again.
void QueuePair::part() {
  const std::lock_guard lock(device_.control().mutex());
  if (!socket_)
    return;
  device_.control().unwatch(socket_.get());
  iwarp::part(device_, std::move(socket_), std::move(parting_));
}

}  // namespace rrdk::iwarp
