// The listening end before there is a queue pair: the listener, peers that have connected but not
// asked for anything yet, and their requests.
#pragma once

#include <list>
#include <memory>
#include <string>

#include "drivers/common/control_loop.h"
#include "drivers/common/endpoint.h"
#include "drivers/shm/device.h"
#include "drivers/shm/handshake.h"
#include "drivers/shm/socket.h"

namespace rrdk::shm {

class Listener final : public fabric::Listener, public Endpoint {
 public:
  static Result<std::unique_ptr<Listener>> create(Device& device, const Address& address);
  ~Listener() override;

  std::string uri() const override { return uri_; }
  void on_ready() override;
  void on_tick(Clock::time_point now) override { acceptor_.on_tick(now); }
  uint64_t peer_memory() const { return peer_memory_; }
  std::chrono::milliseconds handshake_timeout() const { return handshake_timeout_; }
  // Closes another visitor for one whose request needs descriptors, or reports that there are no
  // others.
  void make_room_for(Visitor& waiting);

 private:
  Listener(Device& device, const Address& address, ListeningSocket socket);
  void take(PeerSocket socket);
  void drop_visitor(const std::list<Visitor*>& from);
  bool make_room();

  Device& device_;
  const std::string uri_;
  const uint64_t peer_memory_;
  const std::chrono::milliseconds handshake_timeout_;
  ListeningSocket socket_;
  drivers::Acceptor acceptor_;
};

class ConnectRequest final : public fabric::ConnectRequest {
 public:
  ConnectRequest(Device& device, PeerSocket socket, Offer offer, uint64_t peer_memory,
                 const Message& message);

  std::span<const std::byte> private_data() const override {
    return std::span(message_.private_data).first(message_.private_length);
  }
  rrdk::Peer peer() const override { return peer_of(socket_.get()); }
  fabric::Identity identity() const override { return peer_identity(socket_.get()); }
  // A user can make its processes as short-lived as it likes.
  fabric::Identity origin(uint32_t /*ipv4_prefix*/) const override {
    return user_identity(socket_.get());
  }
  fabric::HasEnded has_ended() const override { return process_has_ended; }
  bool has_hung_up() const override { return drivers::has_hung_up(socket_.get()); }
  Result<std::unique_ptr<fabric::QueuePair>> create_queue_pair(
      const fabric::QueuePairOptions& options) override;
  Result<void> accept(fabric::QueuePair& qp, std::span<const std::byte> private_data) override;
  void reject(std::span<const std::byte> private_data) override;

 private:
  Device& device_;
  PeerSocket socket_;
  Offer offer_;
  const uint64_t peer_memory_;
  const Message message_;
};

}  // namespace rrdk::shm
