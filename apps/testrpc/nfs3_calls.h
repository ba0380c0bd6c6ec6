// Blocking NFSv3 calls, by which the engine nfs3 creates its files and folders and removes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "nfs3_protocol.h"
#include "rrdk/client.h"
#include "rrdk/error.h"

namespace rrdk::testrpc {

struct Nfs3Object {
  nfs3::FileHandle handle;
  std::optional<uint64_t> file_id;
};

// FSINFO's limits: bytes of one READ and one WRITE.
struct Nfs3Limits {
  uint32_t read;
  uint32_t write;
};

// Errors name the procedure, the object and the reason: an NFS3ERR_ name, or how the call ended.
class Nfs3Calls {
 public:
  // `timeout_ms` applies to each call.
  Nfs3Calls(ClientConnection& connection, Memory& memory, uint32_t timeout_ms)
      : memory_(memory), call_(connection), timeout_ms_(timeout_ms) {}

  Result<Nfs3Limits> limits(const nfs3::FileHandle& root);
  Result<Nfs3Object> make_folder(const nfs3::FileHandle& folder, std::string_view name);
  Result<Nfs3Object> make_file(const nfs3::FileHandle& folder, std::string_view name);
  Result<Nfs3Object> make_link(const nfs3::FileHandle& folder, std::string_view name,
                               std::string_view target);
  Result<void> remove_file(const nfs3::FileHandle& folder, std::string_view name);
  Result<void> remove_folder(const nfs3::FileHandle& folder, std::string_view name);
  // Writes `data`, in calls of at most `most` bytes.
  Result<void> write(const nfs3::FileHandle& file, uint64_t offset, MemorySpan data, uint32_t most);

 private:
  Encoder& begin(uint32_t procedure);
  // Makes the call and reads the status; returns an error unless it is NFS3_OK.
  Result<void> finish(uint32_t procedure, std::string_view object);
  Result<void> not_decoded(uint32_t procedure, std::string_view object);
  Result<Nfs3Object> finish_new(uint32_t procedure, const nfs3::FileHandle& folder,
                                std::string_view name);
  Result<Nfs3Object> look_up(const nfs3::FileHandle& folder, std::string_view name);
  Result<void> remove(uint32_t procedure, const nfs3::FileHandle& folder, std::string_view name);

  Memory& memory_;
  Call call_;
  uint32_t timeout_ms_;
};

}  // namespace rrdk::testrpc
