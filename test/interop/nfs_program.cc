#include "nfs_program.h"

#include "nfs_handlers.h"
#include "rrdk/nfs3.h"

namespace rrdk::interop {
namespace {

// A repeated CREATE would find its own file, and a repeated REMOVE would find nothing: they are
// answered from the duplicate request cache. A guarded SETATTR would find its own change.
constexpr Procedure kTable[] = {
    {.number = nfs3::kGetattr, .handler = getattr},
    {.number = nfs3::kSetattr, .handler = setattr, .idempotent = false},
    {.number = nfs3::kLookup, .handler = lookup},
    {.number = nfs3::kAccess, .handler = access},
    {.number = nfs3::kReadlink, .handler = readlink},
    {.number = nfs3::kRead, .handler = read},
    {.number = nfs3::kWrite, .handler = write},
    {.number = nfs3::kCreate, .handler = create, .idempotent = false},
    {.number = nfs3::kMkdir, .handler = mkdir, .idempotent = false},
    {.number = nfs3::kSymlink, .handler = symlink, .idempotent = false},
    {.number = nfs3::kMknod, .handler = mknod},
    {.number = nfs3::kRemove, .handler = remove, .idempotent = false},
    {.number = nfs3::kRmdir, .handler = rmdir, .idempotent = false},
    {.number = nfs3::kRename, .handler = rename, .idempotent = false},
    {.number = nfs3::kLink, .handler = link, .idempotent = false},
    {.number = nfs3::kReaddir, .handler = readdir},
    {.number = nfs3::kReaddirplus, .handler = readdirplus},
    {.number = nfs3::kFsstat, .handler = fsstat},
    {.number = nfs3::kFsinfo, .handler = fsinfo},
    {.number = nfs3::kPathconf, .handler = pathconf},
    {.number = nfs3::kCommit, .handler = commit},
};

}  // namespace

bool Caller::in_group(uint32_t gid) const {
  if (!identity)
    return gid == kNobody;
  if (identity->gid == gid)
    return true;
  for (uint32_t other : identity->gids()) {
    if (other == gid)
      return true;
  }
  return false;
}

void answer(ServerCall call, Tree& tree, Status status, const Node* node) {
  call.results().put_u32(static_cast<uint32_t>(status));
  put_optional_attributes(call.results(), tree, node);
  std::move(call).reply();
}

void answer(ServerCall call, Tree& tree, Status status, const Change& change, const Node* node) {
  call.results().put_u32(static_cast<uint32_t>(status));
  change.put(call.results(), tree, node);
  std::move(call).reply();
}

Service nfs_service(Tree& tree) {
  return {.binding = &nfs3::kBinding, .procedures = kTable, .context = &tree};
}

}  // namespace rrdk::interop
