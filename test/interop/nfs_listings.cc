// READDIR and READDIRPLUS: as many entries as fit into the caller's reply, starting at a cookie.
#include <algorithm>

#include "nfs_handlers.h"
#include "nfs_program.h"

namespace rrdk::interop {
namespace {

// Status, attributes, verifier, the list's end, eof.
constexpr uint32_t kAroundEntries = kPostOpAttrBytes + 8 + 4 + 4;

struct Listing {
  bool plus;
  FileHandle handle;
  uint64_t cookie = 0;
  uint64_t verifier = 0;
  uint32_t names_room = 0;  // dircount: bytes of file numbers, names and cookies
  uint32_t room = 0;        // of the whole reply
  uint32_t entries = 0;

  void get(Decoder& args);
  // Writes one entry; returns false if it does not fit.
  bool put(Encoder& results, const Tree& tree, const Node& node, std::string_view name,
           uint64_t at);
  // Writes entries as long as they fit; returns true if those were all.
  bool put_all(Encoder& results, const Tree& tree, Node& folder);
};

void Listing::get(Decoder& args) {
  handle = nfs3::get_handle(args);
  cookie = args.get_u64();
  verifier = args.get_u64();
  if (plus)
    names_room = args.get_u32();
  room = std::min(args.get_u32(), kMostListing);
  if (!plus)
    names_room = room;
  room = room > kAroundEntries ? room - kAroundEntries : 0;
}

bool Listing::put(Encoder& results, const Tree& tree, const Node& node, std::string_view name,
                  uint64_t at) {
  auto name_bytes = static_cast<uint32_t>(8 + 4 + name.size() + xdr_pad(name.size()) + 8);
  uint32_t bytes = 4 + name_bytes + (plus ? kPostOpAttrBytes + kPostOpHandleBytes : 0);
  // dircount is a hint, which one entry may exceed; the whole reply's size is a limit.
  if (bytes > room || (name_bytes > names_room && entries != 0))
    return false;
  room -= bytes;
  names_room -= std::min(names_room, name_bytes);
  ++entries;
  results.put_bool(true);
  results.put_u64(node.id);
  results.put_string(name);
  results.put_u64(at);
  if (plus) {
    put_optional_attributes(results, tree, &node);
    put_optional_handle(results, tree, node);
  }
  return true;
}

bool Listing::put_all(Encoder& results, const Tree& tree, Node& folder) {
  const Folder& contents = *folder.folder;
  if (cookie < Folder::kSelfCookie && !put(results, tree, folder, ".", Folder::kSelfCookie))
    return false;
  if (cookie < Folder::kParentCookie &&
      !put(results, tree, *contents.parent, "..", Folder::kParentCookie))
    return false;
  for (auto it = contents.by_cookie.upper_bound(cookie); it != contents.by_cookie.end(); ++it) {
    if (!put(results, tree, *it->second.node, it->second.name, it->first))
      return false;
  }
  return true;
}

void list(ServerCall call, Tree& tree, bool plus) {
  Listing listing = {.plus = plus, .handle = {}};
  listing.get(call.args());
  if (!call.args().at_end())
    return garbage(std::move(call));
  Node* folder = nullptr;
  Status status = tree.find(listing.handle, folder);
  if (folder != nullptr)
    status = tree.check_cookie(*folder, listing.cookie, listing.verifier);
  if (status != Status::kOk)
    return answer(std::move(call), tree, status, folder);
  Encoder& results = call.results();
  Encoder::Mark start = results.mark();
  results.put_u32(static_cast<uint32_t>(Status::kOk));
  put_optional_attributes(results, tree, folder);
  results.put_u64(tree.instance());  // cookies are valid as long as this server lives
  bool all = listing.put_all(results, tree, *folder);
  if (!all && listing.entries == 0) {
    results.rewind(start);
    return answer(std::move(call), tree, Status::kTooSmall, folder);
  }
  results.put_bool(false);
  results.put_bool(all);
  std::move(call).reply();
}

}  // namespace

void readdir(ServerCall call, void* context) {
  list(std::move(call), tree_of(context), false);
}

void readdirplus(ServerCall call, void* context) {
  list(std::move(call), tree_of(context), true);
}

}  // namespace rrdk::interop
