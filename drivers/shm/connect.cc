// How a queue pair becomes connected, and how it learns that its peer has ended: the control
// thread's part of QueuePair.
#include <sys/epoll.h>

#include <cerrno>
#include <utility>

#include "base/assert.h"
#include "base/system.h"
#include "drivers/shm/queue_pair.h"

namespace rrdk::shm {

namespace {

// Regions announced at once; others are announced when they are first used.
constexpr size_t kEarlyRegions = 64;
// A process that has had no descriptor left for this long will not have one soon.
constexpr std::chrono::seconds kLackTimeout{2};

const char* to_text(CloseReason reason) {
  switch (reason) {
    case CloseReason::kOpen:
      return "open";
    case CloseReason::kDisconnected:
      return "disconnected";
    case CloseReason::kMessageTooLong:
      return "a message was longer than the Receive that it met";
    case CloseReason::kAccessRefused:
      return "an access by remote key was refused";
    case CloseReason::kProtocol:
      return "the other end broke the shm protocol";
    case CloseReason::kLocalError:
      return "a request named memory that it must not";
    case CloseReason::kTooMuchMemory:
      return "the other end's memory is more than may be mapped (shm:PATH?peer_memory=SIZE)";
    case CloseReason::kNoDescriptors:
      return "no descriptor was left for the other end's memory (RLIMIT_NOFILE)";
    case CloseReason::kNotMapped:
      return "the other end's memory could not be mapped for lack of memory, mappings "
             "(vm.max_map_count) or descriptors (RLIMIT_NOFILE)";
  }
  return "for an unknown reason";
}

}  // namespace

fabric::Event QueuePair::new_event(fabric::EventType type) const {
  fabric::Event event;
  event.type = type;
  event.owner = owner_;
  return event;
}

Result<void> QueuePair::start_connect(PeerSocket socket, uint64_t peer_memory,
                                      std::chrono::milliseconds timeout,
                                      std::span<const std::byte> private_data) {
  const std::lock_guard lock(device_.control().mutex());
  Status idle = Status::kIdle;
  if (!status_.compare_exchange_strong(idle, Status::kConnecting))
    return fail(Errc::kInvalidArgument, "the queue pair was connected before");
  socket_ = std::move(socket);
  known_regions_ = PeerRegions(peer_memory);
  timeout_ = timeout;
  deadline_ = Clock::now() + timeout_;
  if (Result<void> sent = send_handshake(MessageType::kConnect, private_data); !sent)
    return drop_socket(sent);
  if (Result<void> watched = device_.control().watch(*this, socket_.get(), EPOLLIN); !watched)
    return drop_socket(watched);
  device_.control().set_ticking(*this, true);
  return {};
}

// Without a socket, a start that failed is not reported: its caller knows.
Result<void> QueuePair::drop_socket(Result<void> failure) {
  socket_.reset();
  return failure;
}

Result<void> QueuePair::accept(PeerSocket socket, Offer offer, uint64_t peer_memory,
                               std::span<const std::byte> private_data) {
  const std::lock_guard lock(device_.control().mutex());
  Status idle = Status::kIdle;
  if (!status_.compare_exchange_strong(idle, Status::kConnecting))
    return fail(Errc::kInvalidArgument, "the queue pair was connected before");
  Result<Peer> peer = map_offer(std::move(offer));
  if (!peer)
    return tl::unexpected(peer.error());
  socket_ = std::move(socket);
  known_regions_ = PeerRegions(peer_memory);
  if (Result<void> sent = send_handshake(MessageType::kAccept, private_data); !sent)
    return drop_socket(sent);
  if (Result<void> watched = device_.control().watch(*this, socket_.get(), EPOLLIN); !watched)
    return drop_socket(watched);
  attach(std::move(*peer));
  device_.control().emit(*this, new_event(fabric::EventType::kEstablished));
  device_.control().nudge(*this);
  return {};
}

Result<void> QueuePair::send_handshake(MessageType type, std::span<const std::byte> private_data) {
  RRDK_ASSERT(own_bells_ == nullptr);
  Message message{.type = type};
  message.slots = geometry_.slots;
  message.keys = geometry_.keys;
  message.copies = geometry_.copies;
  message.reads = reads_;
  message.doorbell_bit = bit_;
  put_private_data(message, private_data);
  Result<CompletionQueue::UsersPage*> doorbells = cq_.join_page(socket_.user());
  if (!doorbells)
    return tl::unexpected(doorbells.error());
  own_bells_ = *doorbells;
  wake_up_.receiver.set_user(socket_.user());
  wake_up_.sender.set_sender(socket_.user());
  const std::array<int, kConnectDescriptors> descriptors = {
      segment_.fd.get(), own_bells_->memory.fd.get(), wake_up_.sender.get()};
  if (send_message(socket_.get(), message, descriptors) != SendResult::kSent)
    return fail(Errc::kConnectionLost, "the peer went away during the handshake");
  wake_up_.sender = {};  // only the peer has it now
  segment_.fd.reset();   // and a mapping of the segment, as we do
  return {};
}

// Before the data path does it: the peer has then mapped most regions when the first message names
// them.
void QueuePair::announce_all() {
  for (const OwnRegion& region : device_.regions()) {
    if (region.region.fd < 0 || region.shown() == 0)
      continue;
    if (local_regions_.entries().size() >= kEarlyRegions || announce(region) != SendResult::kSent)
      return;
  }
}

// Gives the data path its peer.
void QueuePair::attach(Peer peer) {
  RRDK_ASSERT(!established_once_ && !reported_);
  peer_ = std::move(peer);
  reads_allowed_ = std::min(reads_, peer_.reads);
  who_ = peer_of(socket_.get());
  announce_all();
  theirs_ = SegmentView(peer_.segment.base(), peer_.geometry);
  bell_ = {reinterpret_cast<DoorbellPage*>(peer_.doorbell_page.base()), peer_.doorbell_bit,
           peer_.wake_socket.get()};
  established_once_ = true;
  // disconnect() may have come first; then the data path has ended already and we only tell the
  // peer.
  Status connecting = Status::kConnecting;
  if (status_.compare_exchange_strong(connecting, Status::kEstablished))
    cq_.ring(bit_);
  else
    close_socket_half();
}

void QueuePair::on_ready() {
  if (!established_once_)  // also if it was given up meanwhile
    return read_answers();
  if (broken_ || held_)
    return peer_gone();
  read_regions();
}

void QueuePair::read_regions() {
  RRDK_ASSERT(established_once_ && !broken_);
  Drained drained;
  uint32_t left = kPacketsAtOnce;
  {
    const std::lock_guard lock(control_mutex_);
    drained = drain_socket(left);
  }
  // If other packets were read before, this one begins to wait now.
  if (drained == Drained::kNoPlace && (!held_ || left != kPacketsAtOnce))
    deadline_ = Clock::now() + kLackTimeout;
  hold_socket(drained == Drained::kNoPlace);
  if (drained == Drained::kEnd)
    peer_gone();
  else if (drained == Drained::kBroken || drained == Drained::kTooMuchMemory ||
           drained == Drained::kNotMapped)
    socket_broken(end_of(drained));
}

// While this process has no descriptor for what the peer sends, the epoll set reports only the
// peer's death, and each tick tries again. A message that waits for it is then handled.
void QueuePair::hold_socket(bool on) {
  if (std::exchange(held_, on) == on)
    return;
  device_.control().change(*this, socket_.get(), on ? 0u : uint32_t{EPOLLIN});
  if (on)
    device_.control().set_ticking(*this, true);
  else
    cq_.ring(bit_);
}

void QueuePair::read_answers() {
  for (uint32_t i = 0; i < kPacketsAtOnce && !reported_ && !established_once_; ++i) {
    Received r = receive_message(socket_);
    if (r.kind == Received::Kind::kNothing)
      return;
    if (r.kind == Received::Kind::kMessage)
      take_answer(r);
    else if (r.kind == Received::Kind::kOtherVersion)
      other_version_answers(r.message);
    else if (r.lacks_place_for(MessageType::kAccept))
      connect_failed(
          fabric::EventType::kConnectFailed, Errc::kSystem,
          "no descriptor is left for the server's memory: " + base::system_message(EMFILE));
    else if (r.kind == Received::Kind::kEnd)
      connect_failed(
          fabric::EventType::kConnectFailed, Errc::kConnectionLost,
          hello_ ? "the server closed the connection before it answered"
                 : "what listens there closed the connection at once: it is a server that is "
                   "overloaded or refuses this user, or not an RRDK server");
    else
      connect_failed(fabric::EventType::kConnectFailed, Errc::kNotAPeer,
                     "what listens there does not speak the shm protocol");
  }
}

void QueuePair::other_version_answers(const Message& message) {
  Counters::count(device_.counts().other_versions);
  connect_failed(fabric::EventType::kConnectFailed, Errc::kNotAPeer, other_version(message));
}

void QueuePair::take_answer(Received& r) {
  const auto refuse = [this](const Error& error) {
    Counters::count(device_.counts().handshakes_refused);
    connect_failed(fabric::EventType::kConnectFailed, error.code, error.message);
  };
  switch (r.message.type) {
    case MessageType::kHello:
      if (std::exchange(hello_, true))
        return refuse({Errc::kNotAPeer, "the server broke the handshake"});
      return;
    case MessageType::kAccept: {
      Result<Peer> peer = take_offer(r).and_then(map_offer);
      if (!peer)
        return refuse(peer.error());
      attach(std::move(*peer));
      device_.control().set_ticking(*this, false);
      fabric::Event event = new_event(fabric::EventType::kEstablished);
      event.private_data = r.message.private_data;
      event.private_data_length = r.message.private_length;
      device_.control().emit(*this, std::move(event));
      device_.control().nudge(*this);
      return;
    }
    case MessageType::kReject:
      return connect_failed(fabric::EventType::kRejected, Errc::kRefused,
                            "the server rejected the connection", &r.message);
    default:
      return refuse({Errc::kNotAPeer, "the server broke the handshake"});
  }
}

void QueuePair::connect_failed(fabric::EventType type, Errc code, std::string reason,
                               const Message* message) {
  RRDK_ASSERT(!established_once_ && !reported_);
  reported_ = true;
  device_.control().unwatch(socket_.get());
  device_.control().set_ticking(*this, false);
  close_socket_half();  // the other end may have accepted by now: it sees that this end is gone
  fabric::Event event = new_event(type);
  if (message != nullptr) {
    event.private_data = message->private_data;
    event.private_data_length = message->private_length;
  }
  event.ending = fabric::ending_of({code, std::move(reason)});
  device_.control().emit(*this, std::move(event));
  end_data_path(End::kNeverConnected);
}

// Makes the completion queue's thread end the data path.
void QueuePair::end_data_path(End why) {
  End none = End::kNotYet;
  dead_.compare_exchange_strong(none, why);
  cq_.ring(bit_);
}

// The peer sent what no honest peer sends, or we cannot take it. Its socket is not read any more;
// only its end shows that the peer is gone.
void QueuePair::socket_broken(End how) {
  RRDK_ASSERT(how > End::kPeerGone, how);
  if (std::exchange(broken_, true))
    return;
  count_end(how);
  device_.control().change(*this, socket_.get(), 0);
  end_data_path(how);
}

void QueuePair::peer_gone() {
  RRDK_ASSERT(established_once_);
  end_seen_ = true;
  device_.control().unwatch(socket_.get());
  const bool closed = theirs_.state->closed.load(std::memory_order_acquire) != 0;
  if (!closed && status_.load(std::memory_order_acquire) != Status::kError)
    Counters::count(device_.counts().peers_lost);
  end_data_path(End::kPeerGone);
  // What the peer sent before is still received: the data path ends when that is done.
  if (status_.load(std::memory_order_acquire) == Status::kError)
    report_disconnect();
}

void QueuePair::report_disconnect() {
  RRDK_ASSERT(established_once_);
  device_.control().set_ticking(*this, false);
  if (std::exchange(reported_, true))
    return;
  fabric::Event event = new_event(fabric::EventType::kDisconnected);
  event.ending = ending();
  device_.control().emit(*this, std::move(event));
  device_.control().nudge(*this);
}

Ending QueuePair::ending() const {
  End end = end_.load(std::memory_order_acquire);
  if (end == End::kNotYet)  // the data path is ending at this moment, because of what we told it
    end = end_of_peer();
  const auto of = [](EndedBy by, std::string text) {
    return Ending{.by = by, .code = Errc::kConnectionLost, .refusal = {}, .text = std::move(text)};
  };
  const char* const text = to_text(close_reason(end));
  switch (end) {
    case End::kPeerClosed: {
      const auto theirs =
          static_cast<CloseReason>(theirs_.state->closed.load(std::memory_order_acquire));
      if (theirs == CloseReason::kDisconnected)
        return of(EndedBy::kPeer, "the peer closed the connection");
      return of(EndedBy::kPeer, std::string("closed by the peer: ") + to_text(theirs));
    }
    case End::kPeerGone:
      return of(EndedBy::kPeer, "the peer died");
    case End::kMessageTooLong:
    case End::kAccessRefused:
    case End::kProtocol:
      return of(EndedBy::kPeer, std::string("closed here: ") + text);
    case End::kTooMuchMemory:
    case End::kNoDescriptors:
    case End::kNotMapped:
      return of(EndedBy::kLimit, std::string("closed here: ") + text);
    case End::kNotYet:
    case End::kDisconnected:
    case End::kNeverConnected:
    case End::kLocalError:
      break;
  }
  return of(EndedBy::kProgram, std::string("closed here: ") + text);
}

void QueuePair::on_tick(Clock::time_point now) {
  const Status status = status_.load(std::memory_order_acquire);
  const bool reads = status == Status::kEstablished && !broken_ && !end_seen_;
  // The data path may have read what was held; then the socket is read by events again.
  if (reads && (held_ || no_place_.load(std::memory_order_relaxed))) {
    read_regions();
    if (held_ && now > deadline_)
      socket_broken(End::kNoDescriptors);
  } else if (status == Status::kEstablished || status == Status::kIdle || reported_) {
    device_.control().set_ticking(*this, false);
  } else if (established_once_) {
    // An honest peer publishes the key by which it reads, and checks `closed` before it trusts what
    // it copied. So while it publishes no key, none of its accesses is in progress. We wait no
    // longer for a peer that does not stop than an honest one could take.
    if (!std::exchange(closing_, true))
      deadline_ = now + kAccessTimeout;
    const bool stuck = !end_seen_ && !peer_reads(0);
    if (stuck && now <= deadline_)
      return;
    if (stuck)
      Counters::count(device_.counts().stuck_readers);
    report_disconnect();
  } else if (!socket_) {
    device_.control().set_ticking(*this,
                                  false);  // never asked to connect: no outcome is expected
  } else if (status == Status::kError) {
    connect_failed(fabric::EventType::kConnectFailed, Errc::kShutdown, "given up here");
  } else if (now > deadline_) {
    connect_failed(
        fabric::EventType::kConnectFailed, Errc::kTimeout,
        (hello_ ? "the server did not accept within "
                : "what listens there is not an RRDK server, or is stuck: no answer within ") +
            std::to_string(timeout_.count()) + " ms");
  }
}

}  // namespace rrdk::shm
