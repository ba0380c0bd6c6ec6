// What the drivers' devices have in common: checks of their arguments, and base classes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "drivers/common/control_loop.h"
#include "fabric/device.h"
#include "rrdk/error.h"

namespace rrdk::drivers {

// Errors of all functions here: kInvalidArgument.
Result<void> check(const fabric::QueuePairOptions& options, const fabric::Capabilities& most);
Result<void> check_shared_receives(uint32_t entries, uint32_t most);
Result<void> check_private_data(std::span<const std::byte> data);

// The error of a completion queue that has `most` queue pairs: kLimit.
Error too_many_queue_pairs(size_t most);

// A device whose control path is a ControlLoop. A derived class must call control().clear() first
// in its destructor, since what is left in the loop refers to members that are destroyed before the
// loop.
class ControlledDevice : public fabric::Device {
 public:
  using Device::poll_events;
  std::vector<fabric::Event> poll_events(uint32_t most, base::Budget& budget) final {
    return control_.poll_events(most, budget);
  }
  int event_fd() const final { return control_.event_fd(); }

  // For objects that the device makes.
  ControlLoop& control() { return control_; }

 private:
  ControlLoop control_;
};

// A device in software: its capabilities are constant, and shared Receives are a queue in memory.
class SoftwareDevice : public ControlledDevice {
 public:
  const fabric::Capabilities& capabilities() const final { return capabilities_; }
  Result<std::unique_ptr<fabric::SharedReceiveQueue>> create_shared_receive_queue(
      uint32_t entries) final;

 protected:
  // `capabilities` must be constants.
  explicit SoftwareDevice(const fabric::Capabilities& capabilities) : capabilities_(capabilities) {}

 private:
  const fabric::Capabilities& capabilities_;
};

}  // namespace rrdk::drivers
