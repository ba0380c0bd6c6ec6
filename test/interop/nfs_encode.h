// The parts of NFSv3 replies and calls (RFC 1813 section 2.6), server side.
#pragma once

#include <optional>

#include "rrdk/server.h"
#include "tree.h"

namespace rrdk::interop {

// The bytes of a post_op_attr that is present, and of a post_op_fh3 of this server.
constexpr uint32_t kPostOpAttrBytes = 88;
constexpr uint32_t kPostOpHandleBytes = 32;

void put_attributes(Encoder& to, const Tree& tree, const Node& node);  // fattr3
// post_op_attr; for a null node it is absent.
void put_optional_attributes(Encoder& to, const Tree& tree, const Node* node);
void put_handle(Encoder& to, const Tree& tree, const Node& node);           // nfs_fh3
void put_optional_handle(Encoder& to, const Tree& tree, const Node& node);  // post_op_fh3

// wcc_data: the attributes of a node before a change, for the reply after it.
class Change {
 public:
  explicit Change(const Node* before);
  void put(Encoder& to, const Tree& tree, const Node* after) const;

 private:
  bool known_;
  uint64_t size_ = 0;
  Time modified_, changed_;
};

Time get_time(Decoder& from);
// sattr3. The decoder fails if it is invalid.
NewAttributes get_new_attributes(Decoder& from);
// filename3 or nfspath3; it fails if it is longer than `room`.
std::string_view get_text(Decoder& from, std::span<char> room);

}  // namespace rrdk::interop
