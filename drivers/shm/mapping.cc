#include "drivers/shm/mapping.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <iterator>
#include <string>
#include <vector>

#include "base/assert.h"
#include "base/log.h"
#include "drivers/shm/janitor.h"

namespace rrdk::shm {

namespace {

std::string reason(const char* call) {
  return std::string(call) + ": " + base::system_message(errno);
}

Result<Mapping> map(int fd, size_t length, int protection, int flags) {
  void* base = ::mmap(nullptr, length, protection, MAP_SHARED | flags, fd, 0);
  if (base == MAP_FAILED) {
    // The sender did not open it for this, or sealed it against this.
    const bool not_good_for_it = errno == EACCES || errno == EPERM;
    return fail(not_good_for_it ? Errc::kNotAPeer : Errc::kSystem, reason("mmap"));
  }
  return Mapping(static_cast<std::byte*>(base), length);
}

struct Pages {
  bool huge;
  uint64_t bytes;
};

Result<Pages> pages_of(int fd) {
  struct statfs fs{};
  if (::fstatfs(fd, &fs) != 0)
    return fail(Errc::kSystem, reason("fstatfs"));
  return Pages{fs.f_type == HUGETLBFS_MAGIC, static_cast<uint64_t>(fs.f_bsize)};
}

Result<void> check_seals(int fd, Writers writers) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  constexpr int kSizeStays = F_SEAL_SHRINK | F_SEAL_GROW;
  if (seals < 0 || (seals & kSizeStays) != kSizeStays)
    return fail(Errc::kNotAPeer, "the peer's memory is not sealed against shrinking and growing");
  if (writers == Writers::kOwner && (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) == 0)
    return fail(Errc::kNotAPeer, "the peer's memory is not sealed against holes and new writers");
  return {};
}

// Page tables of hugepages are small and filled at once, which shows that all pages exist; a
// missing one is a SIGBUS. Those of ordinary pages are filled by the accesses, many pages at a
// time; filling them here would delay all other connections.
Result<void> fill_tables(const Mapping& mapping, const PeerFile& file) {
  return file.hugepages ? fill_page_tables(mapping.base(), file.used, file.page_bytes)
                        : Result<void>();
}

// Address space is cheap: a small file that grows is not mapped again for that. Whole hugepages.
constexpr uint64_t kLeastMapped = uint64_t{16} << 20;

}  // namespace

// A system call that reads from a missing page returns EFAULT.
Result<void> fill_page_tables(std::byte* base, size_t length, size_t page_bytes) {
  if (::madvise(base, length, MADV_POPULATE_READ) == 0)
    return {};
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0)
    return fail(Errc::kSystem, reason("pipe2"));
  const Fd out(ends[0]), in(ends[1]);
  constexpr size_t kBatch = 1024;  // IOV_MAX, and less than a pipe holds
  std::vector<iovec> bytes;
  std::array<std::byte, kBatch> taken;
  for (size_t at = 0; at < length;) {
    bytes.clear();
    for (; at < length && bytes.size() < kBatch; at += page_bytes)
      bytes.push_back({base + at, 1});
    const auto count = static_cast<ssize_t>(bytes.size());
    if (::writev(in.get(), bytes.data(), static_cast<int>(count)) != count ||
        ::read(out.get(), taken.data(), taken.size()) != count)
      return fail(Errc::kNotAPeer, "the peer's hugepages are not all there");
  }
  return {};
}

Mapping::~Mapping() {
  if (base_ != nullptr && ::munmap(base_, length_) != 0)
    base::log_error("shm: a mapping of %zu bytes stays: %s", length_, reason("munmap").c_str());
}

Result<SharedMemory> create_shared(const char* name, size_t bytes, Writers writers) {
  Fd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd)
    return fail(Errc::kSystem, reason("memfd_create"));
  // A memfd is made with mode 0777, and a process that holds any descriptor for it can open it
  // again.
  if (::fchmod(fd.get(), S_IRUSR | S_IWUSR) != 0)
    return fail(Errc::kSystem, reason("fchmod"));
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    return fail(Errc::kNoMemory, reason("ftruncate"));
  if (::fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) != 0)
    return fail(Errc::kNoMemory, reason("fallocate"));
  Result<Mapping> mapping = map(fd.get(), bytes, PROT_READ | PROT_WRITE, MAP_POPULATE);
  if (!mapping)
    return tl::unexpected(mapping.error());
  // Our own mapping already exists, so it stays writable.
  const int no_writers = writers == Writers::kOwner ? F_SEAL_FUTURE_WRITE : 0;
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | no_writers) != 0)
    return fail(Errc::kSystem, reason("fcntl(F_ADD_SEALS)"));
  return SharedMemory{std::move(fd), std::move(*mapping)};
}

