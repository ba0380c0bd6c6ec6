
#include <rte_lcore.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <new>
#include <string>

#include "base/assert.h"
#include "base/sanitizer.h"
#include "mem/pool_datapath.h"
#include "mem/slabs.h"

namespace rrdk::mem {

SlotTable::SlotTable(uint32_t slabs, uint32_t shift)
    : slabs_(slabs), shift_(shift), rows_(std::make_unique<std::atomic<BufferSlot*>[]>(slabs)) {}

SlotTable::~SlotTable() {
  for (uint32_t slab = 0; slab < slabs_; ++slab)
    delete[] rows_[slab].load(std::memory_order_relaxed);
}

BufferSlot* SlotTable::make_row(uint32_t slab, uint32_t count) noexcept {
  RRDK_ASSERT(slab < slabs_ && count <= 1u << shift_, slab, count);
  BufferSlot* row = rows_[slab].load(std::memory_order_relaxed);
  if (row == nullptr) {
    row = new (std::nothrow) BufferSlot[count]{};
    rows_[slab].store(row, std::memory_order_release);
  }
  return row;
}

uint32_t Pool::cached_of(uint64_t buffers) noexcept {
  return static_cast<uint32_t>(std::min<uint64_t>(buffers / 32, kMostCached));
}

uint32_t Pool::resting_of(uint64_t buffers, uint32_t buffer_size) noexcept {
  if (buffer_size < kLeastRested || buffer_size > kMostRested)
    return 0;
  const uint64_t resting = std::min<uint64_t>(buffers / 8, kRestedBytes / buffer_size);
  return static_cast<uint32_t>(std::min<uint64_t>(resting, kMostCached));
}

Result<std::unique_ptr<Pool>> Pool::create(const PoolOptions& options) {
  const auto shift = static_cast<uint32_t>(std::bit_width(options.per_slab - 1));
  if (shift > 31 || uint64_t{options.slabs} << shift >= uint64_t{1} << 32)
    return fail(Errc::kInvalidArgument, "more than 2^32 buffers of " +
                                            std::to_string(options.buffer_size) +
                                            " bytes: make them larger, or fewer");
  std::unique_ptr<Pool> pool(new Pool(options, shift));
  if (options.cached != 0) {
    // Zero pages, which are not allocated until a core uses the cache in them.
    void* caches = mmap(nullptr, sizeof(Cache) * RTE_MAX_LCORE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (caches == MAP_FAILED)
      return fail(Errc::kNoMemory, "no memory for the caches of a pool of buffers");
    pool->caches_ = static_cast<Cache*>(caches);
  }
  return pool;
}

Pool::Pool(const PoolOptions& options, uint32_t shift)
    : options_(options),
      most_cached_(std::max(options.cached, options.resting) * 3 / 2),
      slots_(options.slabs, shift),
      home_of_(std::make_unique<uint32_t[]>(options.slabs)) {}

Pool::~Pool() {
  if (caches_ != nullptr)
    munmap(caches_, sizeof(Cache) * RTE_MAX_LCORE);
}

bool Pool::add_slab(uint32_t slab, std::byte* base, RegionId region) noexcept {
  RRDK_ASSERT(slab < options_.slabs && slabs() < options_.slabs, slab, slabs());
  BufferSlot* row = slots_.make_row(slab, options_.per_slab);
  if (row == nullptr)
    return false;
  Depot::Chain chain;
  for (uint32_t i = 0; i < options_.per_slab; ++i) {
    BufferSlot& slot = row[i];
    slot.data = base + size_t{i} * options_.buffer_size;
    slot.capacity = options_.buffer_size;
    slot.region = region;
    slot.pool = this;
    slot.index = slots_.index_of(slab, i);
    base::tsan_release(&slot);
    chain.add(&slot);
  }
  base::poison(base, size_t{options_.buffer_size} * options_.per_slab);
  slabs_.fetch_add(1, std::memory_order_relaxed);
  depot_.push(chain);
  return true;
}

bool Pool::may_have_free_slabs() const noexcept {
  const uint32_t in_reach = within_reach();
  const uint32_t cached = in_reach - std::min(in_reach, depot_.count());
  const uint32_t came = depot_.changes() - searched_at_.load(std::memory_order_relaxed);
  return in_reach >= options_.per_slab && came + cached >= missed_.load(std::memory_order_relaxed);
}

uint32_t Pool::remove_free_slabs() noexcept {
  const unsigned lcore = rte_lcore_id();
  if (lcore < RTE_MAX_LCORE)
    flush_cache(lcore);
  const uint32_t before = slabs();
  const uint32_t first = depot_.take_all();
  for (uint32_t index = first; index != kNoSlot;) {
    ++home_of_[slots_.slab_of(index)];
    index = slots_.at(index)->next.load(std::memory_order_relaxed);
  }
  missed_.store(fewest_missing(), std::memory_order_relaxed);
  give_back_free(first);
  return before - slabs();
}

// Returns how many buffers are missing from the slab with the most free ones.
uint32_t Pool::fewest_missing() const noexcept {
  const uint32_t most = *std::max_element(home_of_.get(), home_of_.get() + options_.slabs);
  return options_.per_slab - most;
}

// The buffers from `first` on have been counted. Those of slabs that are not completely free go
// back to the depot, in their order.
void Pool::give_back_free(uint32_t first) noexcept {
  Depot::Chain stay;
  uint32_t taken = 0;
  for (uint32_t index = first; index != kNoSlot; ++taken) {
    BufferSlot* slot = slots_.at(index);
    const uint32_t slab = slots_.slab_of(index);
    index = slot->next.load(std::memory_order_relaxed);
    RRDK_ASSERT(home_of_[slab] <= options_.per_slab, home_of_[slab]);
    if (home_of_[slab] < options_.per_slab) {
      stay.add(slot);
      continue;
    }
    if (slots_.index_of(slab, 0) == slot->index) {  // once for each slab
      slabs_.fetch_sub(1, std::memory_order_relaxed);
      options_.budget->give_back(slab, *this);
    }
  }
  for (uint32_t slab = 0; slab < options_.slabs; ++slab)
    home_of_[slab] = 0;
  depot_.took(taken);
  // Buffers that came back meanwhile count; those that only return to their place do not.
  searched_at_.store(depot_.changes() + stay.length, std::memory_order_relaxed);
  if (stay.first != nullptr)
    depot_.push(stay);
}

void Pool::flush_cache(unsigned lcore) noexcept {
  if (caches_ == nullptr)
    return;
  Cache& cache = caches_[lcore];
  base::tsan_acquire(&cache);
  drain(cache, cache.length);
  base::tsan_release(&cache);
}

// Caches belong to other cores, so their counts may be slightly out of date.
PoolAudit Pool::audit() const {
  PoolAudit audit = {.buffer_size = options_.buffer_size,
                     .numa_node = options_.numa_node,
                     .count = slabs() * options_.per_slab,
                     .available = depot_.count(),
                     .more = more(),
                     .missing = missing_,
                     .elastic = elastic()};
  for (uint32_t lcore = 0; caches_ != nullptr && lcore < RTE_MAX_LCORE; ++lcore) {
    base::TsanIgnore counting;
    audit.available += *static_cast<const volatile uint32_t*>(&caches_[lcore].length);
  }
  audit.available = std::min(audit.available, audit.count);
  audit.least_available =
      std::min(least_.load(std::memory_order_relaxed), audit.available + audit.more);
  return audit;
}

}  // namespace rrdk::mem
