// NFS version 3 (RFC 1813): what a client and a server need besides the binding.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "rrdk/xdr.h"

namespace rrdk::nfs3 {

constexpr uint32_t kMaxHandle = 64;  // NFS3_FHSIZE, bytes

// nfs_fh3: opaque to clients.
class FileHandle {
 public:
  FileHandle() = default;
  // `bytes` are at most kMaxHandle.
  explicit FileHandle(std::span<const std::byte> bytes)
      : length_(static_cast<uint32_t>(bytes.size())) {
    std::ranges::copy(bytes, bytes_.begin());
  }

  std::span<const std::byte> bytes() const { return std::span(bytes_).first(length_); }
  bool operator==(const FileHandle& other) const {
    return std::ranges::equal(bytes(), other.bytes());
  }

 private:
  std::array<std::byte, kMaxHandle> bytes_ = {};
  uint32_t length_ = 0;
};

// Reads nfs_fh3; the decoder fails if it is too long.
inline FileHandle get_handle(Decoder& from) {
  std::array<std::byte, kMaxHandle> room;
  ItemView bytes = from.get_opaque(kMaxHandle);
  bytes.copy_to(room.data());
  return FileHandle(std::span(room).first(bytes.size()));
}

// nfsstat3, RFC 1813 section 2.6.
enum class Status : uint32_t {
  kOk = 0,
  kPerm = 1,
  kNoEnt = 2,
  kIo = 5,
  kNxIo = 6,
  kAcces = 13,
  kExist = 17,
  kXDev = 18,
  kNoDev = 19,
  kNotDir = 20,
  kIsDir = 21,
  kInval = 22,
  kFBig = 27,
  kNoSpc = 28,
  kRoFs = 30,
  kMLink = 31,
  kNameTooLong = 63,
  kNotEmpty = 66,
  kDQuot = 69,
  kStale = 70,
  kRemote = 71,
  kBadHandle = 10001,
  kNotSync = 10002,
  kBadCookie = 10003,
  kNotSupp = 10004,
  kTooSmall = 10005,
  kServerFault = 10006,
  kBadType = 10007,
  kJukebox = 10008,
};

// Returns a name such as "NFS3ERR_NOENT"; "an unknown NFS status" for values outside RFC 1813.
const char* to_string(Status status) noexcept;

// ftype3, section 2.6.
enum class FileType : uint32_t {
  kRegular = 1,
  kDirectory = 2,
  kBlock = 3,
  kCharacter = 4,
  kLink = 5,
  kSocket = 6,
  kFifo = 7,
};

// stable_how, section 3.3.7.
enum class Stable : uint32_t { kUnstable = 0, kDataSync = 1, kFileSync = 2 };

// createmode3, section 3.3.8.
enum class CreateMode : uint32_t { kUnchecked = 0, kGuarded = 1, kExclusive = 2 };

// time_how, section 2.6: how SETATTR's times are given.
enum class TimeHow : uint32_t { kKeep = 0, kServer = 1, kClient = 2 };

// ACCESS's bits, section 3.3.4.
namespace access {
constexpr uint32_t kRead = 0x01;
constexpr uint32_t kLookup = 0x02;
constexpr uint32_t kModify = 0x04;
constexpr uint32_t kExtend = 0x08;
constexpr uint32_t kDelete = 0x10;
constexpr uint32_t kExecute = 0x20;
}  // namespace access

}  // namespace rrdk::nfs3
