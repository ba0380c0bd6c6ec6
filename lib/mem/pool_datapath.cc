#include "mem/pool_datapath.h"

#include <algorithm>
#include <array>

#include "base/lifetime.h"
#include "mem/loans.h"
#include "mem/memory_impl.h"
#include "mem/system_memory.h"

namespace rrdk {

namespace mem {

// The slot and its pool are the parent's, too.
void put(BufferSlot* slot) noexcept {
  if (base::forked) [[unlikely]]
    return;
  if (slot->borrower != nullptr)
    slot->borrower->take_back(*slot);
  slot->pool->put(slot);
}

bool Pool::get_bulk(std::span<Buffer> out) noexcept {
  constexpr size_t kBurst = 64;
  std::array<void*, kBurst> objects;
  for (size_t done = 0; done < out.size();) {
    const auto burst = static_cast<unsigned>(std::min(kBurst, out.size() - done));
    CacheOfThisCore cache(caches_);
    if (rte_mempool_generic_get(mempool_, objects.data(), burst, cache.get()) != 0) {
      for (Buffer& taken : out.first(done))
        taken.reset();
      return false;
    }
    for (unsigned i = 0; i < burst; ++i) {
      auto* slot = static_cast<BufferSlot*>(objects[i]);
      mark_held(slot);
      out[done++] = Buffer(slot);
    }
  }
  return true;
}

}  // namespace mem

uint32_t Memory::Impl::home() const noexcept {
  if (nodes.size() == 1)
    return 0;
  // Threads that EAL does not know, or that may run on several nodes, have no socket.
  const unsigned socket = rte_socket_id();
  const int node = socket == static_cast<unsigned>(SOCKET_ID_ANY) ? mem::current_node()
                                                                  : static_cast<int>(socket);
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].numa_node == node)
      return i;
  }
  return 0;
}

// The order of preference: near before far, then small before large.
template <typename Take>
bool Memory::Impl::try_pools(uint32_t size, Take take) noexcept {
  const uint32_t first = first_class[size_index(size)];
  const uint32_t start = home();
  const auto count = static_cast<uint32_t>(nodes.size());
  for (uint32_t i = 0; i < count; ++i) {
    const Node& node = nodes[(start + i) % count];
    for (uint32_t c = first; c < node.pools.size(); ++c) {
      if (take(*node.pools[c]))
        return true;
    }
  }
  return false;
}

mem::BufferSlot* Memory::Impl::get_elsewhere(uint32_t size) noexcept {
  mem::BufferSlot* slot = nullptr;
  if (!no_buffers.roll())
    try_pools(size, [&](mem::Pool& pool) { return (slot = pool.get()) != nullptr; });
  return slot;
}

Buffer Memory::get(uint32_t size) noexcept {
  mem::Pool* first = impl_->smallest_of(impl_->home(), Impl::size_index(size));
  mem::BufferSlot* slot = first != nullptr ? first->get() : nullptr;
  if (slot == nullptr) [[unlikely]]
    slot = impl_->get_elsewhere(size);
  return Buffer(slot);
}

Buffer Memory::get_fitting(uint32_t size) noexcept {
  const uint32_t index = Impl::size_index(size);
  const uint32_t home = impl_->home();
  mem::Pool* first = impl_->smallest_of(home, index);
  if (first == nullptr) [[unlikely]] {
    first = impl_->smallest[home][index];
    if (first == nullptr || impl_->no_buffers.roll())
      return {};
  }
  mem::BufferSlot* slot = first->get();
  for (uint32_t i = 0; slot == nullptr && i < impl_->nodes.size(); ++i) [[unlikely]]
    slot = impl_->smallest[i][index]->get();
  return Buffer(slot);
}

bool Memory::get_bulk(uint32_t size, std::span<Buffer> out) noexcept {
  return !impl_->no_buffers.roll() &&
         impl_->try_pools(size, [&](mem::Pool& pool) { return pool.get_bulk(out); });
}

bool Memory::contains(const MemorySpan& span) const noexcept {
  return impl_->regions.contains(span);
}

MemorySpan Memory::span_of(const std::byte* data, uint32_t length) const noexcept {
  for (const Impl::Node& node : impl_->nodes) {
    const auto offset = static_cast<size_t>(data - node.arena.base());
    if (offset < node.arena.length() && length <= node.arena.length() - offset)
      return {const_cast<std::byte*>(data), length, node.region};
  }
  return {const_cast<std::byte*>(data), length, kNoRegion};
}

uint32_t Memory::largest_buffer() const noexcept {
  return impl_->largest_buffer;
}

}  // namespace rrdk
