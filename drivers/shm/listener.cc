#include "drivers/shm/listener.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <utility>

#include "drivers/common/checks.h"
#include "drivers/shm/queue_pair.h"

namespace rrdk::shm {

namespace {

// Peers that have connected and not yet said what they want; more are turned away.
constexpr size_t kMaxVisitors = 256;

// A peer that has connected: says hello to it, and collects what it sends until its request is
// complete, or it proves to be no peer.
class Visitor final : public Endpoint {
 public:
  Visitor(Device& device, Listener& listener, PeerSocket socket)
      : device_(device),
        listener_(&listener),
        socket_(std::move(socket)),
        deadline_(Clock::now() + kHelloTimeout) {}
  ~Visitor() override { device_.control().forget(*this); }

  bool start() {
    if (!device_.control().watch(*this, socket_.get(), EPOLLIN))
      return false;
    device_.control().set_ticking(*this, true);
    return send_message(socket_.get(), Message{}, {}) == SendResult::kSent;
  }

  const Listener* listener() const { return listener_; }

  void on_ready() override {
    for (uint32_t i = 0; i < kPacketsAtOnce; ++i) {
      Received r = receive_message(socket_.get());
      if (r.kind == Received::Kind::kNothing)
        return;
      if (r.kind != Received::Kind::kMessage)
        return refuse();
      if (r.message.type == MessageType::kConnect)
        return request(r);
      if (r.message.type != MessageType::kRegion || !add_region(r))
        return refuse();
    }
  }

  void on_tick(Clock::time_point now) override {
    if (now > deadline_)
      refuse();
  }

 private:
  bool add_region(Received& r) {
    Result<RegionEntry> region = take_region(r, device_.mappings(), peer_.known);
    if (!region)
      return false;
    peer_.regions.push_back(std::move(*region));
    return true;
  }

  void request(Received& r) {
    if (!take_peer(r, peer_))
      return refuse();
    device_.control().unwatch(socket_.get());
    fabric::Event event;
    event.type = fabric::EventType::kConnectRequest;
    event.listener = listener_;
    event.request =
        std::make_unique<ConnectRequest>(device_, std::move(socket_), std::move(peer_), r.message);
    device_.control().emit(*listener_, std::move(event));
    device_.control().release(*this);  // the end of *this
  }

  void refuse() {
    Counters::count(device_.counts().handshakes_refused);
    device_.control().release(*this);  // the end of *this
  }

  Device& device_;
  Listener* listener_;
  PeerSocket socket_;
  Peer peer_;
  Clock::time_point deadline_;
};

}  // namespace

Result<std::unique_ptr<Listener>> Listener::create(Device& device, const std::string& uri) {
  Result<std::string> path = parse_path(uri);
  if (!path)
    return tl::unexpected(path.error());
  Result<ListeningSocket> socket = ListeningSocket::open(*path);
  if (!socket)
    return tl::unexpected(socket.error());
  std::unique_ptr<Listener> listener(new Listener(device, "shm:" + *path, std::move(*socket)));
  if (Result<void> watched = device.control().watch(*listener, listener->socket_.fd(), EPOLLIN);
      !watched)
    return tl::unexpected(watched.error());
  return listener;
}

Listener::~Listener() {
  const std::lock_guard lock(device_.control().mutex());
  device_.control().release_if([this](const Endpoint& e) {
    const auto* visitor = dynamic_cast<const Visitor*>(&e);
    return visitor != nullptr && visitor->listener() == this;
  });
  device_.control().forget(*this);
}

void Listener::on_ready() {
  // A few at a time: the epoll set reports the rest again.
  constexpr int kAcceptsAtOnce = 16;
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    PeerSocket socket(Fd(::accept4(socket_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
    if (!socket)
      return;
    if (device_.control().num_adopted() >= kMaxVisitors) {
      Counters::count(device_.counts().visitors_dropped);
      continue;
    }
    auto visitor = std::make_unique<Visitor>(device_, *this, std::move(socket));
    if (visitor->start())
      device_.control().adopt(std::move(visitor));
  }
}

ConnectRequest::ConnectRequest(Device& device, PeerSocket socket, Peer peer, const Message& message)
    : device_(device), socket_(std::move(socket)), peer_(std::move(peer)), message_(message) {}

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
  return static_cast<QueuePair&>(qp).accept(std::move(socket_), std::move(peer_), private_data);
}

void ConnectRequest::reject(std::span<const std::byte> private_data) {
  if (!socket_)
    return;
  Message message{.type = MessageType::kReject};
  put_private_data(
      message, private_data.first(std::min<size_t>(private_data.size(), fabric::kMaxPrivateData)));
  (void)send_message(socket_.get(), message, {});
  socket_.reset();
}

}  // namespace rrdk::shm
