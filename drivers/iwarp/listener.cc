#include "drivers/iwarp/listener.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/system.h"
#include "drivers/iwarp/congestion.h"
#include "drivers/iwarp/device.h"
#include "drivers/iwarp/parting.h"
#include "drivers/iwarp/queue_pair.h"

namespace rrdk::iwarp {

using drivers::Clock;

namespace {

// A process that has not sent a whole request within this time is not a peer.
constexpr std::chrono::seconds kRequestTimeout{10};
// Peers of all listeners that have not yet sent their request.
constexpr size_t kMaxVisitors = 1024;
constexpr int kBacklog = 1024;
constexpr uint32_t kWholeAddress = 32;

// A peer that has connected: collects its request.
class Visitor final : public drivers::Endpoint {
 public:
  Visitor(Device& device, Listener& listener, base::Fd socket, const Endpoint4Or6& far)
      : device_(device),
        listener_(&listener),
        socket_(std::move(socket)),
        far_(far),
        host_(drivers::origin_of(local_end(socket_.get()), far, kWholeAddress)),
        deadline_(Clock::now() + listener.handshake_timeout()),
        place_(device.visitors().insert(device.visitors().end(), this)) {}
  ~Visitor() override {
    device_.visitors().erase(place_);
    device_.control().forget(*this);
  }

  bool start() {
    if (!device_.control().watch(*this, socket_.get(), EPOLLIN))
      return false;
    device_.control().set_ticking(*this, true);
    return true;
  }

  const Listener* listener() const { return listener_; }
  // One identity for all addresses that its host may have: all those of this host, and those of an
  // IPv6 /64.
  const std::array<uint64_t, 3>& host() const { return host_.words; }

