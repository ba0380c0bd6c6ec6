// How a queue pair becomes connected, and how its end is reported: the control thread's part of
// QueuePair.
#include <netinet/in.h>
#include <netinet/tcp.h>
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

constexpr int kKeepAliveProbes = 2;
// Ticks until the first poke of a peer that has sent nothing yet; the interval doubles each time.
constexpr uint32_t kFirstPoke = 2;
constexpr uint32_t kLastPoke = 256;

void set(int socket, int level, int option, int value) {
  (void)::setsockopt(socket, level, option, &value, sizeof(value));
}

// Returns false if not all bytes were taken, which does not happen on a socket that has carried
// nothing yet.
bool send_all(int socket, std::span<const std::byte> bytes) {
  const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent == static_cast<ssize_t>(bytes.size());
}

uint16_t depth(uint32_t reads) {
  return static_cast<uint16_t>(std::min<uint32_t>(reads, kMpaAnyDepth - 1));
}

// RFC 5044 section 4.2.1: an FPDU fills a TCP segment, and has no pad. If segments are as large as
// on loopback, TCP begins with half of the peer's first window and grows; then what the interface
// carries is used.
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

// TCP gives up on a host that is silent for this time; for data in flight, see silence.h.
void tune(int socket, std::chrono::seconds silence) {
  const auto every = static_cast<int>(silence.count() / (1 + kKeepAliveProbes));
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, every);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, every);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes);
}

fabric::Event QueuePair::new_event(fabric::EventType type) const {
  fabric::Event event;
  event.type = type;
  event.owner = owner_;
  return event;
}

Result<void> QueuePair::start_connect(const Place& to, std::span<const std::byte> private_data) {
  const std::lock_guard lock(device_.control().mutex());
  Status idle = Status::kIdle;
  if (!status_.compare_exchange_strong(idle, Status::kConnecting))
    return fail(Errc::kInvalidArgument, "the queue pair was connected before");
  private_data_.assign(private_data.begin(), private_data.end());
  asked_ = to.address;
  silence_ = Silence(asked_.silence);
  by_name_ = to.host.by_name;
  timeout_ = to.timeout.value_or(fabric::kConnectTimeout);
  turns_.begin(to.host.endpoints, Clock::now() + timeout_);
  Result<void> started = dial();
  if (started)
    device_.control().set_ticking(*this, true);
  else
    status_.store(Status::kIdle, std::memory_order_release);
  return started;
}

// Tries the peer's next addresses until one does not fail at once.
Result<void> QueuePair::dial() {
  while (turns_.left()) {
    auto attempt = std::make_unique<Attempt>(device_, *this, turns_.take(Clock::now()), asked_);
    Attempt& tried = *attempts_.emplace_back(std::move(attempt));
    const Result<void> started = tried.start(encode(request()));
    if (started)
      return {};
    drop(tried, started.error());
  }
  if (attempts_.empty())
    return tl::unexpected(failure_);
  return {};
}

MpaFrame QueuePair::request() const {
  const bool enhanced = asked_.mpa_revision > 1;
  return {.kind = MpaKind::kRequest,
          .revision = asked_.mpa_revision,
          .crc = asked_.crc,
          .enhanced = enhanced,
          .ird = depth(reads_),
          .ord = depth(reads_),
          .peer_to_peer = enhanced,
          .rtr_write = enhanced,
          .rtr_read = enhanced,
          .private_data = private_data_};
}

// One request at a time is enough for a peer that may have several addresses: addresses whose TCP
// is not connected give way, and come back if this one is silent.
void QueuePair::on_tcp_up(Attempt& attempt) {
  if (!connecting())
    return;
  for (auto& other : attempts_) {
    if (other.get() != &attempt && !other->tcp_up()) {
      turns_.put_back(other->far());
      other.reset();
    }
  }
  std::erase(attempts_, nullptr);
  turns_.share(Clock::now());
}

void QueuePair::drop(Attempt& attempt, const Error& why) {
  const std::string before = failure_.message.empty() ? "" : failure_.message + "; ";
  failure_ = {why.code, before + place(attempt.far()) + why.message};
  std::erase_if(attempts_, [&](const auto& a) { return a.get() == &attempt; });
}

void QueuePair::on_failed(Attempt& attempt, const Error& why) {
  if (!connecting())
    return;  // given up: on_tick() reports it
  drop(attempt, why);
  if (Result<void> going_on = dial(); !going_on)
    connect_failed(fabric::EventType::kConnectFailed, failure_);
}

// All addresses are silent.
void QueuePair::time_out() {
  while (!attempts_.empty())
    drop(*attempts_.front(), {Errc::kTimeout, drivers::no_answer_within(timeout_)});
  connect_failed(fabric::EventType::kConnectFailed, failure_);
}

void QueuePair::on_reply(Attempt& attempt, const MpaFrame& reply) {
  if (!connecting())
    return;
  if (reply.markers)
    return on_failed(attempt,
                     {Errc::kUnsupported, "the peer wants MPA markers, which we do not send"});
  far_ = attempt.far();
  if (reply.rejected)
    return connect_failed(fabric::EventType::kRejected,
                          {Errc::kRefused, place(far_) + "the peer rejected the connection"},
                          reply.private_data);
  socket_ = attempt.take_socket();
  attempts_.clear();
  take_reply(reply);
}

