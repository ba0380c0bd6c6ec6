// The verbs device: one RDMA device of the host, its memory, its listeners and its connections'
// control path.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "drivers/common/device.h"
#include "drivers/verbs/address.h"
#include "drivers/verbs/cm.h"
#include "drivers/verbs/counters.h"
#include "drivers/verbs/regions.h"
#include "fabric/device.h"

namespace rrdk::verbs {

class QueuePair;

class Device final : public drivers::ControlledDevice, private drivers::Endpoint {
 public:
  static Result<std::unique_ptr<fabric::Device>> open(Memory& memory, std::string_view uri,
                                                      fabric::Purpose purpose);
  ~Device() override;

  const fabric::Capabilities& capabilities() const override { return capabilities_; }
  Result<std::unique_ptr<fabric::CompletionQueue>> create_completion_queue(
      uint32_t entries) override;
  Result<std::unique_ptr<fabric::SharedReceiveQueue>> create_shared_receive_queue(
      uint32_t entries) override;
  Result<std::unique_ptr<fabric::QueuePair>> create_queue_pair(
      const fabric::QueuePairOptions& options) override;
  Result<std::unique_ptr<fabric::Listener>> listen(const fabric::Place& place) override;
  Result<void> connect(fabric::QueuePair& qp, const fabric::Place& place,
                       std::span<const std::byte> private_data) override;
  std::vector<fabric::Counter> counters() const override;

  // --- for objects that it makes ---
  const std::string& name() const { return name_; }
  CmChannel& channel() { return channel_; }
  const Memory& memory() const { return memory_; }
  const Regions& regions() const { return regions_; }
  Counters& counts() { return counts_; }
  ibv_context* verbs() const { return context_; }
  ibv_pd* pd() const { return pd_; }
  bool has_windows() const { return has_windows_; }
  // Whether the destination memory of a Read is registered for that Read.
  bool registers_sinks() const { return is_iwarp(); }
  bool is_iwarp() const { return context_->device->transport_type == IBV_TRANSPORT_IWARP; }
  bool is_infiniband(uint8_t port) const;
  // Whether a peer's device can leave the first message of a connection unseen until another comes.
  bool pokes() const { return pokes_; }
  // In ibv_wc::wc_flags.
  unsigned invalidation_flag() const { return invalidation_flag_; }
  uint32_t max_completions() const { return max_completions_; }
  // Whether a completion queue can grow while it is used.
  bool resizes_completion_queues() const { return resizes_completion_queues_; }
  const ibv_qp_cap& queue_pair_caps() const { return caps_; }
  // Errors: kUnsupported: the address asks for another device.
  Result<void> check_device(const Address& address) const;
  // Errors: kSystem: it was removed, or failed.
  Result<void> check_alive() const;
  void add(QueuePair& qp);
  void remove(QueuePair& qp);
  // With the control loop's lock held: the device was removed, or failed, and all its connections
  // end.
  void lose();

 private:
  explicit Device(Memory& memory) : memory_(memory), regions_(memory, counts_) {}
  Result<void> start(std::string_view uri, fabric::Purpose purpose);
  Result<void> open_context();
  Result<void> learn_capabilities();
  void say_what_it_lacks(bool is_rxe, bool promises_windows) const;
  void on_ready() override;  // asynchronous events
  void on_tick(drivers::Clock::time_point) override {}
  void on_async_event(const ibv_async_event& event);

  Memory& memory_;
  Counters counts_;
  std::string name_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  fabric::Capabilities capabilities_{};
  ibv_qp_cap caps_{};
  uint32_t max_completions_ = 0;
  bool without_windows_ = false;  // as requested by its address
  bool has_windows_ = false;
  bool pokes_ = false;
  bool resizes_completion_queues_ = true;
  unsigned invalidation_flag_ = IBV_WC_WITH_INV;
  bool lost_ = false;
  std::set<QueuePair*> queue_pairs_;
  Regions regions_;
  CmChannel channel_;
};

}  // namespace rrdk::verbs
