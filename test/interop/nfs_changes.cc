// The procedures that change something. Replies include the attributes of their nodes before and
// after (weak cache consistency, RFC 1813 section 2.6).
#include <cstring>

#include "nfs_handlers.h"
#include "nfs_program.h"

namespace rrdk::interop {
namespace {

// New objects belong to the caller that makes them, unless the call says otherwise.
void own(NewAttributes& attributes, const ServerCall& call) {
  Caller caller(call);
  attributes.uid = attributes.uid.value_or(caller.uid());
  attributes.gid = attributes.gid.value_or(caller.gid());
}

// The reply to a procedure that makes an object: CREATE, MKDIR, SYMLINK.
void answer_new(ServerCall call, Tree& tree, Status status, const Node* node, const Change& change,
                const Node* folder) {
  if (status != Status::kOk)
    return answer(std::move(call), tree, status, change, folder);
  Encoder& results = call.results();
  results.put_u32(static_cast<uint32_t>(Status::kOk));
  put_optional_handle(results, tree, *node);
  put_optional_attributes(results, tree, node);
  change.put(results, tree, folder);
  std::move(call).reply();
}

void make(ServerCall call, Tree& tree, const Place& place, FileType type, NewAttributes attributes,
          std::string_view target) {
  Status status;
  Node* folder = place.find(tree, status);
  Change change(folder);
  Node* node = nullptr;
  own(attributes, call);
  if (folder != nullptr)
    status = tree.make(*folder, place.name, type, attributes, target, node);
  answer_new(std::move(call), tree, status, node, change, folder);
}

struct CreateHow {
  nfs3::CreateMode mode;
  NewAttributes attributes;
  uint64_t verifier = 0;

