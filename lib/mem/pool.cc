#include "mem/pool.h"

#include <rte_eal.h>
#include <rte_errno.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <string>

#include "base/sanitizer.h"

namespace rrdk::mem {

namespace {

// What came back last goes out first: it may still be in the core's caches. Out of DPDK's ring
// comes what has lain there longest, so that a few calls of a megabyte walk through the whole
// class. And it is lock-free: the default ring makes every core wait for one that was preempted in
// the middle of it.
constexpr char kPoolDriver[] = "lf_stack";

// A core's cache strands at most 1.5 times its size of buffers where other cores can not get them.
// A 32nd of the pool bounds what eight cores strand to little more than a third of a class.
uint32_t cache_size(uint32_t count) {
  return std::min<uint32_t>(count / 32, RTE_MEMPOOL_CACHE_MAX_SIZE);
}

// Unique among all processes that share one EAL configuration.
std::string unique_name() {
  static std::atomic<uint32_t> next{0};
  char name[RTE_MEMPOOL_NAMESIZE];
  std::snprintf(name, sizeof(name), "rrdk.%x.%x", static_cast<unsigned>(getpid()),
                next.fetch_add(1));
  return name;
}

tl::unexpected<Error> no_descriptors(SizeClass size_class, int error) {
  return fail(error == ENOMEM ? Errc::kNoMemory : Errc::kSystem,
              "no pool of " + std::to_string(size_class.count) + " buffers of " +
                  std::to_string(size_class.buffer_size) + " bytes: " + rte_strerror(error) +
                  (error == ENOMEM ? " in EAL's memory; start EAL with more (-m)" : ""));
}

tl::unexpected<Error> no_driver(const char* name, const char* library) {
  return fail(Errc::kUnsupported, std::string("EAL has no mempool driver ") + name + ": " +
                                      library +
                                      " is not loaded; link the program with it, or start EAL "
                                      "with -d and the path of that library");
}

}  // namespace

Result<std::unique_ptr<Pool>> Pool::create(SizeClass size_class, int numa_node, std::byte* base,
                                           RegionId region) {
  // Without hugepages all of EAL's memory counts as that of node 0.
  const int socket = rte_eal_has_hugepages() != 0 ? numa_node : SOCKET_ID_ANY;
  rte_mempool* mempool = rte_mempool_create_empty(unique_name().c_str(), size_class.count,
                                                  sizeof(BufferSlot), cache_size(size_class.count),
                                                  0, socket, RTE_MEMPOOL_F_NO_IOVA_CONTIG);
  if (mempool == nullptr && rte_errno == EINVAL)
    return no_driver("ring_mp_mc", "librte_mempool_ring");  // which DPDK gives each pool at first
  if (mempool == nullptr)
    return no_descriptors(size_class, rte_errno);
  // From here on `pool` frees it.
  std::unique_ptr<Pool> pool(new Pool(mempool, size_class, numa_node));
  if (const int error = rte_mempool_set_ops_byname(mempool, kPoolDriver, nullptr); error != 0)
    return no_driver(kPoolDriver, "librte_mempool_stack");
  if (const int filled = rte_mempool_populate_default(mempool); filled < 0)
    return no_descriptors(size_class, -filled);
  pool->bind(base, region);
  base::poison(base, size_t{size_class.buffer_size} * size_class.count);
  return pool;
}

void Pool::bind(std::byte* base, RegionId region) {
  struct Binding {
    Pool* pool;
    std::byte* base;
    RegionId region;
  } binding{this, base, region};
  rte_mempool_obj_iter(
      mempool_,
      [](rte_mempool*, void* context, void* object, unsigned index) {
        const auto& to = *static_cast<Binding*>(context);
        const uint32_t size = to.pool->buffer_size();
        new (object) BufferSlot{.data = to.base + size_t{index} * size,
                                .capacity = size,
                                .region = to.region,
                                .pool = to.pool,
                                .held = false,
                                .borrower = nullptr};
      },
      &binding);
}

Pool::~Pool() {
  rte_mempool_free(mempool_);
}

void Pool::flush_cache(unsigned lcore) noexcept {
  rte_mempool_cache* cache = rte_mempool_default_cache(mempool_, lcore);
  if (cache == nullptr)
    return;
  base::tsan_acquire(cache);
  rte_mempool_cache_flush(cache, mempool_);
  base::tsan_release(cache);
}

PoolAudit Pool::audit() const {
  return {.buffer_size = size_class_.buffer_size,
          .numa_node = numa_node_,
          .count = size_class_.count,
          .available = rte_mempool_avail_count(mempool_)};
}

}  // namespace rrdk::mem
