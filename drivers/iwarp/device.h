// The iwarp device: its memory, its listeners and its connections' control path.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "drivers/common/device.h"
#include "drivers/iwarp/counters.h"
#include "fabric/device.h"

namespace rrdk::iwarp {

class Device final : public drivers::SoftwareDevice {
 public:
  static Result<std::unique_ptr<fabric::Device>> open(Memory& memory, std::string_view uri);
  ~Device() override;

  Result<std::unique_ptr<fabric::CompletionQueue>> create_completion_queue(
      uint32_t entries) override;
  Result<std::unique_ptr<fabric::QueuePair>> create_queue_pair(
      const fabric::QueuePairOptions& options) override;
  Result<std::unique_ptr<fabric::Listener>> listen(const std::string& uri) override;
  Result<void> connect(fabric::QueuePair& qp, const std::string& uri,
                       std::span<const std::byte> private_data) override;
  std::vector<fabric::Counter> counters() const override;

  // --- for what is made here ---
  const Memory& memory() const { return memory_; }
  Counters& counts() { return counts_; }
  // Peers that have connected and not yet sent their whole request, and sockets that wait for their
  // peer's close; who came first in front. Under the control loop's lock.
  std::list<drivers::Endpoint*>& visitors() { return visitors_; }
  std::list<drivers::Endpoint*>& partings() { return partings_; }

 private:
  explicit Device(Memory& memory);

  Memory& memory_;
  Counters counts_;
  std::list<drivers::Endpoint*> visitors_;
  std::list<drivers::Endpoint*> partings_;
};

}  // namespace rrdk::iwarp
