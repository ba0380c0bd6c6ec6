// The procedures that change nothing, except listings.
#include <algorithm>

#include "nfs_handlers.h"
#include "nfs_program.h"

namespace rrdk::interop {
namespace {

constexpr uint32_t kOwner = 6, kGroup = 3, kOther = 0;  // shifts in a mode
constexpr uint32_t kMayRead = 4, kMayWrite = 2, kMayExecute = 1;

// The access that a mode grants to the caller: kMayRead and so on.
uint32_t granted(const Node& node, const Caller& caller) {
  if (caller.uid() == 0) {
    bool any = node.type == FileType::kDirectory || (node.mode & 0111) != 0;
    return kMayRead | kMayWrite | (any ? kMayExecute : 0);
  }
  uint32_t shift = kOther;
  if (caller.uid() == node.uid)
    shift = kOwner;
  else if (caller.in_group(node.gid))
    shift = kGroup;
  return node.mode >> shift & 7;
}

uint32_t allowed(const Node& node, const Caller& caller) {
  uint32_t may = granted(node, caller);
  bool folder = node.type == FileType::kDirectory;
  uint32_t bits = 0;
  if ((may & kMayRead) != 0)
    bits |= nfs3::access::kRead;
  if ((may & kMayWrite) != 0)
    bits |= nfs3::access::kModify | nfs3::access::kExtend | (folder ? nfs3::access::kDelete : 0);
  if ((may & kMayExecute) != 0)
    bits |= folder ? nfs3::access::kLookup : nfs3::access::kExecute;
  return bits;
}

// The file system's own procedures have one argument, any handle in it.
struct OneHandle {
  Node* node = nullptr;
  Status status = Status::kOk;
  bool decoded;

