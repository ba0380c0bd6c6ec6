#include "drivers/verbs/regions.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"

namespace rrdk::verbs {

namespace {

std::string locked_memory_limit(size_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return "the system is out of memory that can be pinned";
  return "this process may pin " + std::to_string(limit.rlim_cur / 1024) +
         " KiB: raise the limit, `ulimit -l` (" + std::to_string((wanted + 1023) / 1024) +
         " KiB for this region alone; memlock in /etc/security/limits.conf, LimitMEMLOCK= in a "
         "systemd unit, or `ulimit -l unlimited`)";
}

}  // namespace

void Regions::stop() {
  if (listening_)
    mem::unlisten_regions(memory_, *this);
  listening_ = false;
  for (const std::unique_ptr<Block>& block : owned_) {
    if (!block)
      continue;
    for (std::atomic<ibv_mr*>& entry : *block)
      if (ibv_mr* mr = entry.exchange(nullptr))
        ibv_dereg_mr(mr);
  }
  if (guard_ != nullptr)
    ibv_dereg_mr(std::exchange(guard_, nullptr));
}

Result<void> Regions::start(ibv_pd* pd, const std::string& device, int access) {
  pd_ = pd;
  device_ = device;
  access_ = access;
  Result<ibv_mr*> guard = register_range(guarded_.data(), guarded_.size());
  if (!guard)
    return tl::unexpected(guard.error());
  guard_ = *guard;
  mem::listen_regions(memory_, *this);
  listening_ = true;
  const std::lock_guard lock(mutex_);
  started_ = true;
  if (failed_)
    return tl::unexpected(first_error_);
  return {};
}

Result<ibv_mr*> Regions::register_range(void* base, size_t length) const {
  ibv_mr* mr = ibv_reg_mr(pd_, base, length, static_cast<unsigned>(access_));
  if (mr != nullptr)
    return mr;
  const int error = errno;
  const std::string what = device_ + " could not register " + std::to_string(length) + " bytes: ";
  if (error == ENOMEM)
    return fail(Errc::kNoMemory, what + locked_memory_limit(length));
  return fail(error == EPERM ? Errc::kPermission : Errc::kSystem, what + std::strerror(error));
}

void Regions::region_added(const mem::Region& region) {
  if (region.id >= kBlocks * kBlockSize)
    return;
  const std::lock_guard lock(mutex_);
  Result<ibv_mr*> mr = register_range(region.base, region.length);
  if (!mr) {
    Counters::count(counts_.registrations_failed);
    if (started_)
      base::log_error("verbs: %s; requests that use it will fail", mr.error().message.c_str());
    else if (!failed_)
      first_error_ = mr.error();
    failed_ = true;
    return;
  }
  std::unique_ptr<Block>& block = owned_[region.id / kBlockSize];
  if (!block) {
    block = std::make_unique<Block>();
    blocks_[region.id / kBlockSize].store(block.get(), std::memory_order_release);
  }
  (*block)[region.id % kBlockSize].store(*mr, std::memory_order_release);
}

void Regions::region_removed(const mem::Region& region) {
  if (find(region.id) == nullptr)
    return;
  ibv_mr* mr = (*owned_[region.id / kBlockSize])[region.id % kBlockSize].exchange(nullptr);
  if (const int error = ibv_dereg_mr(mr); error != 0)
    base::log_error("verbs: %s keeps a region registered that is gone: %s", device_.c_str(),
                    std::strerror(error));
}

}  // namespace rrdk::verbs
