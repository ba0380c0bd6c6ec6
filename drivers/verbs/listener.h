// Listening, and peers that ask for a connection.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "drivers/common/control_loop.h"
#include "drivers/verbs/address.h"
#include "drivers/verbs/cm.h"
#include "fabric/device.h"

namespace rrdk::verbs {

class Device;

class Listener final : public fabric::Listener, public drivers::Endpoint, public CmHandler {
 public:
  static Result<std::unique_ptr<Listener>> create(Device& device, const Address& address);
  ~Listener() override;

  std::string uri() const override { return uri_; }
  void on_cm_event(const CmEvent& event) override;
  void on_ready() override {}
  void on_tick(drivers::Clock::time_point) override {}

 private:
  explicit Listener(Device& device) : device_(device) {}
  Result<void> open(const Address& address);
  Result<Id> listen_at(drivers::Endpoint4Or6 at);

  Device& device_;
  std::string uri_;
  std::vector<Id> ids_;  // at each of a name's addresses, with one port
};

class ConnectRequest final : public fabric::ConnectRequest, public CmHandler {
 public:
  ConnectRequest(Device& device, Id id, const CmEvent& asked);
  ~ConnectRequest() override;

  std::span<const std::byte> private_data() const override { return asked_.data(); }
  Peer peer() const override;
  fabric::Identity identity() const override { return drivers::identity_of(far_); }
  fabric::Identity group() const override { return drivers::group_of(far_); }
  fabric::Identity origin(uint32_t ipv4_prefix) const override {
    return drivers::origin_of(near_, far_, ipv4_prefix);
  }
  bool has_hung_up() const override;
  Result<std::unique_ptr<fabric::QueuePair>> create_queue_pair(
      const fabric::QueuePairOptions& options) override;
  Result<void> accept(fabric::QueuePair& qp, std::span<const std::byte> private_data) override;
  void reject(std::span<const std::byte> private_data) override;

  void on_cm_event(const CmEvent& event) override;

 private:
  Device& device_;
  const CmEvent asked_;
  const drivers::Endpoint4Or6 near_;
  const drivers::Endpoint4Or6 far_;
  Id id_;  // null: answered
  bool gone_ = false;
};

}  // namespace rrdk::verbs
