// Listening, and peers that have connected but not yet been accepted.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/system.h"
#include "drivers/common/control_loop.h"
#include "drivers/iwarp/address.h"
#include "drivers/iwarp/mpa.h"
#include "fabric/device.h"

namespace rrdk::iwarp {

class Device;

// One port at all the addresses of a name.
class Listener final : public fabric::Listener, public drivers::Endpoint {
 public:
  static Result<std::unique_ptr<Listener>> create(Device& device, const Place& place);
  ~Listener() override;

  std::string uri() const override { return uri_; }
  std::chrono::milliseconds handshake_timeout() const { return handshake_timeout_; }
  std::chrono::seconds silence() const { return silence_; }
  void on_ready() override {}
  void on_tick(drivers::Clock::time_point) override {}

 private:
  // A socket that listens.
  class Ear final : public drivers::Endpoint {
   public:
    Ear(Listener& listener, base::Fd socket);
    ~Ear() override;
    Result<void> start();
    void on_ready() override;
    void on_tick(drivers::Clock::time_point now) override { acceptor_.on_tick(now); }

   private:
    Listener& listener_;
    const base::Fd socket_;
    drivers::Acceptor acceptor_;
  };

  Listener(Device& device, std::string uri, const Place& place);
  void take(base::Fd socket);
  void drop_visitor();
  bool make_room();

  Device& device_;
  const std::string uri_;
  const std::chrono::milliseconds handshake_timeout_;
  const std::chrono::seconds silence_;
  const bool congestion_asked_;  // each connection inherits the setting of its listening socket
  std::vector<std::unique_ptr<Ear>> ears_;
};

class ConnectRequest final : public fabric::ConnectRequest {
 public:
  ConnectRequest(Device& device, base::Fd socket, const Endpoint4Or6& far,
                 std::chrono::seconds silence, MpaFrame frame);

  std::span<const std::byte> private_data() const override { return frame_.private_data; }
  Peer peer() const override;
  fabric::Identity identity() const override { return identity_of(far_); }
  fabric::Identity group() const override { return group_of(far_); }
  fabric::Identity origin(uint32_t ipv4_prefix) const override {
    return drivers::origin_of(near_, far_, ipv4_prefix);
  }
  bool has_hung_up() const override { return drivers::has_hung_up(socket_.get()); }
  Result<std::unique_ptr<fabric::QueuePair>> create_queue_pair(
      const fabric::QueuePairOptions& options) override;
  Result<void> accept(fabric::QueuePair& qp, std::span<const std::byte> private_data) override;
  void reject(std::span<const std::byte> private_data) override;

  bool wants_markers() const { return frame_.markers; }

 private:
  Device& device_;
  base::Fd socket_;
  const Endpoint4Or6 near_;
  const Endpoint4Or6 far_;
  const std::chrono::seconds silence_;
  MpaFrame frame_;
};

}  // namespace rrdk::iwarp
