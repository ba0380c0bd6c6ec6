// A device whose control path is a ControlLoop.
#pragma once

#include <vector>

#include "drivers/common/control_loop.h"
#include "fabric/device.h"

namespace rrdk::drivers {

// Who derives from it calls control().clear() first in its destructor: what is left in the loop
// refers to members that end before the loop does.
class ControlledDevice : public fabric::Device {
 public:
  std::vector<fabric::Event> poll_events(uint32_t most) final { return control_.poll_events(most); }
  int event_fd() const final { return control_.event_fd(); }

  // For what is made by the device.
  ControlLoop& control() { return control_; }

 private:
  ControlLoop control_;
};

}  // namespace rrdk::drivers
