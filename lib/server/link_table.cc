#include "server/link_table.h"

#include <algorithm>
#include <memory>

#include "base/sanitizer.h"
#include "server/server_link.h"

namespace rrdk::server {

namespace {

// 64 kB. A table of liburcu that can grow has a thread for that, which aborts the process if it
// cannot be started; so this table never grows. Ids are consecutive numbers, which fill the buckets
// evenly: with 10,000 connections there are two or three in each, with 100,000 there are 25. To
// find, add or remove one takes a walk through its bucket.
constexpr unsigned long kBuckets = 4096;

ServerLink& link_of(cds_lfht_node* node) noexcept {
  auto* const its = static_cast<LinkNode*>(node);
  base::tsan_acquire(its);
  return its->link;
}

int has_id(cds_lfht_node* node, const void* id) noexcept {
  return link_of(node).id() == *static_cast<const uint64_t*>(id) ? 1 : 0;
}

}  // namespace

LinkTable::LinkTable(size_t cores)
    : table_(cds_lfht_new_flavor(kBuckets, kBuckets, kBuckets, 0, &urcu_bp_flavor, nullptr)),
      past_(cores) {
  for (std::atomic<Past*>& past : past_)
    past = new Past;
}

LinkTable::~LinkTable() {
  cds_lfht_destroy(table_, nullptr);
  for (std::atomic<Past*>& past : past_)
    delete past.load(std::memory_order_relaxed);
}

void LinkTable::add(ServerLink& link) noexcept {
  base::tsan_release(&link.in_table);
  cds_lfht_add(table_, link.id(), &link.in_table);
}

// First it is added to the past ones, and then removed from the table: sums() looks in the opposite
// order.
void LinkTable::remove(ServerLink& link) {
  std::atomic<Past*>& past = past_[link.core().index()];
  std::unique_ptr<Past> old(past.load(std::memory_order_relaxed));
  auto sums = std::make_unique<Past>();
  sums->links = old->links + 1;
  sums->sums = old->sums;
  link.add_to(sums->sums);
  link.in_table.gone_as.store(sums->links, std::memory_order_relaxed);
  past.store(sums.release(), std::memory_order_release);
  cds_lfht_del(table_, &link.in_table);
  link.gone->fetch_add(1, std::memory_order_relaxed);
  base::retire(std::move(old));
  base::retire(std::unique_ptr<base::Retired>(&link));
}

ServerLink* LinkTable::find(uint64_t id) const noexcept {
  cds_lfht_iter found;
  cds_lfht_lookup(table_, id, has_id, &id, &found);
  return found.node != nullptr ? &link_of(found.node) : nullptr;
}

void LinkTable::for_each(const std::function<void(ServerLink&)>& visitor) const {
  cds_lfht_iter at;
  for (cds_lfht_first(table_, &at); at.node != nullptr; cds_lfht_next(table_, &at))
    visitor(link_of(at.node));
}

std::vector<uint64_t> LinkTable::ids() const {
  std::vector<uint64_t> ids;
  {
    const base::ReadSection reading;
    for_each([&](ServerLink& link) { ids.push_back(link.id()); });
  }
  std::ranges::sort(ids);
  return ids;
}

// Notes the connections of the table, then takes the sums of the past ones, and then adds the noted
// ones that were not past yet. So a connection that ends meanwhile is counted once.
Stats LinkTable::sums() const {
  const base::ReadSection reading;
  std::vector<const ServerLink*> noted;
  for_each([&](ServerLink& link) { noted.push_back(&link); });
  Stats sums(CounterOwner::kServer);
  std::vector<uint64_t> gone;
  for (const std::atomic<Past*>& core : past_) {
    const Past& past = *core.load(std::memory_order_acquire);
    sums += past.sums;
    gone.push_back(past.links);
  }
  for (const ServerLink* link : noted) {
    const uint64_t gone_as = link->in_table.gone_as.load(std::memory_order_relaxed);
    if (gone_as == 0 || gone_as > gone[link->core().index()])
      link->add_to(sums);
  }
  return sums;
}

}  // namespace rrdk::server
