#include "mem/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "base/assert.h"
#include "base/log.h"
#include "base/system.h"
#include "mem/system_memory.h"

namespace rrdk::mem {

namespace {

size_t round_up(size_t bytes, size_t page_size) {
  return (bytes + page_size - 1) / page_size * page_size;
}

Errc errc_of(int error) {
  return error == ENOMEM || error == ENOSPC || error == EMFILE || error == ENFILE ? Errc::kNoMemory
                                                                                  : Errc::kSystem;
}

tl::unexpected<Error> system_failure(const char* call, size_t bytes, int error) {
  return fail(errc_of(error), std::string(call) + " of " + std::to_string(bytes) +
                                  " bytes: " + base::system_message(error));
}

// Between checks of what is left for others, since other processes may be taking memory at the same
// time.
constexpr size_t kStep = size_t{256} << 20;

// Fills page tables too, so that no first access faults. Kernels before 5.14 do not know the
// advice.
void populate(std::byte* base, size_t length, size_t page_size) {
  if (madvise(base, length, MADV_POPULATE_WRITE) == 0)
    return;
  for (size_t offset = 0; offset < length; offset += page_size)
    *reinterpret_cast<volatile std::byte*>(base + offset) = std::byte{0};
}

}  // namespace

Result<Arena> Arena::create(const ArenaOptions& options) {
  const size_t page_size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (options.hugepages == HugepagePolicy::kNever)
    return create_of_pages(options, page_size, false);

  const Hugepages hugepages = system_hugepages();
  if (hugepages.page_size != 0) {
    Result<Arena> arena = create_of_pages(options, hugepages.page_size, true);
    if (arena || arena.error().code != Errc::kNoMemory)
      return arena;
  }
  const std::string shortfall = hugepage_shortfall(hugepages, options.bytes);
  if (options.hugepages == HugepagePolicy::kRequire)
    return fail(Errc::kNoMemory, shortfall);

  static base::LogOnce said;
  if (said.first())
    base::log_info("buffers are in ordinary pages, which is slower: %s", shortfall.c_str());
  return create_of_pages(options, page_size, false);
}

Result<Arena> Arena::create_of_pages(const ArenaOptions& options, size_t page_size, bool huge) {
  Arena arena;
  arena.huge_ = huge;
  arena.length_ = round_up(options.bytes, page_size);
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? MFD_HUGETLB : 0u);
  arena.fd_ = memfd_create("rrdk", flags);
  if (arena.fd_ < 0) {
    // Without hugetlbfs in the kernel there are no hugepages, which the caller can handle.
    if (huge && (errno == EINVAL || errno == ENODEV || errno == ENOENT || errno == ENOSYS))
      return fail(Errc::kNoMemory, "no hugepage support");
    return system_failure("memfd_create", arena.length_, errno);
  }
  if (Result<void> mapped = arena.map(options, page_size); !mapped)
    return tl::unexpected(mapped.error());
  return arena;
}

Result<void> Arena::map(const ArenaOptions& options, size_t page_size) {
  // A memfd is made with mode 0777, and a process that has any descriptor for it can open it again.
  if (fchmod(fd_, S_IRUSR | S_IWUSR) != 0)
    return system_failure("fchmod", length_, errno);
  if (Result<void> allowed = check_process_limits(length_); !allowed)
    return allowed;
  if (ftruncate(fd_, static_cast<off_t>(length_)) != 0)
    return system_failure("ftruncate", length_, errno);
  // Without MAP_NORESERVE, mmap takes all hugepages now or fails, so a later fault finds its page.
  void* address = mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (address == MAP_FAILED)
    return system_failure("mmap", length_, errno);
  base_ = static_cast<std::byte*>(address);
  // With F_SEAL_FUTURE_WRITE (Linux 5.1) existing mappings stay writable, others cannot be made,
  // and holes cannot be punched.
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  if (fcntl(fd_, F_ADD_SEALS, kSeals) != 0)
    return errno == EINVAL ? fail(Errc::kSystem,
                                  "this kernel does not know F_SEAL_FUTURE_WRITE: Linux 5.1 is the "
                                  "oldest that does")
                           : system_failure("sealing", length_, errno);
  prefer_node(base_, length_, options.numa_node);
  page_size_ = page_size;
  if (!options.prefault)
    return {};
  return fill_all();
}

Result<void> Arena::fill(size_t offset, size_t length) {
  RRDK_ASSERT(offset <= length_ && length <= length_ - offset, offset, length);
  if (fallocate(fd_, 0, static_cast<off_t>(offset), static_cast<off_t>(length)) != 0)
    return system_failure("fallocate", length, errno);
  populate(base_ + offset, length, page_size_);
  return {};
}

// The kernel never lacks ordinary pages: it kills a process to get them.
Result<void> Arena::fill_all() {
  for (size_t done = 0; done < length_; done += std::min(kStep, length_ - done)) {
    if (!huge_) {
      if (Result<void> room = check_headroom(length_ - done, memory_headroom()); !room)
        return room;
    }
    const size_t step = std::min(kStep, length_ - done);
    if (Result<void> filled = fill(done, step); !filled)
      return filled;
  }
  return {};
}

Arena::~Arena() {
  if (base_ != nullptr)
    munmap(base_, length_);
  if (fd_ >= 0)
    close(fd_);
}

}  // namespace rrdk::mem
