#include "engine/served_call.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/assert.h"
#include "proto/codec.h"

namespace rrdk::engine {

namespace {
constexpr uint32_t kCallsPerSlab = 16;
constexpr uint32_t kPartsPerSlab = 16;
// The first slabs hold calls for all credits that a connection has by default, so that a window of
// calls does not allocate again with each larger burst. But if their buffers would be more than one
// in 64 of their class, slabs are added one by one.
constexpr uint32_t kSlabsAtOnce = 4;
constexpr uint32_t kBuffersPerSlab = 64;
// This many unused calls may keep the buffer of their last reply for the next one. More buffers
// would be missed elsewhere.
constexpr uint32_t kMostKept = 64;
}  // namespace

struct CallPool::Slab {
  Buffer rooms;
  ServedCall calls[kCallsPerSlab];

  ~Slab() {
    for (ServedCall& call : calls)
      call_handles.give_back(call.slot);
  }

  bool is_free() const noexcept {
    return std::ranges::all_of(
        calls, [](const ServedCall& call) { return call.state == CallState::kFree; });
  }
};

struct CallPool::PartSlab {
  ChunkPart parts[kPartsPerSlab];

  bool is_free() const noexcept { return std::ranges::none_of(parts, &ChunkPart::in_use); }
};

namespace {

// Frees slabs of which nothing is in use, but leaves `kept`.
template <typename Slab>
void drop_free(std::vector<std::unique_ptr<Slab>>& slabs, size_t kept) {
  size_t spare = slabs.size() - std::min(slabs.size(), kept);
  std::erase_if(slabs, [&spare](const std::unique_ptr<Slab>& slab) {
    const bool goes = spare != 0 && slab->is_free();
    spare -= goes;
    return goes;
  });
}

}  // namespace

CallPool::CallPool(Memory& memory, uint32_t max_calls, const base::OwnedByThread* owner)
    : memory_(memory), owner_(owner), max_calls_(std::max(max_calls, kCallsPerSlab)) {
  slabs_.reserve(max_calls_ / kCallsPerSlab);
}

WorkArrays<fabric::SendWr>& CallPool::send_arrays(uint32_t capacity) {
  RRDK_ON_CORE(*this);
  for (const auto& known : send_arrays_) {
    if (known->capacity() == capacity)
      return *known;
  }
  return *send_arrays_.emplace_back(std::make_unique<WorkArrays<fabric::SendWr>>(capacity));
}

CallPool::~CallPool() {
  RRDK_ASSERT(available_ == capacity_, available_, capacity_);
}

// Returns false if there is no memory for even one slab.
bool CallPool::grow() noexcept {
  if (!add_slab())
    return false;
  const PoolAudit buffers = memory_.audit_fitting(kCallsPerSlab * kHeaderRoom);
  if (uint64_t{buffers.count} + buffers.more >= kSlabsAtOnce * kBuffersPerSlab) {
    for (uint32_t i = 1; i < kSlabsAtOnce && add_slab(); ++i)
      continue;
  }
  return true;
}

bool CallPool::add_slab() noexcept {
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
    slab->calls[i].slot = call_handles.take(slab->calls[i]);
    free_.push(slab->calls[i]);
  }
  slab->rooms = std::move(rooms);
  slabs_.push_back(std::move(slab));
  capacity_ += kCallsPerSlab;
  available_ += kCallsPerSlab;
  return true;
}

bool CallPool::grow_parts() noexcept {
  std::unique_ptr<PartSlab> slab(new (std::nothrow) PartSlab);
  if (slab == nullptr)
    return false;
  for (ChunkPart& part : slab->parts)
    free_parts_.push(part);
  parts_.push_back(std::move(slab));
  return true;
}

bool CallPool::add_part(ServedCall& call) noexcept {
  call.part = get_part();
  if (call.part == nullptr)
    return false;
  proto::fill_header({call.xid, call.credits, call.wire, proto::Direction::kCall},
                     call.part->header);
  return true;
}

void CallPool::shrink(uint64_t now_ns) noexcept {
  constexpr uint64_t kLookNs = 1'000'000'000;
  constexpr uint32_t kQuietLooks = 3;
  next_look_ns_ = now_ns + kLookNs;
  const uint32_t most_used = capacity_ - std::exchange(least_available_, available_);
  quiet_looks_ = most_used <= kKeptSlabs * kCallsPerSlab ? quiet_looks_ + 1 : 0;
  if (quiet_looks_ < kQuietLooks)
    return;
  quiet_looks_ = 0;
  release_idle();
  drop_free(slabs_, kKeptSlabs);
  drop_free(parts_, kKeptSlabs);
  collect_free();
}

void CallPool::collect_free() noexcept {
  free_.clear();
  available_ = 0;
  for (const std::unique_ptr<Slab>& slab : slabs_) {
    for (ServedCall& call : slab->calls) {
      if (call.state != CallState::kFree)
        continue;
      free_.push(call);
      ++available_;
    }
  }
  free_parts_.clear();
  for (const std::unique_ptr<PartSlab>& slab : parts_) {
    for (ChunkPart& part : slab->parts) {
      if (!part.in_use)
        free_parts_.push(part);
    }
  }
  capacity_ = static_cast<uint32_t>(slabs_.size()) * kCallsPerSlab;
  least_available_ = available_;
}

ServedCall* CallPool::take() noexcept {
  RRDK_ASSERT(available_ != 0);
  ServedCall& call = free_.pop();
  RRDK_ASSERT(call.state == CallState::kFree, call.state);
  call.state = CallState::kProcessing;
  --available_;
  least_available_ = std::min(least_available_, available_);
  kept_ -= !call.reply.buffers().empty();
  return &call;
}

void CallPool::put(ServedCall& call) noexcept {
  RRDK_ON_CORE(*this);
  RRDK_ASSERT(call.state != CallState::kFree && available_ < capacity_, call.state, available_);
  call.state = CallState::kFree;
  if (call.part != nullptr)
    put(*std::exchange(call.part, nullptr));
  if (!call.reply.buffers().empty()) {
    if (kept_ == kMostKept) [[unlikely]]
      call.reply.clear();
    else
      ++kept_;
  }
  free_.push(call);
  ++available_;
}

void CallPool::release_idle() noexcept {
  for (ServedCall& call : free_) {
    if (kept_ == 0)
      break;
    kept_ -= !call.reply.buffers().empty();
    call.reply.clear();
  }
}

}  // namespace rrdk::engine
