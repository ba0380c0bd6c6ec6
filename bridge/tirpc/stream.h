// An XDR stream of libtirpc over RRDK's Encoder or Decoder. XDR routines run on it as on any other;
// those compiled with rrdk/tirpc_items.h also tell it which item an opaque is.
#pragma once

#include <rpc/rpc.h>

#include <cstdint>
#include <span>
#include <vector>

#include "bindings.h"
#include "rrdk/call.h"
#include "rrdk/xdr.h"

namespace rrdk::tirpc {

class Stream {
 public:
  // Writes. Eligible items are put into chunks if there are at least `least` bytes of them.
  Stream(Encoder& out, std::span<const Item> items, uint32_t least) noexcept;
  // Reads. `offers` says which eligible items were placed, in a client. At most `most` bytes are
  // allocated for routines compiled with rrdk/tirpc_items.h.
  Stream(Decoder& in, std::span<const Item> items, Call* offers, uint64_t most) noexcept;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Returns false if the routine or the stream failed. Memory decoded until then is given back.
  bool run(xdrproc_t routine, void* object);
  // Whether it refers to memory that the program may change: rrdk_tirpc_alloc()'s.
  bool borrows() const noexcept { return borrows_; }
  // Whether it refers to memory of arguments that were decoded in place.
  bool refers_to_arguments() const noexcept { return refers_to_arguments_; }
  // The arguments that it has decoded in place.
  std::span<const void* const> in_place() const noexcept { return in_place_; }

  // Finds the item that an xdr_bytes() encodes or decodes, which is then done by put() or get().
  // Returns null if it is not eligible, or the procedure's number of items has been reached.
  const Item* find(const char* routine, const char* argument) const noexcept;
  bool put(const char* data, uint32_t length);
  bool get(const Item& item, char** data, u_int* length, uint32_t max);
  // The routine has put memory there.
  void note(char** memory) { taken_.push_back(memory); }
  // Reading: whether the next count is of elements that are all in the stream, with at least
  // `least` bytes each, and may be allocated, with `size` bytes each.
  bool next_count_fits(uint32_t least, uint32_t size) noexcept;
  // Reading: whether this many more bytes may be allocated.
  bool may_allocate(uint64_t bytes) noexcept;

  // Returns null for a stream of another library.
  static Stream* of(XDR* xdrs) noexcept;

 private:
  static const XDR::xdr_ops kOps;
  static Stream& self(XDR* xdrs) noexcept { return *static_cast<Stream*>(xdrs->x_private); }
  static bool_t get_long(XDR* xdrs, long* to);
  static bool_t put_long(XDR* xdrs, const long* from);
  static bool_t get_bytes(XDR* xdrs, char* to, u_int length);
  static bool_t put_bytes(XDR* xdrs, const char* from, u_int length);
  static u_int get_position(XDR* xdrs);
  static bool_t set_position(XDR* xdrs, u_int position);
  static int32_t* get_run(XDR* xdrs, u_int length);
  static void destroy(XDR*) {}
  static bool_t control(XDR*, int, void*) { return FALSE; }

  bool take_in_place(const ItemView& view, Buffer& room, char** data);
  void take_back();

  XDR xdr_ = {};
  Encoder* out_ = nullptr;
  Decoder* in_ = nullptr;
  Decoder start_;  // `*in_` as it was
  std::span<const Item> items_;
  Call* offers_ = nullptr;
  uint32_t least_ = 0;
  uint64_t may_take_ = 0;      // bytes that may still be allocated
  uint32_t seen_ = 0;          // eligible items so far
  std::vector<char**> taken_;  // inner memory before the memory that points to it
  std::vector<const void*> in_place_;
  bool borrows_ = false, refers_to_arguments_ = false;
};

// Like xdr_free(): memory that was decoded in place is given back.
void free_decoded(xdrproc_t routine, void* object);

}  // namespace rrdk::tirpc