  void get(Decoder& args) {
    mode = static_cast<nfs3::CreateMode>(args.get_u32());
    if (mode == nfs3::CreateMode::kExclusive)
      verifier = args.get_u64();
    else if (mode == nfs3::CreateMode::kUnchecked || mode == nfs3::CreateMode::kGuarded)
      attributes = get_new_attributes(args);
    else
      args.fail();
  }
};

// What CREATE does if the name exists already (RFC 1813 section 3.3.8).
Status create_over(Tree& tree, Node& node, const CreateHow& how) {
  if (node.type != FileType::kRegular)
    return Status::kExist;
  if (how.mode == nfs3::CreateMode::kExclusive)
    return node.create_verifier == how.verifier ? Status::kOk : Status::kExist;
  if (how.mode == nfs3::CreateMode::kGuarded)
    return Status::kExist;
  NewAttributes size;
  size.size = how.attributes.size;
  return size.size ? tree.set_attributes(node, size) : Status::kOk;
}

// REMOVE and RMDIR.
void take_away(ServerCall call, Tree& tree, Status (Tree::*remove)(Node&, std::string_view)) {
  Place place;
  place.get(call.args());
  if (!call.args().at_end())
    return garbage(std::move(call));
  Status status;
  Node* folder = place.find(tree, status);
  Change change(folder);
  if (folder != nullptr)
    status = (tree.*remove)(*folder, place.name);
  answer(std::move(call), tree, status, change, folder);
}

}  // namespace

void setattr(ServerCall call, void* context) {
  Tree& tree = tree_of(context);
  FileHandle handle = nfs3::get_handle(call.args());
  NewAttributes attributes = get_new_attributes(call.args());
  std::optional<Time> guard;
  if (call.args().get_bool())
    guard = get_time(call.args());
  if (!call.args().at_end())
    return garbage(std::move(call));
  Node* node = nullptr;
  Status status = tree.find(handle, node);
  Change change(node);
  if (node != nullptr)
    status = guard && *guard != node->changed ? Status::kNotSync
                                              : tree.set_attributes(*node, attributes);
  answer(std::move(call), tree, status, change, node);
}

void write(ServerCall call, void* context) {
  Tree& tree = tree_of(context);
  Decoder& args = call.args();
  FileHandle handle = nfs3::get_handle(args);
  uint64_t offset = args.get_u64();
  uint32_t count = args.get_u32();
  uint32_t stable = args.get_u32();
  ItemView data = args.get_item(UINT32_MAX);
  if (!args.at_end() || stable > static_cast<uint32_t>(nfs3::Stable::kFileSync))
    return garbage(std::move(call));
  Node* node = nullptr;
  Status status = tree.find(handle, node);
  Change change(node);
  if (node != nullptr)
    status = count == data.size() ? tree.check_write(*node, offset, count) : Status::kInval;
  if (status != Status::kOk)
    return answer(std::move(call), tree, status, change, node);
  data.for_each([&](const std::byte* bytes, size_t length) {
    tree.write(*node, offset, {bytes, length});
    offset += length;
  });
  call.results().put_u32(static_cast<uint32_t>(Status::kOk));
  change.put(call.results(), tree, node);
  call.results().put_u32(count);
  // This memory is as stable as it gets, but the reply only claims the stability that was asked
  // for, so that clients COMMIT.
  call.results().put_u32(stable);
  call.results().put_u64(tree.instance());
  std::move(call).reply();
}

void commit(ServerCall call, void* context) {
  Tree& tree = tree_of(context);
  FileHandle handle = nfs3::get_handle(call.args());
  call.args().get_u64();  // offset
  call.args().get_u32();  // count
  if (!call.args().at_end())
    return garbage(std::move(call));
  Node* node = nullptr;
  Status status = tree.find(handle, node);
  call.results().put_u32(static_cast<uint32_t>(status));
  Change(node).put(call.results(), tree, node);
  if (status == Status::kOk)
    call.results().put_u64(tree.instance());
  std::move(call).reply();
}

void create(ServerCall call, void* context) {
  Tree& tree = tree_of(context);
  Place place;
  place.get(call.args());
  CreateHow how;
  how.get(call.args());
  if (!call.args().at_end())
    return garbage(std::move(call));
  Status status;
  Node* folder = place.find(tree, status);
  Change change(folder);
  Node* node = nullptr;
  own(how.attributes, call);
  if (folder != nullptr) {
    status = tree.make(*folder, place.name, FileType::kRegular, how.attributes, {}, node);
    if (status == Status::kOk && how.mode == nfs3::CreateMode::kExclusive)
      node->create_verifier = how.verifier;
    else if (status == Status::kExist)
      status = create_over(tree, *node, how);
  }
  answer_new(std::move(call), tree, status, node, change, folder);
}

void mkdir(ServerCall call, void* context) {
  Place place;
  place.get(call.args());
  NewAttributes attributes = get_new_attributes(call.args());
  if (!call.args().at_end())
    return garbage(std::move(call));
  attributes.size.reset();  // the size of a folder is its own
  make(std::move(call), tree_of(context), place, FileType::kDirectory, attributes, {});
}

void symlink(ServerCall call, void* context) {
  Place place;
  place.get(call.args());
  NewAttributes attributes = get_new_attributes(call.args());
  ItemView path = call.args().get_item(UINT32_MAX);
  if (!call.args().at_end())
    return garbage(std::move(call));
  attributes.size.reset();
  // One byte more than the limit shows the tree that it is exceeded.
  path = path.first(std::min(path.size(), TreeLimits::kTarget + 1));
  std::string target(path.size(), '\0');
  path.copy_to(reinterpret_cast<std::byte*>(target.data()));
  make(std::move(call), tree_of(context), place, FileType::kLink, attributes, target);
}

// There is no use for devices here, and RFC 1813 lets a server say so.
void mknod(ServerCall call, void* context) {
  Tree& tree = tree_of(context);
  Place place;
  place.get(call.args());
  auto type = static_cast<FileType>(call.args().get_u32());
  bool device = type == FileType::kBlock || type == FileType::kCharacter;
  bool known = device || type == FileType::kSocket || type == FileType::kFifo;
  if (known)
    get_new_attributes(call.args());
  if (device)
    call.args().get_u64();
  if (!call.args().at_end())
    return garbage(std::move(call));
  Status status;
  Node* folder = place.find(tree, status);
  if (folder != nullptr)
    status = known ? Status::kNotSupp : Status::kBadType;
  answer(std::move(call), tree, status, Change(folder), folder);
}

void remove(ServerCall call, void* context) {
  take_away(std::move(call), tree_of(context), &Tree::remove);
}

void rmdir(ServerCall call, void* context) {
  take_away(std::move(call), tree_of(context), &Tree::remove_folder);
}

void rename(ServerCall call, void* context) {
  Tree& tree = tree_of(context);
  Place from, to;
  from.get(call.args());
  to.get(call.args());
  if (!call.args().at_end())
    return garbage(std::move(call));
  Status status;
  Node* from_folder = from.find(tree, status);
  Node* to_folder = status == Status::kOk ? to.find(tree, status) : nullptr;
  Change from_change(from_folder), to_change(to_folder);
  if (to_folder != nullptr)
    status = tree.rename(*from_folder, from.name, *to_folder, to.name);
  call.results().put_u32(static_cast<uint32_t>(status));
  from_change.put(call.results(), tree, from_folder);
  to_change.put(call.results(), tree, to_folder);
  std::move(call).reply();
}

void link(ServerCall call, void* context) {
  Tree& tree = tree_of(context);
  FileHandle handle = nfs3::get_handle(call.args());
  Place place;
  place.get(call.args());
  if (!call.args().at_end())
    return garbage(std::move(call));
  Node* file = nullptr;
  Node* folder = nullptr;
  Status status = tree.find(handle, file);
  if (status == Status::kOk)
    folder = place.find(tree, status);
  Change change(folder);
  if (folder != nullptr)
    status = tree.link(*file, *folder, place.name);
  call.results().put_u32(static_cast<uint32_t>(status));
  put_optional_attributes(call.results(), tree, file);
  change.put(call.results(), tree, folder);
  std::move(call).reply();
}

}  // namespace rrdk::interop
