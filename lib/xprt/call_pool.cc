#include "xprt/call_pool.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "xprt/incoming_call.h"

namespace rrdk::xprt {

namespace {
constexpr uint32_t kCallsPerSlab = 16;
}

struct CallPool::Slab {
  Buffer rooms;
  Incoming calls[kCallsPerSlab];
};

CallPool::CallPool(Memory& memory, uint32_t max_calls)
    : memory_(memory), max_calls_(std::max(max_calls, kCallsPerSlab)) {
  slabs_.reserve(max_calls_ / kCallsPerSlab);
}

CallPool::~CallPool() = default;

bool CallPool::grow() noexcept {
  if (slabs_.size() == max_calls_ / kCallsPerSlab)
    return false;
  Buffer rooms = memory_.get(kCallsPerSlab * kHeaderRoom);
  if (!rooms)
    return false;
  std::unique_ptr<Slab> slab(new (std::nothrow) Slab);
  if (slab == nullptr)
    return false;
  std::memset(rooms.data(), 0, kCallsPerSlab * kHeaderRoom);
  for (uint32_t i = 0; i < kCallsPerSlab; ++i) {
    slab->calls[i].room = {rooms.data() + i * kHeaderRoom, kHeaderRoom, rooms.region()};
    slab->calls[i].next = free_;
    free_ = &slab->calls[i];
  }
  slab->rooms = std::move(rooms);
  slabs_.push_back(std::move(slab));
  capacity_ += kCallsPerSlab;
  available_ += kCallsPerSlab;
  return true;
}

Incoming* CallPool::take() noexcept {
  Incoming* call = free_;
  free_ = call->next;
  --available_;
  return call;
}

void CallPool::put(Incoming& call) noexcept {
  call.state = CallState::kFree;
  call.next = free_;
  free_ = &call;
  ++available_;
}

void CallPool::release_idle() noexcept {
  for (Incoming* call = free_; call != nullptr; call = call->next)
    call->reply.clear();
}

}  // namespace rrdk::xprt
