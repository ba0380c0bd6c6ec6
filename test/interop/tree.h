// A file system in memory, as NFSv3 sees one (RFC 1813): handles, names, attributes, contents. It
// is bounded: whatever would exceed a limit is NFS3ERR_NOSPC. Permissions are not enforced, since
// the tests trust all callers. For one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "file_data.h"
#include "nfs3_protocol.h"

namespace rrdk::interop {

using nfs3::FileHandle;
using nfs3::FileType;
using nfs3::Status;

// nfstime3.
struct Time {
  uint32_t seconds = 0;
  uint32_t nanoseconds = 0;
  bool operator==(const Time&) const = default;
};

struct TreeLimits {
  uint64_t bytes = 256u << 20;  // of contents, in whole blocks
  uint64_t names = 65536;       // in all folders together
  uint64_t busy = 0;            // one READ in this many is put off with NFS3ERR_JUKEBOX; 0: none
  uint64_t largest_file = uint64_t{1} << 40;
  static constexpr uint32_t kName = 255;
  static constexpr uint32_t kTarget = 4096;  // of a symbolic link
  static constexpr uint32_t kLinks = 32000;  // names of one file
};

struct Node;

// The contents of a folder. A name's place in a listing is its cookie: cookies grow, and are never
// given twice, so that listings continue where they were whatever was made or removed meanwhile.
struct Folder {
  static constexpr uint64_t kSelfCookie = 1;    // "."
  static constexpr uint64_t kParentCookie = 2;  // ".."

  struct Entry {
    std::string name;
    Node* node;
  };
  Node* parent;
  std::map<uint64_t, Entry> by_cookie;
  std::unordered_map<std::string, uint64_t> cookies;
  uint64_t next_cookie = kParentCookie + 1;
};

struct Node {
  uint64_t id;
  FileType type;
  uint32_t mode = 0;
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint32_t links = 0;
  Time accessed, modified, changed;
  FileData data;                            // of a regular file
  std::string target;                       // of a symbolic link
  std::unique_ptr<Folder> folder;           // of a folder
  std::optional<uint64_t> create_verifier;  // the verifier of CREATE EXCLUSIVE

  uint64_t size() const;
  uint64_t used() const;  // bytes
};

// sattr3, with times resolved.
struct NewAttributes {
  std::optional<uint32_t> mode = {}, uid = {}, gid = {};
  std::optional<uint64_t> size = {};
  std::optional<Time> accessed = {}, modified = {};
};

class Tree {
 public:
  // `instance` distinguishes this tree's handles and cookies from those of the server before it.
  // Only the root's handle has `file_system` in its place, so that a mount can live on if that is
  // the same.
  Tree(const TreeLimits& limits, uint64_t instance, uint64_t file_system);
  Tree(const TreeLimits& limits, uint64_t instance) : Tree(limits, instance, instance) {}

  Node& root() { return *root_; }
  uint64_t instance() const { return instance_; }
  uint64_t file_system() const { return file_system_; }
  const TreeLimits& limits() const { return limits_; }
  uint64_t bytes_used() const { return bytes_used_; }
  uint64_t names_used() const { return names_used_; }
  // Whether this READ is one of those that TreeLimits::busy puts off.
  bool puts_off() { return limits_.busy != 0 && ++reads_ % limits_.busy == 0; }

  FileHandle handle_of(const Node& node) const;
  // Fails with kBadHandle (never given) or kStale (removed, or from another instance).
  Status find(const FileHandle& handle, Node*& found);

  // All of these take a name as it came. Invalid names fail with kAcces (empty, or with '/' or NUL)
  // and kNameTooLong.
  Status look_up(Node& folder, std::string_view name, Node*& found);
  // `node` is also set if something of that name exists: kExist.
  Status make(Node& folder, std::string_view name, FileType type, const NewAttributes& attributes,
              std::string_view target, Node*& node);
  Status remove(Node& folder, std::string_view name);
  Status remove_folder(Node& folder, std::string_view name);
  Status rename(Node& from, std::string_view old_name, Node& to, std::string_view new_name);
  Status link(Node& file, Node& folder, std::string_view name);

  Status set_attributes(Node& node, const NewAttributes& attributes);
  // Whether `length` bytes can be written there: all or nothing.
  Status check_write(const Node& node, uint64_t offset, uint64_t length) const;
  void write(Node& node, uint64_t offset, std::span<const std::byte> bytes);
  // kBadCookie if a listing cannot continue there.
  Status check_cookie(const Node& folder, uint64_t cookie, uint64_t verifier) const;

  static Time now();

 private:
  Status check_name(std::string_view name) const;
  Status check_new(Node& folder, std::string_view name, Node*& there);
  Status check_target(const Node& moved, const Node& there) const;
  bool is_inside(const Node& folder, const Node& ancestor) const;
  void add_entry(Node& folder, std::string_view name, Node& node);
  void drop_entry(Node& folder, std::string_view name);
  void unlink(Node& node);
  void touch(Node& node);

  TreeLimits limits_;
  uint64_t instance_;
  uint64_t file_system_;
  std::unordered_map<uint64_t, std::unique_ptr<Node>> nodes_;
  Node* root_;
  uint64_t next_id_ = 1;
  uint64_t bytes_used_ = 0;
  uint64_t names_used_ = 0;
  uint64_t reads_ = 0;
};

}  // namespace rrdk::interop
