#include "runtime/open_device.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/internals.h"
#include "mem/memory_impl.h"
#include "runtime/link.h"
#include "runtime/poll_core.h"

namespace rrdk::runtime {

RegionId OpenDevice::out_of_reach(Memory& memory,
                                  std::span<const MemorySpan> spans) const noexcept {
  if (!capabilities().needs_descriptors)
    return kNoRegion;
  for (const MemorySpan& span : spans) {
    if (span.length != 0 && !Internals::of(memory).regions.is_shareable(span.region))
      return span.region;
  }
  return kNoRegion;
}

RegionId OpenDevice::out_of_reach(Memory& memory, const Message& message) const noexcept {
  if (!message.borrows()) [[likely]]
    return kNoRegion;
  if (!capabilities().needs_descriptors)
    return kNoRegion;
  for (const Piece& piece : message.pieces()) {
    if (!piece.item)  // in a buffer of the Memory's own
      continue;
    if (RegionId region = out_of_reach(memory, piece.runs()); region != kNoRegion)
      return region;
  }
  return kNoRegion;
}

std::string OpenDevice::why_out_of_reach(RegionId region) const {
  return "memory of region " + std::to_string(region) +
         ", which has no descriptor: " + std::string(scheme_) +
         " cannot use it. Take it from Memory::allocate(), or adopt() it with its memfd";
}

Result<fabric::Listener*> OpenDevice::listen(const fabric::Place& place, Acceptor& acceptor) {
  std::lock_guard lock(mutex_);
  auto listener = device_->listen(place);
  if (!listener)
    return tl::unexpected(listener.error());
  listening_.push_back({std::move(*listener), &acceptor});
  return listening_.back().listener.get();
}

void OpenDevice::unlisten(fabric::Listener* listener) {
  std::lock_guard lock(mutex_);
  std::erase_if(listening_, [&](const Listening& l) { return l.listener.get() == listener; });
}

uint32_t OpenDevice::route_events(base::Budget& budget) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock)
    return 0;
  uint32_t count = 0;
  while (count != kEventsPerPass && (count == 0 || budget.may_go_on())) {
    std::vector<fabric::Event> next = device_->poll_events(1, budget);
    if (next.empty())
      break;
    route(std::move(next.front()));
    ++count;
  }
  return count;
}

void OpenDevice::route(fabric::Event event) {
  if (event.listener != nullptr) {
    auto it = std::ranges::find_if(
        listening_, [&](const Listening& l) { return l.listener.get() == event.listener; });
    if (it != listening_.end() && event.request != nullptr)
      it->acceptor->on_connect_request(*this, std::move(event.request));
    else if (it != listening_.end())
      it->acceptor->on_shortage();
    else if (event.request != nullptr)
      event.request->reject({});  // it came while we stopped listening
    return;
  }
  // While the device is locked, the queue pair and therefore the link still exist; they may be gone
  // when the core runs the task.
  auto* link = static_cast<Link*>(event.owner);
  RRDK_ASSERT(link != nullptr && event.request == nullptr);
  PollCore& core = link->core();
  // std::function requires a copyable object.
  auto shared = std::make_shared<fabric::Event>(std::move(event));
  core.post([&core, id = link->id(), shared] { core.deliver(id, *shared); });
}

}  // namespace rrdk::runtime
