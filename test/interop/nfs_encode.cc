#include "nfs_encode.h"

namespace rrdk::interop {
namespace {

constexpr uint32_t kSecond = 1'000'000'000;

void put_time(Encoder& to, Time time) {
  to.put_u32(time.seconds);
  to.put_u32(time.nanoseconds);
}

std::optional<uint32_t> get_optional_u32(Decoder& from) {
  if (!from.get_bool())
    return std::nullopt;
  return from.get_u32();
}

// set_atime, set_mtime.
std::optional<Time> get_new_time(Decoder& from) {
  switch (static_cast<nfs3::TimeHow>(from.get_u32())) {
    case nfs3::TimeHow::kKeep:
      return std::nullopt;
    case nfs3::TimeHow::kServer:
      return Tree::now();
    case nfs3::TimeHow::kClient:
      return get_time(from);
  }
  from.fail();
  return std::nullopt;
}

}  // namespace

void put_attributes(Encoder& to, const Tree& tree, const Node& node) {
  to.put_u32(static_cast<uint32_t>(node.type));
  to.put_u32(node.mode);
  to.put_u32(node.links);
  to.put_u32(node.uid);
  to.put_u32(node.gid);
  to.put_u64(node.size());
  to.put_u64(node.used());
  to.put_u64(0);                   // rdev
  to.put_u64(tree.file_system());  // fsid
  to.put_u64(node.id);
  put_time(to, node.accessed);
  put_time(to, node.modified);
  put_time(to, node.changed);
}

void put_optional_attributes(Encoder& to, const Tree& tree, const Node* node) {
  to.put_bool(node != nullptr);
  if (node != nullptr)
    put_attributes(to, tree, *node);
}

void put_handle(Encoder& to, const Tree& tree, const Node& node) {
  FileHandle handle = tree.handle_of(node);
  to.put_opaque(handle.bytes());
}

void put_optional_handle(Encoder& to, const Tree& tree, const Node& node) {
  to.put_bool(true);
  put_handle(to, tree, node);
}

Change::Change(const Node* before) : known_(before != nullptr) {
  if (!known_)
    return;
  size_ = before->size();
  modified_ = before->modified;
  changed_ = before->changed;
}

void Change::put(Encoder& to, const Tree& tree, const Node* after) const {
  to.put_bool(known_);
  if (known_) {
    to.put_u64(size_);
    put_time(to, modified_);
    put_time(to, changed_);
  }
  put_optional_attributes(to, tree, after);
}

Time get_time(Decoder& from) {
  Time time = {from.get_u32(), from.get_u32()};
  if (time.nanoseconds >= kSecond)
    from.fail();
  return time;
}

NewAttributes get_new_attributes(Decoder& from) {
  NewAttributes attributes;
  attributes.mode = get_optional_u32(from);
  attributes.uid = get_optional_u32(from);
  attributes.gid = get_optional_u32(from);
  if (from.get_bool())
    attributes.size = from.get_u64();
  attributes.accessed = get_new_time(from);
  attributes.modified = get_new_time(from);
  return attributes;
}

std::string_view get_text(Decoder& from, std::span<char> room) {
  ItemView text = from.get_opaque(static_cast<uint32_t>(room.size()));
  text.copy_to(reinterpret_cast<std::byte*>(room.data()));
  return {room.data(), text.size()};
}

}  // namespace rrdk::interop
