#include <rte_lcore.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <string>

#include "base/assert.h"
#include "base/internals.h"
#include "base/lifetime.h"
#include "base/log.h"
#include "base/sanitizer.h"
#include "mem/loans.h"
#include "mem/memory_impl.h"
#include "mem/system_memory.h"
#include "rrdk/eal.h"
#include "rrdk/faults.h"

namespace rrdk {

namespace {

constexpr uint32_t kSmallestBuffer = 64;
constexpr uint32_t kLargestBuffer = 1u << 31;

std::string describe(const SizeClass& size_class) {
  return (size_class.count == 0 ? "elastic" : std::to_string(size_class.count)) + " buffers of " +
         std::to_string(size_class.buffer_size) + " bytes";
}

Result<std::vector<SizeClass>> check_classes(std::vector<SizeClass> classes) {
  if (classes.empty())
    return fail(Errc::kInvalidArgument, "no size classes: a Memory needs at least one");
  std::sort(classes.begin(), classes.end(),
            [](const SizeClass& a, const SizeClass& b) { return a.buffer_size < b.buffer_size; });
  uint32_t previous = 0;
  size_t total = 0;
  for (const SizeClass& c : classes) {
    if (!std::has_single_bit(c.buffer_size) || c.buffer_size < kSmallestBuffer ||
        c.buffer_size > kLargestBuffer)
      return fail(Errc::kInvalidArgument, "size class of " + describe(c) +
                                              ": the size is not a power of two of at least 64");
    if (c.buffer_size == previous)
      return fail(Errc::kInvalidArgument, "size class of " + describe(c) + ": given twice");
    previous = c.buffer_size;
    if (__builtin_add_overflow(total, size_t{c.buffer_size} * c.count, &total))
      return fail(Errc::kInvalidArgument, "the size classes together exceed the address space");
  }
  return classes;
}

std::vector<SizeClass> elastic_of(std::vector<SizeClass> classes) {
  std::erase_if(classes, [](const SizeClass& c) { return c.count != 0; });
  return classes;
}

size_t fixed_bytes(const std::vector<SizeClass>& classes) {
  size_t bytes = 0;
  for (const SizeClass& c : classes)
    bytes += size_t{c.buffer_size} * c.count;
  return bytes;
}

// Returns what elastic classes may use on each node.
Result<uint64_t> elastic_bytes(const MemoryOptions& options, const std::vector<SizeClass>& classes,
                               size_t nodes) {
  const uint64_t fixed = fixed_bytes(classes);
  uint64_t bytes = options.bytes / nodes;
  if (options.bytes != 0 && bytes < fixed)
    return fail(Errc::kNoMemory, "the budget of " + std::to_string(options.bytes) +
                                     " bytes is less than the classes of fixed counts take, " +
                                     std::to_string(fixed) + " on each NUMA node: raise " +
                                     "MemoryOptions::bytes");
  if (elastic_of(classes).empty())
    return 0;
  if (options.bytes != 0)
    return mem::check_budget((bytes - fixed) * nodes, options.hugepages).transform([&] {
      return bytes - fixed;
    });
  const mem::Share share = mem::share_of_free(options.hugepages);
  base::log_info("buffers may have %s bytes, %s; MemoryOptions::bytes states another budget",
                 std::to_string(share.bytes).c_str(), share.source.c_str());
  bytes = share.bytes / nodes;
  return bytes - std::min(bytes, fixed);
}

Result<std::vector<int>> check_nodes(std::vector<int> nodes) {
  if (nodes.empty())
    nodes.push_back(mem::current_node());
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!mem::node_exists(nodes[i]))
      return fail(Errc::kInvalidArgument,
                  "NUMA node " + std::to_string(nodes[i]) + ": there is no such node");
    if (std::find(nodes.begin(), nodes.begin() + static_cast<ptrdiff_t>(i), nodes[i]) !=
        nodes.begin() + static_cast<ptrdiff_t>(i))
      return fail(Errc::kInvalidArgument,
                  "NUMA node " + std::to_string(nodes[i]) + ": given twice");
  }
  return nodes;
}

