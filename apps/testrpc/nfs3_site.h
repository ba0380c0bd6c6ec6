// What the engine nfs3 works on at an NFS server: its own folder with a file for each slot, a
// symbolic link, and a folder of many names. Created before the runs, and removed after them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nfs3_calls.h"
#include "nfs3_mount.h"
#include "options.h"
#include "rrdk/error.h"
#include "session.h"

namespace rrdk::testrpc {

class Nfs3Site {
 public:
  // Mounts the export that `options` name, and creates `slots` files. If they will be read and
  // never written, they get `file_size` bytes of the pattern of offset zero, at most `max_size` in
  // one call.
  static Result<std::unique_ptr<Nfs3Site>> create(Session& session, const Options& options,
                                                  const std::string& uri, uint32_t slots,
                                                  uint32_t file_size, uint32_t max_size);
  ~Nfs3Site();
  Nfs3Site(const Nfs3Site&) = delete;
  Nfs3Site& operator=(const Nfs3Site&) = delete;

  // Removes everything that was created. The error says what is left behind, and why.
  Result<void> clear();

  struct Name {
    std::string name;
    std::optional<uint64_t> file_id;
  };
  const Nfs3Limits& limits() const { return limits_; }
  uint32_t calls() const { return calls_; }
  const nfs3::FileHandle& file(size_t slot) const { return files_[slot]; }
  // The initial size of each file in bytes.
  uint32_t filled() const { return filled_; }
  const nfs3::FileHandle& link() const { return link_; }
  const std::string& link_target() const { return link_target_; }
  const nfs3::FileHandle& names_folder() const { return names_folder_; }
  const std::vector<Name>& names() const { return names_; }

 private:
  Nfs3Site(Session& session, const Options& options, nfs3::MountTarget target);
  Result<void> make(uint32_t slots, uint32_t file_size, uint32_t max_size, uint64_t seed,
                    uint32_t names);
  Result<void> make_files(uint32_t slots, uint32_t file_size, uint32_t max_size);
  Result<void> make_names(uint64_t seed, uint32_t count);

  Session& session_;
  nfs3::MountTarget target_;
  uint32_t calls_;
  Nfs3Calls nfs_;
  Nfs3Limits limits_ = {};
  nfs3::FileHandle root_;
  std::string folder_name_;
  nfs3::FileHandle folder_;
  std::vector<nfs3::FileHandle> files_;
  uint32_t filled_ = 0;
  std::string link_target_;
  nfs3::FileHandle link_;
  nfs3::FileHandle names_folder_;
  std::vector<Name> names_;
};

// Returns where the MOUNT service is, from `given` ("HOST", "PORT" or "HOST:PORT", IPv6 in
// brackets). The default host is that of `uri`, or else this machine.
Result<nfs3::MountTarget> mount_target(const std::string& given, const std::string& uri);

}  // namespace rrdk::testrpc