Result<PeerFile> check_peer_file(int fd, Writers writers, std::optional<uint64_t> used) {
  if (Result<void> sealed = check_seals(fd, writers); !sealed)
    return tl::unexpected(sealed.error());
  // With the seals, what exists now continues to exist. So this comes after them.
  struct stat st{};
  if (::fstat(fd, &st) != 0)
    return fail(Errc::kSystem, reason("fstat"));
  const Result<Pages> pages = pages_of(fd);
  if (!pages)
    return tl::unexpected(pages.error());
  // The blocks also count pages beyond `used`, which can make up for holes before it. Finding such
  // holes takes the file's lock, which the peer can keep. The peer's budget limits what they cost
  // us.
  constexpr uint64_t kStatBlock = 512;
  const auto bytes = static_cast<uint64_t>(st.st_size);
  uint64_t needed = used.value_or(bytes);
  if (needed > bytes)
    return fail(Errc::kNotAPeer, "the peer's memory is smaller than it says");
  if (pages->huge)  // those are mapped as a whole
    needed = std::min(bytes, (needed + pages->bytes - 1) / pages->bytes * pages->bytes);
  if (static_cast<uint64_t>(st.st_blocks) * kStatBlock < needed)
    return fail(Errc::kNotAPeer, "the peer's memory has holes");
  if (pages->huge && bytes % pages->bytes != 0)  // its last page cannot be accessed
    return fail(Errc::kNotAPeer, "the peer's memory is not of whole hugepages");
  return PeerFile{st.st_dev, st.st_ino, bytes, needed, pages->huge, pages->bytes};
}

Result<Mapping> map_peer(int fd, size_t length, Writers writers) {
  const Result<PeerFile> file = check_peer_file(fd, writers);
  if (!file)
    return tl::unexpected(file.error());
  if (file->hugepages)
    return fail(Errc::kNotAPeer, "the peer's rings or doorbells are in hugepages");
  if (length == 0 || length > file->bytes)
    return fail(Errc::kNotAPeer, "the peer's memory is smaller than it says");
  return map(fd, length, writers == Writers::kBoth ? PROT_READ | PROT_WRITE : PROT_READ, 0);
}

Result<std::shared_ptr<Mapping>> MappingCache::map(int fd, const PeerFile& file, uid_t sender) {
  // While a mapping exists its inode number is in use, so equal numbers mean the same file.
  //
  // The whole file, but at most twice what it counts for.
  const uint64_t length = std::min(file.bytes, std::bit_ceil(std::max(file.used, kLeastMapped)));
  const Key key(sender, file.device, file.inode, length);
  std::shared_ptr<Mapping> present, shared;  // released after the lock, which forget() takes
  const std::lock_guard lock(mutex_);
  if (left_.load(std::memory_order_acquire) > mappings_.size() / 8)
    forget_unused();
  if (auto cached = mappings_.find(key); cached != mappings_.end()) {
    present = cached->second.lock();
    if (present != nullptr) {
      if (Result<void> there = fill_tables(*present, file); !there)
        return tl::unexpected(there.error());
      return present;
    }
  }
  const auto own = mappings_of_.find(sender);
  const size_t owned = own == mappings_of_.end() ? 0 : own->second;
  if (owned >= kMaxMappings - std::min(mappings_.size(), kMaxMappings))
    return fail(Errc::kLimit, "the peer's user has had too many files mapped here");
  Result<Mapping> fresh = shm::map(fd, length, PROT_READ, 0);
  if (!fresh)
    return tl::unexpected(fresh.error());
  if (Result<void> there = fill_tables(*fresh, file); !there)
    return tl::unexpected(there.error());
  shared.reset(new Mapping(std::move(*fresh)), [this, key](Mapping* mapping) {
    unmap_elsewhere(std::move(*mapping));
    delete mapping;
    forget(key);
  });
  size_t& of_sender = mappings_of_[sender];
  if (mappings_.insert_or_assign(key, shared).second)
    ++of_sender;
  return shared;
}

// A polling thread may be a mapping's last user while another thread fills tables under the lock;
// the entry is then left. map() looks for such entries when there are many.
void MappingCache::forget(const Key& key) noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock)
    return (void)left_.fetch_add(1, std::memory_order_release);
  const auto entry = mappings_.find(key);
  if (entry != mappings_.end() && entry->second.expired())
    erase(entry);
}

void MappingCache::forget_unused() noexcept {
  left_.store(0, std::memory_order_relaxed);
  for (auto entry = mappings_.begin(); entry != mappings_.end();)
    entry = entry->second.expired() ? erase(entry) : std::next(entry);
}

MappingCache::Mappings::iterator MappingCache::erase(Mappings::iterator entry) noexcept {
  const auto own = mappings_of_.find(std::get<uid_t>(entry->first));
  RRDK_ASSERT(own != mappings_of_.end() && own->second != 0);
  if (--own->second == 0)
    mappings_of_.erase(own);
  return mappings_.erase(entry);
}

}  // namespace rrdk::shm