// What a thread leaves in its caches when it gives its EAL identity back would be lost until
// another thread gets the same identity.
void flush_caches(unsigned lcore, void* impl) {
  for (Memory::Impl::Node& node : static_cast<Memory::Impl*>(impl)->nodes) {
    for (const std::unique_ptr<mem::Pool>& pool : node.pools)
      pool->flush_cache(lcore);
  }
}

}  // namespace

Memory::Memory(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Memory>> Memory::create(const MemoryOptions& options) {
  if (!eal_running())
    return fail(Errc::kInvalidArgument, "EAL is not running: call rrdk::ensure_eal() first");
  Result<std::vector<SizeClass>> classes = check_classes(options.classes);
  if (!classes)
    return tl::unexpected(classes.error());
  Result<std::vector<int>> nodes = check_nodes(options.numa_nodes);
  if (!nodes)
    return tl::unexpected(nodes.error());

  Result<uint64_t> elastic = elastic_bytes(options, *classes, nodes->size());
  if (!elastic)
    return tl::unexpected(elastic.error());

  auto impl = std::make_unique<Impl>();
  impl->hugepages = options.hugepages;
  impl->prefault = options.prefault;
  impl->index_classes(*classes);
  for (int node : *nodes) {
    if (Result<void> added = impl->add_node(*classes, node, *elastic); !added)
      return tl::unexpected(added.error());
  }
  impl->nothing.resize(impl->smallest.size());
  impl->quick = impl->smallest.data();
  impl->lcore_callback =
      rte_lcore_callback_register("rrdk memory", nullptr, flush_caches, impl.get());
  if (impl->lcore_callback == nullptr)
    return fail(Errc::kNoMemory, "rte_lcore_callback_register: out of memory");
  return std::unique_ptr<Memory>(new Memory(std::move(impl)));
}

void Memory::Impl::index_classes(const std::vector<SizeClass>& ascending) {
  for (uint32_t bits = 0; bits < first_class.size(); ++bits) {
    const auto fits = [bits](const SizeClass& c) { return c.buffer_size >= uint64_t{1} << bits; };
    const auto first = std::find_if(ascending.begin(), ascending.end(), fits);
    first_class[bits] = static_cast<uint8_t>(first - ascending.begin());
  }
  largest_buffer = ascending.back().buffer_size;
}

Result<void> Memory::Impl::add_node(const std::vector<SizeClass>& classes, int numa_node,
                                    uint64_t elastic_bytes) {
  Node& node = nodes.emplace_back(Node{.numa_node = numa_node});
  const auto where = [&](const Error& error) {
    return fail(error.code,
                "buffers on NUMA node " + std::to_string(numa_node) + ": " + error.message);
  };
  if (Result<void> added = add_fixed(node, classes); !added)
    return where(added.error());
  if (Result<void> added = add_elastic(node, elastic_of(classes), elastic_bytes); !added)
    return where(added.error());
  std::sort(node.pools.begin(), node.pools.end(),
            [](const auto& a, const auto& b) { return a->buffer_size() < b->buffer_size(); });
  Smallest& pools = smallest.emplace_back();
  for (uint32_t i = 0; i < kSizes; ++i)
    pools[i] = first_class[i] < node.pools.size() ? node.pools[first_class[i]].get() : nullptr;
  return {};
}

Result<void> Memory::Impl::add_fixed(Node& node, const std::vector<SizeClass>& classes) {
  const size_t bytes = fixed_bytes(classes);
  if (bytes == 0)
    return {};
  Result<mem::Arena> arena = mem::Arena::create(
      {.bytes = bytes, .numa_node = node.numa_node, .hugepages = hugepages, .prefault = prefault});
  if (!arena)
    return tl::unexpected(arena.error());
  node.arena = std::move(*arena);
  node.region = regions.add({.id = kNoRegion,
                             .base = node.arena.base(),
                             .length = node.arena.length(),
                             .fd = node.arena.fd(),
                             .fd_offset = 0});
  // Largest first, so that each power of two starts at a multiple of itself.
  std::byte* base = node.arena.base();
  for (auto c = classes.rbegin(); c != classes.rend(); ++c) {
    if (c->count == 0)
      continue;
    Result<std::unique_ptr<mem::Pool>> pool =
        mem::Pool::create({.buffer_size = c->buffer_size,
                           .numa_node = node.numa_node,
                           .slabs = 1,
                           .per_slab = c->count,
                           .cached = mem::Pool::cached_of(c->count)});
    if (!pool)
      return tl::unexpected(pool.error());
    if (!(*pool)->add_slab(0, base, node.region))
      return fail(Errc::kNoMemory, "no memory for the descriptions of " + describe(*c));
    node.pools.push_back(std::move(*pool));
    loans.add(c->buffer_size, c->count);
    base += size_t{c->buffer_size} * c->count;
  }
  return {};
}

Result<void> Memory::Impl::add_elastic(Node& node, const std::vector<SizeClass>& classes,
                                       uint64_t bytes) {
  if (classes.empty())
    return {};
  const uint32_t extents = mem::kMaxExtents - (node.region == kNoRegion ? 0 : 1);
  node.slabs = std::make_unique<mem::Slabs>(mem::BudgetOptions{.bytes = bytes,
                                                               .numa_node = node.numa_node,
                                                               .hugepages = hugepages,
                                                               .most_extents = extents},
                                            regions);
  Result<std::vector<std::unique_ptr<mem::Pool>>> pools = node.slabs->open(classes);
  if (!pools)
    return tl::unexpected(pools.error());
  for (std::unique_ptr<mem::Pool>& pool : *pools) {
    loans.add_elastic(*pool, *node.slabs);
    node.pools.push_back(std::move(pool));
  }
  return {};
}

Memory::Impl::~Impl() {
  if (lcore_callback != nullptr)
    rte_lcore_callback_unregister(lcore_callback);
  for (Node& node : nodes) {
    node.pools.clear();
    node.slabs.reset();
    if (node.region == kNoRegion)
      continue;
    regions.remove(node.region);
    base::unpoison(node.arena.base(), node.arena.length());
  }
}

Memory::~Memory() = default;

bool Memory::Impl::complete(const Memory& memory) const {
  bool complete = registrations.empty();
  for (const auto& [region, registration] : registrations)
    base::log_error("registered memory (region %u) outlives its Memory: destroy it first", region);
  for (const PoolAudit& pool : memory.audit()) {
    if (pool.available == pool.count)
      continue;
    complete = false;
    base::log_error("leaked: %u of %u buffers of %u bytes on NUMA node %d were not given back",
                    pool.count - pool.available, pool.count, pool.buffer_size, pool.numa_node);
  }
  return complete;
}

// Buffers that are still in use can be given back at any time, so their memory is kept.
void Memory::Impl::end(Memory* memory) {
  if (!memory->impl_->complete(*memory))
    return base::keep_for_good(std::shared_ptr<const void>(memory, [](const void*) {}));
  memory->~Memory();
  ::operator delete(memory);
}

void Memory::operator delete(Memory* memory, std::destroying_delete_t) {
  if (base::forked)
    return;
  if (!memory->impl_->users.leave()) {
    base::log_error(
        "a Memory is destroyed before a Runtime that uses it: it is kept until that is gone; "
        "destroy Servers, Clients and the Runtime first");
    return;
  }
  Impl::end(memory);
}

std::vector<PoolAudit> Memory::audit() const {
  std::vector<PoolAudit> audits;
  for (const Impl::Node& node : impl_->nodes) {
    for (const std::unique_ptr<mem::Pool>& pool : node.pools)
      audits.push_back(pool->audit());
  }
  return audits;
}

PoolAudit Memory::audit_fitting(uint32_t size) const {
  PoolAudit sum = {.numa_node = -1};
  for (const Impl::Smallest& pools : impl_->smallest) {
    const mem::Pool* pool = pools[Impl::size_index(size)];
    if (pool == nullptr)
      continue;
    const PoolAudit audit = pool->audit();
    sum.buffer_size = audit.buffer_size;
    sum.count += audit.count;
    sum.available += audit.available;
    sum.more += audit.more;
    sum.least_available += audit.least_available;
    sum.missing += audit.missing;
    sum.elastic = audit.elastic;
  }
  return sum;
}

bool Memory::whole() const {
  const std::vector<PoolAudit> audits = audit();
  return std::all_of(audits.begin(), audits.end(),
                     [](const PoolAudit& pool) { return pool.available == pool.count; });
}

bool Memory::on_hugepages() const noexcept {
  return std::all_of(impl_->nodes.begin(), impl_->nodes.end(), [](const Impl::Node& node) {
    return (node.region == kNoRegion || node.arena.huge()) &&
           (node.slabs == nullptr || node.slabs->on_hugepages());
  });
}

uint64_t Memory::registrations() const noexcept {
  return impl_->regions.added();
}

// Makes buffers and registrations run out on purpose.
void Memory::Impl::set_faults(const FaultPlan& plan) {
  no_buffers.set(plan.seed, plan.no_buffers.rate, plan.no_buffers.every);
  no_registration.set(~plan.seed, plan.registration.rate, plan.registration.every);
  bool some = plan.no_buffers.rate > 0 || plan.no_buffers.every != 0;
  quick.store(some ? nothing.data() : smallest.data(), std::memory_order_relaxed);
}

void Memory::Impl::clear_faults() {
  no_buffers.off();
  no_registration.off();
  quick.store(smallest.data(), std::memory_order_relaxed);
}

}  // namespace rrdk

