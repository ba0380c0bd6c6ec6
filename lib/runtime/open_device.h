// A fabric device that the runtime has opened, and the routing of its control events: connection
// requests go to the listener, everything else to the core that owns the connection.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/budget.h"
#include "fabric/device.h"
#include "rrdk/error.h"
#include "rrdk/memory.h"
#include "rrdk/xdr.h"

namespace rrdk::runtime {

class OpenDevice;

// The object that listens. Called on any poll core's thread, with the device's lock held: it picks
// a core and posts the rest there.
class Acceptor {
 public:
  virtual void on_connect_request(OpenDevice& device,
                                  std::unique_ptr<fabric::ConnectRequest> request) = 0;
  // Connection requests do not come, for example for lack of descriptors: ending another connection
  // would help.
  virtual void on_shortage() = 0;

 protected:
  ~Acceptor() = default;
};

class OpenDevice {
 public:
  OpenDevice(std::string scheme, std::unique_ptr<fabric::Device> device)
      : scheme_(std::move(scheme)), device_(std::move(device)) {}

  std::string_view scheme() const noexcept { return scheme_; }
  const fabric::Capabilities& capabilities() const { return device_->capabilities(); }
  int event_fd() const { return device_->event_fd(); }
  // Returns the region of an item in `message` that the device cannot use because the region has no
  // descriptor; kNoRegion if it can use all items. Any thread.
  RegionId out_of_reach(Memory& memory, const Message& message) const noexcept;
  RegionId out_of_reach(Memory& memory, std::span<const MemorySpan> spans) const noexcept;
  // The same as text, to follow words such as "it has".
  std::string why_out_of_reach(RegionId region) const;

  // Calls `use` with the device locked: only one thread at a time may use its control path.
  template <typename Use>
  auto with(Use&& use) {
    std::lock_guard lock(mutex_);
    return std::forward<Use>(use)(*device_);
  }

  Result<fabric::Listener*> listen(const fabric::Place& place, Acceptor& acceptor);
  // When it returns, the acceptor is not called again.
  void unlisten(fabric::Listener* listener);

  // Takes events and hands them on, until the budget is spent; returns how many. Also 0 while
  // another core does so.
  uint32_t route_events(base::Budget& budget);

 private:
  struct Listening {
    std::unique_ptr<fabric::Listener> listener;
    Acceptor* acceptor;
  };
  static constexpr uint32_t kEventsPerPass = 32;

  void route(fabric::Event event);

  const std::string scheme_;
  std::mutex mutex_;
  std::unique_ptr<fabric::Device> device_;
  std::vector<Listening> listening_;  // destroyed before the device
};

}  // namespace rrdk::runtime