  void on_ready() override {
    uint32_t rest = 0;
    for (;;) {
      const bool has_header = bytes_.size() >= kMpaHeader;
      if (has_header && check_header(std::span(bytes_).first<kMpaHeader>(), MpaKind::kRequest,
                                     rest) != MpaVerdict::kOk)
        return leave(device_.counts().handshakes_refused);
      const size_t wanted = kMpaHeader + rest;
      if (has_header && bytes_.size() == wanted)
        return request();
      // Not a byte more: an initiator of revision 1 can send its first FPDU with it.
      std::array<std::byte, kMpaHeader + kMpaMaxPrivate> more;
      const ssize_t got = ::recv(socket_.get(), more.data(), wanted - bytes_.size(), MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
      if (got <= 0)
        return leave(device_.counts().handshakes_cut);
      bytes_.insert(bytes_.end(), more.begin(), more.begin() + got);
    }
  }

  void on_tick(Clock::time_point now) override {
    if (now > deadline_)
      leave(device_.counts().handshakes_late);
  }

 private:
  void request() {
    MpaFrame frame;
    (void)decode(bytes_, MpaKind::kRequest, frame);
    device_.control().unwatch(socket_.get());
    auto request = std::make_unique<ConnectRequest>(device_, std::move(socket_), far_,
                                                    listener_->silence(), std::move(frame));
    if (request->wants_markers()) {
      request->reject({});  // RFC 5044 section 7.1.1: we neither send markers nor expect them
      return leave(device_.counts().markers_refused);
    }
    fabric::Event event;
    event.type = fabric::EventType::kConnectRequest;
    event.listener = listener_;
    event.request = std::move(request);
    device_.control().emit(*listener_, std::move(event));
    device_.control().release(*this);  // destroys *this
  }

  void leave(Counters::Count& reason) {
    Counters::count(reason);
    device_.control().release(*this);  // destroys *this
  }

  Device& device_;
  Listener* listener_;
  base::Fd socket_;
  const Endpoint4Or6 far_;
  const fabric::Identity host_;
  std::vector<std::byte> bytes_;
  Clock::time_point deadline_;
  std::list<drivers::Endpoint*>::iterator place_;
};

tl::unexpected<Error> listen_error(int error) {
  switch (error) {
    case EADDRINUSE:
      return fail(Errc::kAddressInUse, "another server listens there");
    case EADDRNOTAVAIL:
    case EAFNOSUPPORT:
      return fail(Errc::kNotFound, "this host does not have the address");
    case EACCES:
      return fail(Errc::kPermission, "ports below 1024 are for root");
    default:
      return fail(Errc::kSystem, std::strerror(error));
  }
}

// `alone`: no other socket listens at the port, so that [::] may take IPv4 connections, too.
Result<base::Fd> listening_socket(const Endpoint4Or6& at, bool alone,
                                  const std::string& congestion) {
  base::Fd socket(::socket(at.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket)
    return listen_error(errno);
  const int on = 1;
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (!alone && at.storage.ss_family == AF_INET6)
    (void)::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  if (!congestion.empty()) {
    if (Result<void> set = set_congestion(socket.get(), congestion); !set)
      return tl::unexpected(set.error());
  }
  if (::bind(socket.get(), at.get(), at.length) == 0 && ::listen(socket.get(), kBacklog) == 0)
    return socket;
  return listen_error(errno);
}

uint16_t port_of(int socket) {
  return drivers::address_of(local_end(socket)).port;
}

// At every address that belongs to this host; a name may also have addresses of other hosts.
Result<std::vector<base::Fd>> listening_sockets(const Place& place) {
  const drivers::Host& host = place.host;
  std::vector<base::Fd> sockets;
  Error none;
  for (Endpoint4Or6 at : host.endpoints) {
    if (!sockets.empty())
      base::set_port(at, port_of(sockets.front().get()));
    Result<base::Fd> socket =
        listening_socket(at, host.endpoints.size() == 1, place.address.congestion);
    if (socket) {
      sockets.push_back(std::move(*socket));
      continue;
    }
    if (host.endpoints.size() == 1)
      return tl::unexpected(socket.error());
    none = {socket.error().code, to_text(at) + ": " + socket.error().message};
    if (none.code != Errc::kNotFound)
      return tl::unexpected(none);
    base::log_info("iwarp: nothing listens at %s", none.message.c_str());
  }
  if (sockets.empty())
    return tl::unexpected(none);
  return sockets;
}

// The port that the system chose for the first address may be in use at another one.
Result<std::vector<base::Fd>> listen_at(const Place& place) {
  constexpr int kTries = 16;
  for (int tries = 1;; ++tries) {
    Result<std::vector<base::Fd>> sockets = listening_sockets(place);
    if (sockets || place.address.port != 0 || sockets.error().code != Errc::kAddressInUse ||
        tries == kTries)
      return sockets;
  }
}

// If there are several addresses the name stands for them.
std::string uri_of(const Place& place, const std::vector<base::Fd>& sockets) {
  const int first = sockets.front().get();
  return "iwarp://" + (sockets.size() == 1
                           ? to_text(local_end(first))
                           : place.address.host + ":" + std::to_string(port_of(first)));
}

}  // namespace

Listener::Ear::Ear(Listener& listener, base::Fd socket)
    : listener_(listener),
      socket_(std::move(socket)),
      acceptor_(listener.device_.control(), *this, listener, socket_.get()) {}

Listener::Ear::~Ear() {
  listener_.device_.control().forget(*this);
}

Result<void> Listener::Ear::start() {
  return listener_.device_.control().watch(*this, socket_.get(), EPOLLIN);
}

void Listener::Ear::on_ready() {
  acceptor_.accept([this](base::Fd socket) { listener_.take(std::move(socket)); },
                   [this] { return listener_.make_room(); });
}

Result<std::unique_ptr<Listener>> Listener::create(Device& device, const Place& place) {
  Result<std::vector<base::Fd>> sockets = listen_at(place);
  if (!sockets)
    return tl::unexpected(sockets.error());
  const std::lock_guard lock(device.control().mutex());
  std::unique_ptr<Listener> listener(new Listener(device, uri_of(place, *sockets), place));
  for (base::Fd& socket : *sockets) {
    listener->ears_.push_back(std::make_unique<Ear>(*listener, std::move(socket)));
    if (Result<void> watched = listener->ears_.back()->start(); !watched)
      return tl::unexpected(watched.error());
  }
  return listener;
}

Listener::Listener(Device& device, std::string uri, const Place& place)
    : device_(device),
      uri_(std::move(uri)),
      handshake_timeout_(place.timeout.value_or(kRequestTimeout)),
      silence_(place.address.silence),
      congestion_asked_(!place.address.congestion.empty()) {}

Listener::~Listener() {
  const std::lock_guard lock(device_.control().mutex());
  ears_.clear();
  device_.control().release_if([this](const drivers::Endpoint& e) {
    const auto* visitor = dynamic_cast<const Visitor*>(&e);
    return visitor != nullptr && visitor->listener() == this;
  });
  device_.control().forget(*this);
}

void Listener::take(base::Fd socket) {
  // Read now: a socket that was reset no longer knows its peer, and a peer without an identity is
  // not served.
  const Endpoint4Or6 far = far_end(socket.get());
  if (far.length == 0)
    return Counters::count(device_.counts().handshakes_cut);
  if (device_.visitors().size() >= kMaxVisitors)
    drop_visitor();
  tune(socket.get(), silence_);
  if (!congestion_asked_)
    set_congestion_of_host(socket.get(), local_end(socket.get()), far);
  auto visitor = std::make_unique<Visitor>(device_, *this, std::move(socket), far);
  if (!visitor->start())
    return Counters::count(device_.counts().accept_failures);
  Visitor& arrived = *visitor;
  device_.control().adopt(std::move(visitor));
  arrived.on_ready();  // an honest peer has usually sent its request, and is no longer a visitor
}

// Drops the visitor that has had the most time, from the host that has most visitors, whatever
// addresses it comes from: a host's flood costs that host's visitors their places.
void Listener::drop_visitor() {
  const auto host = [](const drivers::Endpoint* visitor) {
    return static_cast<const Visitor*>(visitor)->host();
  };
  Counters::count(device_.counts().visitors_dropped);
  device_.control().release(*drivers::oldest_of_most(device_.visitors(), host));
}

// The system has no resources for another connection.
bool Listener::make_room() {
  Counters::count(device_.counts().accept_failures);
  if (cut_parting(device_))
    return true;
  if (device_.visitors().empty())
    return false;
  drop_visitor();
  return true;
}

ConnectRequest::ConnectRequest(Device& device, base::Fd socket, const Endpoint4Or6& far,
                               std::chrono::seconds silence, MpaFrame frame)
    : device_(device),
      socket_(std::move(socket)),
      near_(local_end(socket_.get())),
      far_(far),
      silence_(silence),
      frame_(std::move(frame)) {}

Peer ConnectRequest::peer() const {
  return drivers::peer_between(kScheme, near_, far_);
}

Result<std::unique_ptr<fabric::QueuePair>> ConnectRequest::create_queue_pair(
    const fabric::QueuePairOptions& options) {
  return device_.create_queue_pair(options);
}

Result<void> ConnectRequest::accept(fabric::QueuePair& qp,
                                    std::span<const std::byte> private_data) {
  if (!socket_)
    return fail(Errc::kInvalidArgument, "the request was answered already");
  if (auto checked = drivers::check_private_data(private_data); !checked)
    return checked;
  return static_cast<QueuePair&>(qp).accept(std::move(socket_), silence_, frame_, private_data);
}

void ConnectRequest::reject(std::span<const std::byte> private_data) {
  if (!socket_)
    return;
  MpaFrame reply{.kind = MpaKind::kReply,
                 .revision = frame_.revision,
                 .crc = frame_.crc,
                 .rejected = true,
                 .enhanced = frame_.enhanced};
  reply.private_data.assign(
      private_data.begin(),
      private_data.begin() +
          static_cast<long>(std::min<size_t>(private_data.size(), fabric::kMaxPrivateData)));
  const std::lock_guard lock(device_.control().mutex());
  part(device_, std::move(socket_), encode(reply));
}

}  // namespace rrdk::iwarp