  OneHandle(ServerCall& call, Tree& tree) {
    FileHandle handle = nfs3::get_handle(call.args());
    decoded = call.args().at_end();
    if (decoded)
      status = tree.find(handle, node);
  }
};

}  // namespace

void getattr(ServerCall call, void* context) {
  Tree& tree = tree_of(context);
  OneHandle of(call, tree);
  if (!of.decoded)
    return garbage(std::move(call));
  call.results().put_u32(static_cast<uint32_t>(of.status));
  if (of.node != nullptr)
    put_attributes(call.results(), tree, *of.node);
  std::move(call).reply();
}

void lookup(ServerCall call, void* context) {
  Tree& tree = tree_of(context);
  Place place;
  place.get(call.args());
  if (!call.args().at_end())
    return garbage(std::move(call));
  Status status;
  Node* node = nullptr;
  Node* folder = place.find(tree, status);
  if (folder != nullptr)
    status = tree.look_up(*folder, place.name, node);
  if (status != Status::kOk)
    return answer(std::move(call), tree, status, folder);
  Encoder& results = call.results();
  results.put_u32(static_cast<uint32_t>(Status::kOk));
  put_handle(results, tree, *node);
  put_optional_attributes(results, tree, node);
  put_optional_attributes(results, tree, folder);
  std::move(call).reply();
}

void access(ServerCall call, void* context) {
  Tree& tree = tree_of(context);
  FileHandle handle = nfs3::get_handle(call.args());
  uint32_t asked = call.args().get_u32();
  if (!call.args().at_end())
    return garbage(std::move(call));
  Node* node = nullptr;
  if (Status status = tree.find(handle, node); status != Status::kOk)
    return answer(std::move(call), tree, status, nullptr);
  call.results().put_u32(static_cast<uint32_t>(Status::kOk));
  put_optional_attributes(call.results(), tree, node);
  call.results().put_u32(asked & allowed(*node, Caller(call)));
  std::move(call).reply();
}

void readlink(ServerCall call, void* context) {
  Tree& tree = tree_of(context);
  OneHandle of(call, tree);
  if (!of.decoded)
    return garbage(std::move(call));
  if (of.node != nullptr && of.node->type != FileType::kLink)
    of.status = Status::kInval;
  if (of.status != Status::kOk)
    return answer(std::move(call), tree, of.status, of.node);
  auto length = static_cast<uint32_t>(of.node->target.size());
  Buffer path = call.memory().get(std::max(length, 1u));
  if (!path)
    return answer(std::move(call), tree, Status::kJukebox, of.node);
  std::ranges::copy(std::as_bytes(std::span(of.node->target)), path.data());
  call.results().put_u32(static_cast<uint32_t>(Status::kOk));
  put_optional_attributes(call.results(), tree, of.node);
  call.results().put_item(std::move(path), length, Ddp::kEligible);
  std::move(call).reply();
}

void read(ServerCall call, void* context) {
  Tree& tree = tree_of(context);
  FileHandle handle = nfs3::get_handle(call.args());
  uint64_t offset = call.args().get_u64();
  uint32_t count = std::min(call.args().get_u32(), kMostData);
  if (!call.args().at_end())
    return garbage(std::move(call));
  Node* node = nullptr;
  Status status = tree.find(handle, node);
  if (node != nullptr && node->type != FileType::kRegular)
    status = Status::kInval;
  else if (status == Status::kOk && tree.puts_off())
    status = Status::kJukebox;
  if (status != Status::kOk)
    return answer(std::move(call), tree, status, node);
  uint64_t left = offset < node->data.size() ? node->data.size() - offset : 0;
  auto length = static_cast<uint32_t>(std::min<uint64_t>(count, left));
  Buffer data = call.memory().get(std::max(length, 1u));
  if (!data)
    return answer(std::move(call), tree, Status::kJukebox, node);
  node->data.read(offset, {data.data(), length});
  node->accessed = Tree::now();
  Encoder& results = call.results();
  results.put_u32(static_cast<uint32_t>(Status::kOk));
  put_optional_attributes(results, tree, node);
  results.put_u32(length);
  results.put_bool(length == left);
  results.put_item(std::move(data), length, Ddp::kEligible);
  std::move(call).reply();
}

void fsstat(ServerCall call, void* context) {
  Tree& tree = tree_of(context);
  OneHandle of(call, tree);
  if (!of.decoded)
    return garbage(std::move(call));
  if (of.status != Status::kOk)
    return answer(std::move(call), tree, of.status, nullptr);
  Encoder& results = call.results();
  results.put_u32(static_cast<uint32_t>(Status::kOk));
  put_optional_attributes(results, tree, of.node);
  uint64_t free = tree.limits().bytes - tree.bytes_used();
  for (uint64_t bytes : {tree.limits().bytes, free, free})
    results.put_u64(bytes);
  uint64_t names = tree.limits().names - tree.names_used();
  for (uint64_t files : {tree.limits().names, names, names})
    results.put_u64(files);
  results.put_u32(0);  // invarsec: it changes all the time
  std::move(call).reply();
}

void fsinfo(ServerCall call, void* context) {
  Tree& tree = tree_of(context);
  OneHandle of(call, tree);
  if (!of.decoded)
    return garbage(std::move(call));
  if (of.status != Status::kOk)
    return answer(std::move(call), tree, of.status, nullptr);
  Encoder& results = call.results();
  results.put_u32(static_cast<uint32_t>(Status::kOk));
  put_optional_attributes(results, tree, of.node);
  for (uint32_t size : {kMostData, kMostData, FileData::kBlock})  // rtmax, rtpref, rtmult
    results.put_u32(size);
  for (uint32_t size : {kMostData, kMostData, FileData::kBlock})  // wtmax, wtpref, wtmult
    results.put_u32(size);
  results.put_u32(kMostListing);  // dtpref
  results.put_u64(tree.limits().largest_file);
  results.put_u32(0);  // time_delta: one nanosecond
  results.put_u32(1);
  // FSF3_LINK, FSF3_SYMLINK, FSF3_HOMOGENEOUS, FSF3_CANSETTIME
  results.put_u32(0x01 | 0x02 | 0x08 | 0x10);
  std::move(call).reply();
}

void pathconf(ServerCall call, void* context) {
  Tree& tree = tree_of(context);
  OneHandle of(call, tree);
  if (!of.decoded)
    return garbage(std::move(call));
  if (of.status != Status::kOk)
    return answer(std::move(call), tree, of.status, nullptr);
  Encoder& results = call.results();
  results.put_u32(static_cast<uint32_t>(Status::kOk));
  put_optional_attributes(results, tree, of.node);
  results.put_u32(TreeLimits::kLinks);
  results.put_u32(TreeLimits::kName);
  results.put_bool(true);   // no_trunc
  results.put_bool(false);  // chown_restricted
  results.put_bool(false);  // case_insensitive
  results.put_bool(true);   // case_preserving
  std::move(call).reply();
}

}  // namespace rrdk::interop
