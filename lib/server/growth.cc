#include "server/growth.h"

#include <algorithm>
#include <string>
#include <utility>

#include "mem/memory_impl.h"

namespace rrdk::server {

namespace {

uint32_t& buffers_of(GrowthShares& shares, uint32_t buffer_size) {
  auto found = std::ranges::find(shares, buffer_size, &GrowthShare::buffer_size);
  if (found == shares.end())
    found = shares.insert(found, {.buffer_size = buffer_size, .buffers = 0});
  return found->buffers;
}

}  // namespace

Result<void> Growth::take(uint32_t bytes, uint32_t receives, GrowthShares& shares) {
  PoolAudit pool = memory_.audit_fitting(bytes);
  uint32_t& own = buffers_of(shares, pool.buffer_size);
  if (pool.buffer_size == memory_.audit_fitting(bytes_).buffer_size || receives <= own)
    return {};  // they have such buffers already
  std::lock_guard lock(mutex_);
  uint32_t& taken = buffers_of(taken_, pool.buffer_size);
  uint64_t there = uint64_t{pool.count} + pool.more;
  uint64_t kept = there / kShareKeptForCalls;
  uint64_t all = uint64_t{taken} - own + receives + kept;
  if (all > there)
    return fail(
        Errc::kNoMemory,
        "of " + std::to_string(there) + " buffers of " + std::to_string(pool.buffer_size) +
            " bytes, Receives of other connections have " + std::to_string(taken - own) + ", " +
            std::to_string(kept) + " are kept for calls and this one takes " +
            std::to_string(receives) + ": " + mem::remedy_for(pool) +
            ", or lower Version2ServerOptions::max_receive_size, credits or backward_credits");
  taken = taken - own + receives;
  own = receives;
  return {};
}

void Growth::give_back(GrowthShares& shares) {
  std::lock_guard lock(mutex_);
  for (const GrowthShare& share : shares)
    buffers_of(taken_, share.buffer_size) -= share.buffers;
  shares.clear();
}

}  // namespace rrdk::server
