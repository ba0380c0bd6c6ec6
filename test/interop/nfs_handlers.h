// Shared by the handlers of NFSv3's procedures.
#pragma once

#include <array>
#include <string_view>

#include "nfs_encode.h"
#include "rrdk/server.h"
#include "tree.h"

namespace rrdk::interop {

inline Tree& tree_of(void* context) {
  return *static_cast<Tree*>(context);
}

inline void garbage(ServerCall call) {
  std::move(call).reject(AcceptStat::kGarbageArgs);
}

// Space for a name that is as long as a call may have it: too long names are NFS3ERR_NAMETOOLONG,
// but only those that fit here are distinguished.
using NameRoom = std::array<char, 4096>;

// diropargs3: a folder's handle, and a name in it.
struct Place {
  FileHandle folder_handle;
  NameRoom room;
  std::string_view name;

  void get(Decoder& from) {
    folder_handle = nfs3::get_handle(from);
    name = get_text(from, room);
  }
  // Returns the folder, or null, and then the status says why.
  Node* find(Tree& tree, Status& status) const {
    Node* folder = nullptr;
    status = tree.find(folder_handle, folder);
    return folder;
  }
};

// The caller according to AUTH_SYS, as far as a tree needs it. Callers with other credentials have
// no identity.
struct Caller {
  explicit Caller(const ServerCall& call) : identity(call.auth_sys()) {}
  uint32_t uid() const { return identity ? identity->uid : kNobody; }
  uint32_t gid() const { return identity ? identity->gid : kNobody; }
  bool in_group(uint32_t gid) const;

  static constexpr uint32_t kNobody = 65534;
  std::optional<AuthSys> identity;
};

// Answers with a status and an error's arm: a post_op_attr, or wcc_data.
void answer(ServerCall call, Tree& tree, Status status, const Node* node);
void answer(ServerCall call, Tree& tree, Status status, const Change& change, const Node* node);

// Read-only procedures (nfs_queries.cc, nfs_listings.cc).
void getattr(ServerCall call, void* context);
void lookup(ServerCall call, void* context);
void access(ServerCall call, void* context);
void readlink(ServerCall call, void* context);
void read(ServerCall call, void* context);
void readdir(ServerCall call, void* context);
void readdirplus(ServerCall call, void* context);
void fsstat(ServerCall call, void* context);
void fsinfo(ServerCall call, void* context);
void pathconf(ServerCall call, void* context);
// Procedures that change something (nfs_changes.cc).
void setattr(ServerCall call, void* context);
void write(ServerCall call, void* context);
void create(ServerCall call, void* context);
void mkdir(ServerCall call, void* context);
void symlink(ServerCall call, void* context);
void mknod(ServerCall call, void* context);
void remove(ServerCall call, void* context);
void rmdir(ServerCall call, void* context);
void rename(ServerCall call, void* context);
void link(ServerCall call, void* context);
void commit(ServerCall call, void* context);

}  // namespace rrdk::interop
