// Decodes the parts of NFSv3 replies (RFC 1813 section 2.6), for clients.
#pragma once

#include <cstdint>
#include <optional>

#include "nfs3_protocol.h"
#include "rrdk/xdr.h"

namespace rrdk::nfs3 {

// The members of fattr3 that callers here use.
struct Attributes {
  FileType type;
  uint64_t size;
  uint64_t file_id;
};

Attributes get_attributes(Decoder& from);                          // fattr3
std::optional<Attributes> get_optional_attributes(Decoder& from);  // post_op_attr
std::optional<FileHandle> get_optional_handle(Decoder& from);      // post_op_fh3
void skip_change(Decoder& from);                                   // wcc_data

}  // namespace rrdk::nfs3
