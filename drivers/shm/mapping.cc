#include "drivers/shm/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace rrdk::shm {

namespace {

std::string reason(const char* call) {
  return std::string(call) + ": " + std::strerror(errno);
}

Result<Mapping> map(int fd, uint64_t offset, size_t length, int flags) {
  void* base = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd,
                      static_cast<off_t>(offset));
  if (base == MAP_FAILED)
    return fail(Errc::kSystem, reason("mmap"));
  return Mapping(static_cast<std::byte*>(base), length);
}

// How the file backs [offset, offset + length), or why it must not be touched.
Result<struct stat> check_file(int fd, uint64_t offset, size_t length) {
  struct stat st{};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return fail(Errc::kNotAPeer, "the peer's memory is not sealed against shrinking");
  if (::fstat(fd, &st) != 0)
    return fail(Errc::kSystem, reason("fstat"));
  const auto size = static_cast<uint64_t>(st.st_size);
  if (length == 0 || offset > size || length > size - offset)
    return fail(Errc::kNotAPeer, "the peer's memory is smaller than it says");
  return st;
}

}  // namespace

Mapping::~Mapping() {
  if (base_ != nullptr)
    ::munmap(base_, length_);
}

Result<SharedMemory> create_shared(const char* name, size_t bytes) {
  Fd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd)
    return fail(Errc::kSystem, reason("memfd_create"));
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    return fail(Errc::kNoMemory, reason("ftruncate"));
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return fail(Errc::kSystem, reason("fcntl(F_ADD_SEALS)"));
  Result<Mapping> mapping = map(fd.get(), 0, bytes, MAP_POPULATE);
  if (!mapping)
    return tl::unexpected(mapping.error());
  return SharedMemory{std::move(fd), std::move(*mapping)};
}

Result<Mapping> map_peer(int fd, uint64_t offset, size_t length) {
  Result<struct stat> st = check_file(fd, offset, length);
  if (!st)
    return tl::unexpected(st.error());
  // Page tables are filled at once, unless that would take long or make the kernel find memory for
  // holes in a peer's file.
  constexpr uint64_t kStatBlock = 512;
  constexpr size_t kMostAtOnce = size_t{1} << 30;
  const bool whole =
      static_cast<uint64_t>(st->st_blocks) * kStatBlock >= static_cast<uint64_t>(st->st_size);
  return map(fd, offset, length, whole && length <= kMostAtOnce ? MAP_POPULATE : 0);
}

Result<std::shared_ptr<Mapping>> MappingCache::map(int fd, uint64_t offset, size_t length) {
  // While a mapping lives its inode number is taken, so equal numbers are the same file.
  Result<struct stat> st = check_file(fd, offset, length);
  if (!st)
    return tl::unexpected(st.error());
  const Key key{st->st_dev, st->st_ino, offset, length};
  const std::lock_guard lock(mutex_);
  if (auto cached = mappings_.find(key); cached != mappings_.end()) {
    if (std::shared_ptr<Mapping> present = cached->second.lock())
      return present;
    // Its last user is just letting go of it: forget() waits for the lock.
  }
  if (mappings_.size() >= kMaxMappings || length > kMaxBytes - bytes_)
    return fail(Errc::kLimit, "peers have had too much memory mapped here");
  Result<Mapping> fresh = map_peer(fd, offset, length);
  if (!fresh)
    return tl::unexpected(fresh.error());
  std::shared_ptr<Mapping> shared(new Mapping(std::move(*fresh)), [this, key](Mapping* mapping) {
    delete mapping;
    forget(key);
  });
  bytes_ += length;
  mappings_[key] = shared;
  return shared;
}

void MappingCache::forget(const Key& key) {
  const std::lock_guard lock(mutex_);
  bytes_ -= std::get<3>(key);
  if (auto entry = mappings_.find(key); entry != mappings_.end() && entry->second.expired())
    mappings_.erase(entry);
}

}  // namespace rrdk::shm