void QueuePair::take_reply(const MpaFrame& reply) {
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
  if (Result<void> up = establish(agreed); !up)
    return connect_failed(fabric::EventType::kConnectFailed, up.error());
  device_.control().emit(*this, std::move(event));
  device_.control().set_ticking(*this, true);
}

Result<void> QueuePair::accept(base::Fd socket, std::chrono::seconds silence,
                               const MpaFrame& request, std::span<const std::byte> private_data) {
  const std::lock_guard lock(device_.control().mutex());
  Status idle = Status::kIdle;
  if (!status_.compare_exchange_strong(idle, Status::kConnecting))
    return fail(Errc::kInvalidArgument, "the queue pair was connected before");
  socket_ = std::move(socket);
  far_ = far_end(socket_.get());
  silence_ = Silence(silence);
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
    // One of the offered kinds, the cheapest first (RFC 6581 section 5.1).
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

// Gives the data path its socket. disconnect() may have come first: then the data path has ended
// already, and on_tick() reports it.
Result<void> QueuePair::establish(const Agreement& agreed) {
  agreed_ = agreed;
  socket_fd_ = socket_.get();
  near_ = local_end(socket_fd_);
  max_ulpdu_ = ulpdu_of(socket_fd_);
  lane_.open(std::min(kMostInLane, room_in_fpdu(/*tagged=*/false) & ~3u));
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
  device_.silence_watch().add(*this, silence_.look_every());
  cq_.ring(*this);
  return {};
}

void QueuePair::look_for_silence(Clock::time_point now) {
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (status_.load(std::memory_order_acquire) != Status::kEstablished ||
      ::getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0)
    return;
  const std::chrono::milliseconds since_heard(info.tcpi_last_ack_recv);
  if (!silence_.look(uint32_t{info.tcpi_retransmits} + info.tcpi_probes, since_heard, now))
    return;
  host_gone_ = true;
  // TCP forgets the peer, and the data path finds the connection broken.
  const sockaddr nobody{.sa_family = AF_UNSPEC, .sa_data = {}};
  if (::connect(socket_.get(), &nobody, sizeof(nobody)) != 0)
    ::shutdown(socket_.get(), SHUT_RDWR);
}

// The peer may not send before our ready-to-receive message has come (RFC 6581 section 5.1), so we
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

// Returns which of a name's addresses it was.
std::string QueuePair::place(const Endpoint4Or6& far) const {
  return by_name_ && far.length != 0 ? to_text(far) + ": " : "";
}

void QueuePair::connect_failed(fabric::EventType type, const Error& why,
                               std::span<const std::byte> private_data) {
  fabric::Event event = new_event(type);
  event.ending = fabric::ending_of(why);
  event.private_data_length =
      static_cast<uint32_t>(std::min(private_data.size(), event.private_data.size()));
  std::copy_n(private_data.begin(), event.private_data_length, event.private_data.begin());
  reported_ = true;
  attempts_.clear();
  device_.silence_watch().remove(*this);
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
      if (turns_.over(now))
        return time_out();
      // Earlier attempts continue, so the failure of this one ends nothing.
      if (turns_.due(now))
        (void)dial();
      return;
    case Status::kEstablished:
      // An initiator's first message can stay unseen in the socket of Linux's siw until another
      // message comes.
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
        return;  // it is ending at this moment
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
  // The answer of an attempt moves its socket here before the connection is established.
  if (!was_up && attempts_.empty() && !socket_)
    return;  // it was never connecting
  fabric::Event event =
      new_event(was_up ? fabric::EventType::kDisconnected : fabric::EventType::kConnectFailed);
  event.ending = ending();
  part();
  device_.control().emit(*this, std::move(event));
}

Ending QueuePair::ending() const {
  const auto of = [this](EndedBy by, const std::string& text) {
    return Ending{
        .by = by, .code = Errc::kConnectionLost, .refusal = {}, .text = place(far_) + text};
  };
  switch (end_) {
    case End::kNotYet:
    case End::kDisconnected:
      break;
    case End::kNeverConnected: {
      Ending ending = of(EndedBy::kProgram, "given up while connecting");
      ending.code = Errc::kShutdown;
      return ending;
    }
    case End::kPeerClosed:
      return of(EndedBy::kPeer, "the peer closed the connection");
    case End::kPeerLost:
      return host_gone_ ? of(EndedBy::kNetwork, "the peer's host does not answer any more")
                        : of(EndedBy::kPeer, "the connection broke");
    case End::kRefused:
      return of(EndedBy::kPeer, "the peer broke the iWARP protocol: " + describe(cause_));
    case End::kTerminated: {
      Ending ending = of(EndedBy::kPeer, "the peer terminated the connection: " + describe(cause_));
      if (access_refused_)
        ending.refusal = Refusal::kAccessRefused;
      return ending;
    }
    case End::kLocalError:
      return of(EndedBy::kProgram, "a request named memory that it must not");
    case End::kReadsDenied:
      return of(EndedBy::kPeer, "the peer allows no RDMA Reads");
  }
  return of(EndedBy::kProgram, "disconnected");
}

// The control thread has the socket again.
void QueuePair::part() {
  const std::lock_guard lock(device_.control().mutex());
  attempts_.clear();
  device_.silence_watch().remove(*this);
  if (!socket_)
    return;
  iwarp::part(device_, std::move(socket_), std::move(parting_));
}

}  // namespace rrdk::iwarp
