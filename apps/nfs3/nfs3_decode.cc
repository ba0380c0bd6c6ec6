#include "nfs3_decode.h"

namespace rrdk::nfs3 {

Attributes get_attributes(Decoder& from) {
  Attributes attributes = {};
  attributes.type = static_cast<FileType>(from.get_u32());
  from.get_fixed(4 * 4);  // mode, nlink, uid, gid
  attributes.size = from.get_u64();
  from.get_fixed(8 + 8 + 8);  // used, rdev, fsid
  attributes.file_id = from.get_u64();
  from.get_fixed(3 * 8);  // atime, mtime, ctime
  return attributes;
}

std::optional<Attributes> get_optional_attributes(Decoder& from) {
  if (!from.get_bool())
    return std::nullopt;
  return get_attributes(from);
}

std::optional<FileHandle> get_optional_handle(Decoder& from) {
  if (!from.get_bool())
    return std::nullopt;
  return get_handle(from);
}

void skip_change(Decoder& from) {
  if (from.get_bool())
    from.get_fixed(3 * 8);  // wcc_attr: size, mtime, ctime
  get_optional_attributes(from);
}

}  // namespace rrdk::nfs3
