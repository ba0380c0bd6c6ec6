#include "drivers/common/device.h"

#include <string>

#include "drivers/common/receive_queue.h"

namespace rrdk::drivers {

namespace {

Result<void> limited(const char* what, uint32_t value, uint32_t least, uint32_t most) {
  if (value >= least && value <= most)
    return {};
  return fail(Errc::kInvalidArgument, std::string(what) + " is " + std::to_string(value) + ": " +
                                          std::to_string(least) + " to " + std::to_string(most) +
                                          " are possible");
}

}  // namespace

Result<void> check(const fabric::QueuePairOptions& options, const fabric::Capabilities& most) {
  if (options.cq == nullptr)
    return fail(Errc::kInvalidArgument, "a queue pair needs a completion queue");
  if (auto sends = limited("send_wrs", options.send_wrs, 1, most.max_send_wrs); !sends)
    return sends;
  if (options.srq == nullptr) {
    auto receives = limited("receive_wrs", options.receive_wrs, 1, most.max_receive_wrs);
    if (!receives)
      return receives;
  }
  return limited("keys", options.keys, 0, most.max_keys);
}

Result<void> check_shared_receives(uint32_t entries, uint32_t most) {
  return limited("entries of a shared receive queue", entries, 1, most);
}

Result<void> check_private_data(std::span<const std::byte> data) {
  if (data.size() <= fabric::kMaxPrivateData)
    return {};
  return fail(Errc::kInvalidArgument, "private data of " + std::to_string(data.size()) +
                                          " bytes is longer than " +
                                          std::to_string(fabric::kMaxPrivateData));
}

Error too_many_queue_pairs(size_t most) {
  return {Errc::kLimit,
          "a poll core has " + std::to_string(most) +
              " connections of this kind, the most that it can have: open fewer, "
              "or have more poll cores (RuntimeOptions::poll_cpus or embedded_cores)"};
}

Result<std::unique_ptr<fabric::SharedReceiveQueue>> SoftwareDevice::create_shared_receive_queue(
    uint32_t entries) {
  auto checked = check_shared_receives(entries, capabilities_.max_shared_receives);
  if (!checked)
    return tl::unexpected(checked.error());
  return std::make_unique<SharedReceiveQueue>(entries);
}

}  // namespace rrdk::drivers
