#include "mem/pool_datapath.h"

#include <rte_memory.h>

#include <algorithm>
#include <array>

#include "base/assert.h"
#include "base/lifetime.h"
#include "mem/loans.h"
#include "mem/memory_impl.h"
#include "mem/system_memory.h"

namespace rrdk {

namespace mem {

// The slot and its pool belong to the parent process too.
void put(BufferSlot* slot) noexcept {
  if (base::forked) [[unlikely]]
    return;
  if (slot->borrower != nullptr)
    slot->borrower->take_back(*slot);
  slot->pool->put(slot);
}

uint32_t Pool::within_reach() const noexcept {
  CacheOfThisCore mine(caches_);
  return depot_.count() + (mine.get() != nullptr ? mine.get()->length : 0);
}

uint32_t Pool::more() const noexcept {
  return elastic() ? options_.budget->more_for(*this) : 0;
}

uint32_t Pool::unused() const noexcept {
  return elastic() ? options_.budget->unused_for(*this) : 0;
}

// Records the least number of free buffers, if this leaves fewer than ever before.
uint32_t Pool::take_home(BufferSlot** out, uint32_t most) noexcept {
  uint32_t taken = depot_.pop(slots_, out, most);
  uint32_t left = depot_.count();
  uint32_t least = least_.load(std::memory_order_relaxed);
  if (left >= least)
    return taken;
  left += more();
  while (left < least && !least_.compare_exchange_weak(least, left, std::memory_order_relaxed)) {
  }
  return taken;
}

BufferSlot** Pool::Cache::room() noexcept {
  std::rotate(places, places + first % kPlaces, places + kPlaces);
  first = 0;
  return places + length;
}

// The slot is taken last, and the depot supplies another one in its place, so that it rests long
// enough.
void Pool::rest(Cache& cache, BufferSlot* slot) noexcept {
  cache.push_behind(slot);
  BufferSlot* other;
  if (cache.length < options_.resting && take_home(&other, 1) != 0)
    cache.push(other);
}

void Pool::fill(Cache& cache) noexcept {
  RRDK_ASSERT(cache.length == 0, cache.length);
  cache.first = 0;
  cache.length = take_home(cache.places, options_.cached);
}

// Gives back those that have been there longest.
void Pool::drain(Cache& cache, uint32_t most) noexcept {
  RRDK_ASSERT(most <= cache.length, most, cache.length);
  if (most == 0)
    return;
  Depot::Chain chain;
  for (uint32_t i = most; i > 0; --i)
    chain.add(cache.at(i - 1));
  cache.first += most;
  cache.length -= most;
  depot_.push(chain);
}

bool Pool::take(std::span<BufferSlot*> out) noexcept {
  CacheOfThisCore mine(caches_);
  Cache* cache = mine.get();
  size_t done = 0;
  if (cache != nullptr) {
    if (cache->length < out.size() && cache->length < options_.cached)
      cache->length += take_home(cache->room(), options_.cached - cache->length);
    for (; done < out.size() && cache->length != 0; ++done)
      out[done] = cache->pop();
  }
  done += done < out.size() ? take_home(out.data() + done, static_cast<uint32_t>(out.size() - done))
                            : 0;
  if (done == out.size())
    return true;
  Depot::Chain chain;
  for (size_t i = done; i > 0; --i)
    chain.add(out[i - 1]);
  if (done != 0)
    depot_.push(chain);
  return false;
}

bool Pool::get_bulk(std::span<Buffer> out) noexcept {
  constexpr size_t kBurst = 64;
  std::array<BufferSlot*, kBurst> slots;
  for (size_t done = 0; done < out.size();) {
    const size_t burst = std::min(kBurst, out.size() - done);
    if (!take(std::span(slots).first(burst))) {
      for (Buffer& taken : out.first(done))
        taken.reset();
      return false;
    }
    for (BufferSlot* slot : std::span(slots).first(burst)) {
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
    Node& node = nodes[(start + i) % count];
    for (uint32_t c = first; c < node.pools.size(); ++c) {
      if (take(node, *node.pools[c]))
        return true;
    }
  }
  return false;
}

mem::BufferSlot* Memory::Impl::get_elsewhere(uint32_t size) noexcept {
  mem::BufferSlot* slot = nullptr;
  if (no_buffers.roll())
    return nullptr;
  const bool some = try_pools(size, [&](Node& node, mem::Pool& pool) {
    slot = pool.get();
    // Other cores may be faster, and take a whole new slab into their caches.
    while (slot == nullptr && pool.elastic() && node.slabs->grow(pool))
      slot = pool.get();
    return slot != nullptr;
  });
  if (!some)
    count_missing(size_index(size));
  return slot;
}

mem::BufferSlot* Memory::Impl::get_of_class(uint32_t index) noexcept {
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    mem::Pool& pool = *smallest[i][index];
    mem::BufferSlot* slot = pool.get();
    while (slot == nullptr && pool.elastic() && nodes[i].slabs->grow(pool))
      slot = pool.get();
    if (slot != nullptr)
      return slot;
  }
  count_missing(index);
  return nullptr;
}

void Memory::Impl::count_missing(uint32_t index) noexcept {
  if (mem::Pool* pool = smallest[home()][index])
    pool->count_missing();
}

Buffer Memory::get(uint32_t size) noexcept {
  if (base::forked) [[unlikely]]
    return {};
  mem::Pool* first = impl_->smallest_of(impl_->home(), Impl::size_index(size));
  mem::BufferSlot* slot = first != nullptr ? first->get() : nullptr;
  if (slot == nullptr) [[unlikely]]
    slot = impl_->get_elsewhere(size);
  return Buffer(slot);
}

Buffer Memory::get_fitting(uint32_t size) noexcept {
  if (base::forked) [[unlikely]]
    return {};
  const uint32_t index = Impl::size_index(size);
  const uint32_t home = impl_->home();
  mem::Pool* first = impl_->smallest_of(home, index);
  if (first == nullptr) [[unlikely]] {
    first = impl_->smallest[home][index];
    if (first == nullptr || impl_->no_buffers.roll())
      return {};
  }
  mem::BufferSlot* slot = first->get();
  if (slot == nullptr) [[unlikely]]
    slot = impl_->get_of_class(index);
  return Buffer(slot);
}

bool Memory::get_bulk(uint32_t size, std::span<Buffer> out) noexcept {
  if (base::forked || impl_->no_buffers.roll())
    return false;
  const bool some = impl_->try_pools(size, [&](Impl::Node& node, mem::Pool& pool) {
    bool taken = pool.get_bulk(out);
    // A slab at a time, until there are enough.
    while (!taken && pool.elastic() && node.slabs->grow(pool, static_cast<uint32_t>(out.size())))
      taken = pool.get_bulk(out);
    return taken;
  });
  if (!some)
    impl_->count_missing(Impl::size_index(size));
  return some;
}

bool Memory::contains(const MemorySpan& span) const noexcept {
  return impl_->regions.contains(span);
}

MemorySpan Memory::span_of(const std::byte* data, uint32_t length) const noexcept {
  for (const Impl::Node& node : impl_->nodes) {
    if (node.slabs != nullptr) {
      if (RegionId region = node.slabs->region_of(data, length); region != kNoRegion)
        return {const_cast<std::byte*>(data), length, region};
    }
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