namespace rrdk::mem {

void Loans::add(uint32_t capacity, uint32_t count) noexcept {
  RRDK_ASSERT(num_sizes_ < kSizes);
  uint32_t size = size_of(capacity);
  if (classes_[size].count == 0 && classes_[size].elastic.empty())
    sizes_[num_sizes_++] = static_cast<uint8_t>(size);
  classes_[size].count += count;
}

void Loans::add_elastic(const Pool& pool, const Slabs& budget) {
  add(pool.buffer_size(), 0);
  classes_[size_of(pool.buffer_size())].elastic.push_back(&pool);
  if (!budgets_.empty() && budgets_.back() == &budget)
    return;
  budgets_.push_back(&budget);
  elastic_bytes_ += budget.budget();
}

Borrower::Borrower(Memory& memory) noexcept
    : memory_(memory), loans_(Internals::of(memory).loans) {}

BorrowerRef Borrower::create(Memory& memory) {
  return BorrowerRef(new Borrower(memory));
}

void Borrower::join() noexcept {
  if (connections_.fetch_add(1, std::memory_order_relaxed) == 0)
    loans_.peers_.fetch_add(1, std::memory_order_relaxed);
}

void Borrower::part() noexcept {
  RRDK_ASSERT(connections_.load(std::memory_order_relaxed) != 0);
  if (connections_.fetch_sub(1, std::memory_order_relaxed) == 1)
    loans_.peers_.fetch_sub(1, std::memory_order_relaxed);
}

void Borrower::dispose() noexcept {
  RRDK_ASSERT(connections_.load() == 0 && exposed_.load() == 0 && waiting_.load() == 0);
  delete this;
}

void ReleaseBorrower::operator()(Borrower* borrower) const noexcept {
  borrower->release(Borrower::kOwned);
}

}  // namespace rrdk::mem
