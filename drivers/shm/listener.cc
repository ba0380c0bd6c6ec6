#include "drivers/shm/listener.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <utility>

#include "drivers/shm/queue_pair.h"

namespace rrdk::shm {

namespace {

// Peers of all listeners that have not yet sent their request. One more takes the place of another:
// an honest peer sends its request at once.
constexpr size_t kMaxVisitors = 256;

}  // namespace

// A peer that has connected: sends it a Hello, and waits for its request.
class Visitor final : public Endpoint {
 public:
  Visitor(Device& device, Listener& listener, PeerSocket socket)
      : device_(device),
        listener_(&listener),
        socket_(std::move(socket)),
        deadline_(Clock::now() + listener.handshake_timeout()),
        place_(device.visitors().insert(device.visitors().end(), this)) {}
  ~Visitor() override {
    device_.visitors().erase(place_);
    device_.control().forget(*this);
    // The socket may be closed late, and its end stays in the set until then.
    device_.control().unwatch(socket_.get());
  }

  bool start() {
    if (!device_.control().watch(*this, socket_.get(), EPOLLIN))
      return false;
    device_.control().set_ticking(*this, true);
    return send_message(socket_.get(), Message{}, {}) == SendResult::kSent;
  }

  const Listener* listener() const { return listener_; }
  uid_t user() const { return socket_.user(); }

  void on_ready() override {
    if (state_ == State::kReads)
      look();
    else if (state_ == State::kLacks)  // its end
      leave();
  }

  void on_tick(Clock::time_point now) override {
    if (state_ == State::kHeld) {
      if (janitor_backlog(user()) == Backlog::kFine)
        go_on();
    } else if (now > deadline_) {
      if (state_ == State::kReads)
        return leave(device_.counts().handshakes_refused);
      leave();
    } else if (state_ == State::kLacks) {
      look();
    }
  }

 private:
  enum class State : uint8_t {
    kReads,
    kHeld,   // until fewer descriptors of its user wait to be closed
    kLacks,  // this process has no space for the descriptors of its request; counted
  };

  void look() {
    // A packet can bring hundreds of descriptors: it stays in the socket while its user has many.
    if (janitor_backlog(user()) != Backlog::kFine)
      return hold();
    Received r = receive_message(socket_);
    if (r.kind == Received::Kind::kNothing)
      return;
    if (r.kind == Received::Kind::kMessage && r.message.type == MessageType::kConnect)
      return request(r);
    if (r.lacks_place_for(MessageType::kConnect))
      return lack(r);
    leave(r.kind == Received::Kind::kOtherVersion ? device_.counts().other_versions
                                                  : device_.counts().handshakes_refused);
  }

  // The request stays in the socket, and each tick tries again. Others make space for it, if its
  // descriptors have indeed filled the process's table: a security module can refuse some, too.
  void lack(const Received& /*in the table meanwhile*/) {
    if (state_ != State::kLacks) {
      state_ = State::kLacks;
      Counters::count(device_.counts().accept_failures);
      device_.control().change(*this, socket_.get(), EPOLLONESHOT);
      // It has sent its request: visitors that send nothing are dropped first.
      device_.visitors().splice(device_.visitors().end(), device_.visitors(), place_);
    }
    const base::Fd one_more(::fcntl(socket_.get(), F_DUPFD_CLOEXEC, 0));
    if (!one_more)
      listener_->make_room_for(*this);
  }

  void request(Received& r) {
    Result<Offer> offer = take_offer(r);
    if (!offer)
      return leave(device_.counts().handshakes_refused);
    device_.control().unwatch(socket_.get());
    fabric::Event event;
    event.type = fabric::EventType::kConnectRequest;
    event.listener = listener_;
    event.request = std::make_unique<ConnectRequest>(device_, std::move(socket_), std::move(*offer),
                                                     listener_->peer_memory(), r.message);
    device_.control().emit(*listener_, std::move(event));
    device_.control().release(*this);  // destroys *this
  }

  // Its deadline is suspended meanwhile. The epoll set reports the end of the socket whatever the
  // interest is, and with EPOLLONESHOT only once.
  void hold() {
    state_ = State::kHeld;
    device_.control().change(*this, socket_.get(), EPOLLONESHOT);
  }
  void go_on() {
    state_ = State::kReads;
    deadline_ = Clock::now() + listener_->handshake_timeout();
    device_.control().change(*this, socket_.get(), EPOLLIN);
  }

  void leave(Counters::Count& reason) {
    Counters::count(reason);
    leave();
  }
  void leave() { device_.control().release(*this); }  // destroys *this

  Device& device_;
  Listener* listener_;
  PeerSocket socket_;
  Clock::time_point deadline_;
  std::list<Visitor*>::iterator place_;
  State state_ = State::kReads;
};

Listener::Listener(Device& device, const Address& address, ListeningSocket socket)
    : device_(device),
      uri_("shm:" + address.path),
      peer_memory_(address.peer_memory == 0 ? kMemoryOfClient : address.peer_memory),
      handshake_timeout_(address.timeout.value_or(kHelloTimeout)),
      socket_(std::move(socket)),
      acceptor_(device.control(), *this, *this, socket_.fd()) {}

Result<std::unique_ptr<Listener>> Listener::create(Device& device, const Address& address) {
  Result<ListeningSocket> socket = ListeningSocket::open(address.path);
  if (!socket)
    return tl::unexpected(socket.error());
  std::unique_ptr<Listener> listener(new Listener(device, address, std::move(*socket)));
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
  device_.control().unwatch(socket_.fd());
}

void Listener::on_ready() {
  if (janitor_is_full())
    return acceptor_.pause();
  acceptor_.accept([this](base::Fd socket) { take(PeerSocket(std::move(socket))); },
                   [this] { return make_room(); });
}

void Listener::take(PeerSocket socket) {
  if (janitor_backlog(socket.user()) == Backlog::kStuck)
    return Counters::count(device_.counts().visitors_refused);
  if (device_.visitors().size() >= kMaxVisitors)
    drop_visitor(device_.visitors());
  auto visitor = std::make_unique<Visitor>(device_, *this, std::move(socket));
  if (!visitor->start())
    return;
  Visitor& arrived = *visitor;
  device_.control().adopt(std::move(visitor));
  arrived.on_ready();  // an honest peer has sent its request, and is no longer a visitor
}

// Drops the oldest visitor of the user that has most: a user's flood costs that user's visitors
// their places.
void Listener::drop_visitor(const std::list<Visitor*>& from) {
  Counters::count(device_.counts().visitors_dropped);
  device_.control().release(*drivers::oldest_of_most(from, &Visitor::user));
}

// No connection is accepted meanwhile, which would take what others leave.
void Listener::make_room_for(Visitor& waiting) {
  std::list<Visitor*> others = device_.visitors();
  others.remove(&waiting);
  if (others.empty())
    return acceptor_.lack(EMFILE);
  acceptor_.pause();
  drop_visitor(others);
}

// The system has no resources for another connection.
bool Listener::make_room() {
  Counters::count(device_.counts().accept_failures);
  if (device_.visitors().empty())
    return false;
  drop_visitor(device_.visitors());
  return true;
}

ConnectRequest::ConnectRequest(Device& device, PeerSocket socket, Offer offer, uint64_t peer_memory,
                               const Message& message)
    : device_(device),
      socket_(std::move(socket)),
      offer_(std::move(offer)),
      peer_memory_(peer_memory),
      message_(message) {}

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
  return static_cast<QueuePair&>(qp).accept(std::move(socket_), std::move(offer_), peer_memory_,
                                            private_data);
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
