#include "drivers/shm/mapping.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace rrdk::shm {

namespace {

std::string reason(const char* call) {
  return std::string(call) + ": " + std::strerror(errno);
}

Result<Mapping> map(int fd, size_t length, int protection, int flags) {
  void* base = ::mmap(nullptr, length, protection, MAP_SHARED | flags, fd, 0);
  if (base == MAP_FAILED)
    return fail(Errc::kSystem, reason("mmap"));
  return Mapping(static_cast<std::byte*>(base), length);
}

bool is_hugetlb(int fd) {
  struct statfs fs{};
  return ::fstatfs(fd, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC;
}

}  // namespace

Mapping::~Mapping() {
  if (base_ != nullptr)
    ::munmap(base_, length_);
}

Result<SharedMemory> create_shared(const char* name, size_t bytes, Writers writers) {
  Fd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd)
    return fail(Errc::kSystem, reason("memfd_create"));
  // A memfd is made with mode 0777, and whoever holds a descriptor of any kind can open it again.
  if (::fchmod(fd.get(), S_IRUSR | S_IWUSR) != 0)
    return fail(Errc::kSystem, reason("fchmod"));
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    return fail(Errc::kNoMemory, reason("ftruncate"));
  if (::fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) != 0)
    return fail(Errc::kNoMemory, reason("fallocate"));
  Result<Mapping> mapping = map(fd.get(), bytes, PROT_READ | PROT_WRITE, MAP_POPULATE);
  if (!mapping)
    return tl::unexpected(mapping.error());
  // Our own mapping, being there, stays writable.
  const int no_writers = writers == Writers::kOwner ? F_SEAL_FUTURE_WRITE : 0;
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | no_writers) != 0)
    return fail(Errc::kSystem, reason("fcntl(F_ADD_SEALS)"));
  return SharedMemory{std::move(fd), std::move(*mapping)};
}

Result<PeerFile> check_peer_file(int fd, Writers writers) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return fail(Errc::kNotAPeer, "the peer's memory is not sealed against shrinking");
  if (writers == Writers::kOwner && (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) == 0)
    return fail(Errc::kNotAPeer, "the peer's memory is not sealed against holes and new writers");
  if (writers == Writers::kBoth && is_hugetlb(fd))
    return fail(Errc::kNotAPeer, "the peer's doorbells are in hugepages, which it could take away");
  struct stat st{};
  if (::fstat(fd, &st) != 0)
    return fail(Errc::kSystem, reason("fstat"));
  // With the seals, what is there now stays there. So this comes after them.
  constexpr uint64_t kStatBlock = 512;
  const auto bytes = static_cast<uint64_t>(st.st_size);
  if (static_cast<uint64_t>(st.st_blocks) * kStatBlock < bytes)
    return fail(Errc::kNotAPeer, "the peer's memory has holes");
  return PeerFile{st.st_dev, st.st_ino, bytes};
}

Result<Mapping> map_peer(int fd, size_t length, Writers writers) {
  const Result<PeerFile> file = check_peer_file(fd, writers);
  if (!file)
    return tl::unexpected(file.error());
  if (length == 0 || length > file->bytes)
    return fail(Errc::kNotAPeer, "the peer's memory is smaller than it says");
  return map(fd, length, writers == Writers::kBoth ? PROT_READ | PROT_WRITE : PROT_READ, 0);
}

Result<std::shared_ptr<Mapping>> MappingCache::map(int fd, const PeerFile& file) {
  // While a mapping lives its inode number is taken, so equal numbers are the same file.
  const Key key = file.id();
  const std::lock_guard lock(mutex_);
  if (auto cached = mappings_.find(key); cached != mappings_.end()) {
    if (std::shared_ptr<Mapping> present = cached->second.lock())
      return present;
    // Its last user is just letting go of it: forget() waits for the lock.
  }
  if (mappings_.size() >= kMaxMappings)
    return fail(Errc::kLimit, "peers have had too many files mapped here");
  // Page tables of hugepages are small and filled at once. Those of ordinary pages are filled by
  // the accesses, many pages at a time: filled here, they would keep all other connections waiting.
  Result<Mapping> fresh = shm::map(fd, file.bytes, PROT_READ, is_hugetlb(fd) ? MAP_POPULATE : 0);
  if (!fresh)
    return tl::unexpected(fresh.error());
  std::shared_ptr<Mapping> shared(new Mapping(std::move(*fresh)), [this, key](Mapping* mapping) {
    delete mapping;
    forget(key);
  });
  mappings_[key] = shared;
  return shared;
}

void MappingCache::forget(const Key& key) {
  const std::lock_guard lock(mutex_);
  if (auto entry = mappings_.find(key); entry != mappings_.end() && entry->second.expired())
    mappings_.erase(entry);
}

}  // namespace rrdk::shm
