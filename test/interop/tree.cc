#include "tree.h"

#include <array>
#include <cstring>
#include <ctime>
#include <utility>

namespace rrdk::interop {
namespace {

// A handle: the file system's identity, the instance, and the node's number, which is never given
// again.
constexpr uint64_t kMagic = 0x7272646b6e667333;
constexpr size_t kHandleBytes = 3 * sizeof(uint64_t);

uint64_t in_blocks(uint64_t bytes) {
  return (bytes + FileData::kBlock - 1) / FileData::kBlock * FileData::kBlock;
}

bool is_dots(std::string_view name) {
  return name == "." || name == "..";
}

}  // namespace

uint64_t Node::size() const {
  switch (type) {
    case FileType::kRegular:
      return data.size();
    case FileType::kLink:
      return target.size();
    default:
      return FileData::kBlock;
  }
}

uint64_t Node::used() const {
  return data.blocks() * FileData::kBlock + in_blocks(target.size());
}

Tree::Tree(const TreeLimits& limits, uint64_t instance, uint64_t file_system)
    : limits_(limits), instance_(instance), file_system_(file_system) {
  auto node = std::make_unique<Node>();
  root_ = node.get();
  root_->id = next_id_++;
  root_->type = FileType::kDirectory;
  root_->mode = 0777;
  root_->links = 2;
  root_->folder = std::make_unique<Folder>();
  root_->folder->parent = root_;
  root_->accessed = root_->modified = root_->changed = now();
  nodes_.emplace(root_->id, std::move(node));
}

Time Tree::now() {
  timespec time = {};
  clock_gettime(CLOCK_REALTIME, &time);
  return {static_cast<uint32_t>(time.tv_sec), static_cast<uint32_t>(time.tv_nsec)};
}

void Tree::touch(Node& node) {
  node.modified = node.changed = now();
}

FileHandle Tree::handle_of(const Node& node) const {
  const uint64_t words[] = {kMagic, &node == root_ ? file_system_ : instance_, node.id};
  return FileHandle(std::as_bytes(std::span(words)));
}

Status Tree::find(const FileHandle& handle, Node*& found) {
  uint64_t words[3];
  if (handle.bytes().size() != kHandleBytes)
    return Status::kBadHandle;
  std::memcpy(words, handle.bytes().data(), kHandleBytes);
  if (words[0] != kMagic)
    return Status::kBadHandle;
  if (words[1] != (words[2] == root_->id ? file_system_ : instance_))
    return Status::kStale;
  auto it = nodes_.find(words[2]);
  if (it == nodes_.end())
    return words[2] != 0 && words[2] < next_id_ ? Status::kStale : Status::kBadHandle;
  found = it->second.get();
  return Status::kOk;
}

Status Tree::check_name(std::string_view name) const {
  if (name.size() > TreeLimits::kName)
    return Status::kNameTooLong;
  // The one that fits among the errors that RFC 1813 lists for every procedure with a name.
  if (name.empty() || name.find('/') != name.npos || name.find('\0') != name.npos)
    return Status::kAcces;
  return Status::kOk;
}

Status Tree::look_up(Node& folder, std::string_view name, Node*& found) {
  if (folder.type != FileType::kDirectory)
    return Status::kNotDir;
  if (Status status = check_name(name); status != Status::kOk)
    return status;
  if (is_dots(name)) {
    found = name == "." ? &folder : folder.folder->parent;
    return Status::kOk;
  }
  auto it = folder.folder->cookies.find(std::string(name));
  if (it == folder.folder->cookies.end())
    return Status::kNoEnt;
  found = folder.folder->by_cookie.at(it->second).node;
  return Status::kOk;
}

// Whether `name` can be made in `folder`.
Status Tree::check_new(Node& folder, std::string_view name, Node*& there) {
  Status status = look_up(folder, name, there);
  if (status == Status::kOk)
    return Status::kExist;
  if (status != Status::kNoEnt)
    return status;
  return names_used_ < limits_.names ? Status::kOk : Status::kNoSpc;
}

Status Tree::make(Node& folder, std::string_view name, FileType type,
                  const NewAttributes& attributes, std::string_view target, Node*& node) {
  if (Status status = check_new(folder, name, node); status != Status::kOk)
    return status;
  if (target.size() > TreeLimits::kTarget)
    return Status::kNameTooLong;
  if (type == FileType::kLink && (target.empty() || target.find('\0') != target.npos))
    return Status::kAcces;
  if (in_blocks(target.size()) > limits_.bytes - bytes_used_)
    return Status::kNoSpc;
  if (attributes.size && *attributes.size > limits_.largest_file)
    return Status::kFBig;
  if (type == FileType::kDirectory && folder.links >= TreeLimits::kLinks)
    return Status::kMLink;
  auto made = std::make_unique<Node>();
  node = made.get();
  node->id = next_id_++;
  node->type = type;
  node->accessed = node->modified = node->changed = now();
  node->target = target;
  bytes_used_ += node->used();
  if (type == FileType::kDirectory) {
    node->links = 1;  // its "."
    node->folder = std::make_unique<Folder>();
    node->folder->parent = &folder;
    ++folder.links;
  }
  nodes_.emplace(node->id, std::move(made));
  add_entry(folder, name, *node);
  return set_attributes(*node, attributes);
}

void Tree::add_entry(Node& folder, std::string_view name, Node& node) {
  uint64_t cookie = folder.folder->next_cookie++;
  folder.folder->by_cookie.emplace(cookie, Folder::Entry{std::string(name), &node});
  folder.folder->cookies.emplace(name, cookie);
  ++node.links;
  ++names_used_;
  touch(folder);
}

void Tree::drop_entry(Node& folder, std::string_view name) {
  auto it = folder.folder->cookies.find(std::string(name));
  folder.folder->by_cookie.erase(it->second);
  folder.folder->cookies.erase(it);
  --names_used_;
  touch(folder);
}

// One name of the node is gone.
void Tree::unlink(Node& node) {
  node.changed = now();
  if (node.type == FileType::kDirectory) {
    --node.folder->parent->links;
    --node.links;
  }
  if (--node.links != 0)
    return;
  bytes_used_ -= node.used();
  nodes_.erase(node.id);
}

Status Tree::remove(Node& folder, std::string_view name) {
  Node* node = nullptr;
  if (Status status = look_up(folder, name, node); status != Status::kOk)
    return status;
  if (node->type == FileType::kDirectory)
    return Status::kIsDir;
  drop_entry(folder, name);
  unlink(*node);
  return Status::kOk;
}

Status Tree::remove_folder(Node& folder, std::string_view name) {
  Node* node = nullptr;
  if (Status status = look_up(folder, name, node); status != Status::kOk)
    return status;
  // RFC 1813 section 3.3.13 has an error for each of the two.
  if (is_dots(name))
    return name == "." ? Status::kInval : Status::kExist;
  if (node->type != FileType::kDirectory)
    return Status::kNotDir;
  if (!node->folder->by_cookie.empty())
    return Status::kNotEmpty;
  drop_entry(folder, name);
  unlink(*node);
  return Status::kOk;
}

bool Tree::is_inside(const Node& folder, const Node& ancestor) const {
  const Node* at = &folder;
  while (at != &ancestor && at != root_)
    at = at->folder->parent;
  return at == &ancestor;
}

// Whether `moved` may replace what has the new name already.
Status Tree::check_target(const Node& moved, const Node& there) const {
  bool folder = moved.type == FileType::kDirectory;
  if (folder != (there.type == FileType::kDirectory))
    return Status::kExist;
  if (folder && !there.folder->by_cookie.empty())
    return Status::kNotEmpty;
  return Status::kOk;
}

Status Tree::rename(Node& from, std::string_view old_name, Node& to, std::string_view new_name) {
  Node* moved = nullptr;
  Node* there = nullptr;
  if (Status status = look_up(from, old_name, moved); status != Status::kOk)
    return status;
  Status found = look_up(to, new_name, there);
  if (found != Status::kOk && found != Status::kNoEnt)
    return found;
  if (is_dots(old_name) || is_dots(new_name))
    return Status::kInval;
  // RFC 1813 section 3.3.14: two names of one file are left as they are.
  if (there == moved)
    return Status::kOk;
  bool folder = moved->type == FileType::kDirectory;
  if (folder && is_inside(to, *moved))
    return Status::kInval;
  if (there != nullptr) {
    if (Status status = check_target(*moved, *there); status != Status::kOk)
      return status;
    drop_entry(to, new_name);
    unlink(*there);
  } else if (folder && &from != &to && to.links >= TreeLimits::kLinks) {
    return Status::kMLink;
  }
  drop_entry(from, old_name);
  --moved->links;
  add_entry(to, new_name, *moved);
  moved->changed = now();
  if (folder) {
    --from.links;
    ++to.links;
    moved->folder->parent = &to;
  }
  return Status::kOk;
}

Status Tree::link(Node& file, Node& folder, std::string_view name) {
  Node* there = nullptr;
  if (file.type == FileType::kDirectory)
    return Status::kInval;
  if (Status status = check_new(folder, name, there); status != Status::kOk)
    return status;
  if (file.links >= TreeLimits::kLinks)
    return Status::kMLink;
  add_entry(folder, name, file);
  file.changed = now();
  return Status::kOk;
}

Status Tree::set_attributes(Node& node, const NewAttributes& attributes) {
  if (attributes.size) {
    if (node.type != FileType::kRegular)
      return Status::kInval;
    if (*attributes.size > limits_.largest_file)
      return Status::kFBig;
    uint64_t before = node.used();
    node.data.resize(*attributes.size);
    bytes_used_ -= before - node.used();
    node.modified = now();
  }
  node.mode = attributes.mode.value_or(node.mode) & 07777;
  node.uid = attributes.uid.value_or(node.uid);
  node.gid = attributes.gid.value_or(node.gid);
  node.accessed = attributes.accessed.value_or(node.accessed);
  node.modified = attributes.modified.value_or(node.modified);
  node.changed = now();
  return Status::kOk;
}

Status Tree::check_write(const Node& node, uint64_t offset, uint64_t length) const {
  if (node.type != FileType::kRegular)
    return Status::kInval;
  if (offset > limits_.largest_file || length > limits_.largest_file - offset)
    return Status::kFBig;
  uint64_t more = node.data.new_blocks(offset, length) * FileData::kBlock;
  return more <= limits_.bytes - bytes_used_ ? Status::kOk : Status::kNoSpc;
}

void Tree::write(Node& node, uint64_t offset, std::span<const std::byte> bytes) {
  uint64_t before = node.used();
  node.data.write(offset, bytes);
  bytes_used_ += node.used() - before;
  touch(node);
}

Status Tree::check_cookie(const Node& folder, uint64_t cookie, uint64_t verifier) const {
  if (folder.type != FileType::kDirectory)
    return Status::kNotDir;
  if (cookie == 0)
    return Status::kOk;
  bool given = verifier == instance_ && cookie < folder.folder->next_cookie;
  return given ? Status::kOk : Status::kBadCookie;
}

}  // namespace rrdk::interop
