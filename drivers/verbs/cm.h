// Connection management: librdmacm's ids, and the channel through which their events come.
#pragma once

#include <rdma/rdma_cma.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "drivers/common/control_loop.h"
#include "drivers/common/endpoint.h"

namespace rrdk::verbs {

// The contents of an event. The event itself has been acknowledged, since rdma_destroy_id() waits
// for that.
struct CmEvent {
  rdma_cm_event_type type;
  int status;
  rdma_cm_id* id;  // kConnectRequest: the new one, which the receiver of the event must own
  uint8_t responder_resources;  // RDMA Reads of the peer that it wants to use
  uint8_t initiator_depth;      // RDMA Reads of ours that the peer serves
  uint8_t private_data_length;
  std::array<std::byte, fabric::kMaxPrivateData> private_data;

  std::span<const std::byte> data() const {
    return std::span(private_data).first(private_data_length);
  }
};

// The owner of an id.
class CmHandler {
 public:
  virtual void on_cm_event(const CmEvent& event) = 0;

 protected:
  ~CmHandler() = default;
};

struct DestroyId {
  void operator()(rdma_cm_id* id) const { rdma_destroy_id(id); }
};
using Id = std::unique_ptr<rdma_cm_id, DestroyId>;

class CmChannel final : public drivers::Endpoint {
 public:
  ~CmChannel() override;
  // Errors: kUnsupported (the machine has no RDMA), kPermission, kSystem.
  Result<void> open(drivers::ControlLoop& control);
  // Errors: kSystem.
  Result<Id> create_id(CmHandler& handler);

  void on_ready() override;
  void on_tick(drivers::Clock::time_point) override {}

 private:
  drivers::ControlLoop* control_ = nullptr;
  rdma_event_channel* channel_ = nullptr;
};

drivers::Endpoint4Or6 local_end(rdma_cm_id& id);
drivers::Endpoint4Or6 far_end(rdma_cm_id& id);

}  // namespace rrdk::verbs
