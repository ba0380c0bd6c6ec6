// Memory of a size that the application chooses, or that the application provides.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/assert.h"
#include "base/lifetime.h"
#include "base/system.h"
#include "mem/memory_impl.h"
#include "mem/system_memory.h"

namespace rrdk {

namespace {

Result<void> check_range(const void* address, size_t bytes) {
  const auto page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  if (address == nullptr || bytes == 0)
    return fail(Errc::kInvalidArgument, "adopting memory: the range is empty");
  if (reinterpret_cast<uintptr_t>(address) % page_size != 0 || bytes % page_size != 0)
    return fail(Errc::kInvalidArgument, "adopting memory: the range is not of whole pages of " +
                                            std::to_string(page_size) + " bytes");
  return {};
}

// Without the seals each side could end the other's next access in SIGBUS, by a truncation or a
// hole, and a peer could write where it may only read. Peers refuse memory that may grow.
Result<void> check_descriptor(size_t bytes, int fd, uint64_t fd_offset) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 && errno == EBADF)
    return fail(Errc::kInvalidArgument,
                "adopting memory: descriptor " + std::to_string(fd) + " is not open");
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;
  if (seals < 0 || (seals & kSeals) != kSeals)
    return fail(Errc::kInvalidArgument,
                "adopting memory: descriptor " + std::to_string(fd) +
                    " is not a memfd sealed with F_SEAL_SHRINK and F_SEAL_GROW and, after it was "
                    "mapped, with F_SEAL_FUTURE_WRITE");
  if ((seals & F_SEAL_WRITE) != 0)
    return fail(Errc::kInvalidArgument,
                "adopting memory: descriptor " + std::to_string(fd) + " is sealed against writing");
  struct stat status;
  if (fstat(fd, &status) != 0)
    return fail(Errc::kSystem, "adopting memory: fstat: " + base::system_message(errno));
  const auto size = static_cast<uint64_t>(status.st_size);
  if (fd_offset > size || bytes > size - fd_offset)
    return fail(Errc::kInvalidArgument, "adopting memory: the range ends beyond the descriptor's " +
                                            std::to_string(size) + " bytes");
  if (fd_offset % static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) != 0)
    return fail(Errc::kInvalidArgument, "adopting memory: the offset is not a multiple of a page");
  return {};
}

}  // namespace

RegisteredMemory::RegisteredMemory(RegisteredMemory&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      region_(std::exchange(other.region_, kNoRegion)) {}

RegisteredMemory& RegisteredMemory::operator=(RegisteredMemory&& other) noexcept {
  RegisteredMemory taken(std::move(other));
  std::swap(memory_, taken.memory_);
  std::swap(data_, taken.data_);
  std::swap(size_, taken.size_);
  std::swap(region_, taken.region_);
  return *this;
}

RegisteredMemory::~RegisteredMemory() {
  if (memory_ != nullptr && !base::forked)
    memory_->impl_->leave(region_);
}

RegisteredMemory Memory::Impl::enter(Memory& memory, const mem::Region& region, size_t size,
                                     Registration registration) {
  RegisteredMemory result;
  result.memory_ = &memory;
  result.data_ = region.base;
  result.size_ = size;
  result.region_ = regions.add(region);
  registrations.emplace(result.region_, std::move(registration));
  return result;
}

void Memory::Impl::leave(RegionId region) {
  regions.remove(region);
  const auto registration = registrations.find(region);
  RRDK_ASSERT(registration != registrations.end(), region);
  if (registration->second.adopted_fd >= 0)
    close(registration->second.adopted_fd);
  registrations.erase(registration);
}

Result<RegisteredMemory> Memory::allocate(size_t bytes) {
  if (bytes == 0)
    return fail(Errc::kInvalidArgument, "allocating registered memory: no bytes asked for");
  if (impl_->no_registration.roll())
    return fail(Errc::kNoMemory, "allocating registered memory: an injected fault");
  mem::ArenaOptions options{.bytes = bytes,
                            .numa_node = mem::current_node(),
                            .hugepages = impl_->hugepages,
                            .prefault = impl_->prefault};
  // Less than one hugepage does not justify one, whatever the policy.
  if (bytes < mem::system_hugepages().page_size)
    options.hugepages = HugepagePolicy::kNever;
  Result<mem::Arena> arena = mem::Arena::create(options);
  if (!arena)
    return fail(arena.error().code, "allocating registered memory: " + arena.error().message);
  const mem::Region region{.id = kNoRegion,
                           .base = arena->base(),
                           .length = arena->length(),
                           .fd = arena->fd(),
                           .fd_offset = 0};
  return impl_->enter(*this, region, bytes, {.arena = std::move(*arena)});
}

Result<RegisteredMemory> Memory::adopt(void* address, size_t bytes, int fd, uint64_t fd_offset) {
  if (Result<void> checked = check_range(address, bytes); !checked)
    return tl::unexpected(checked.error());
  if (impl_->no_registration.roll())
    return fail(Errc::kNoMemory, "adopting memory: an injected fault");
  mem::Region region{.id = kNoRegion,
                     .base = static_cast<std::byte*>(address),
                     .length = bytes,
                     .fd = -1,
                     .fd_offset = fd_offset};
  if (fd >= 0) {
    if (Result<void> checked = check_descriptor(bytes, fd, fd_offset); !checked)
      return tl::unexpected(checked.error());
    region.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (region.fd < 0)
      return fail(Errc::kSystem,
                  "adopting memory: F_DUPFD_CLOEXEC: " + base::system_message(errno));
  }
  return impl_->enter(*this, region, bytes, {.adopted_fd = region.fd});
}

}  // namespace rrdk
