/**
 * Must be included first in the XDR routines that rpcgen wrote: cc -include rrdk/tirpc_items.h -c
 * kv_xdr.c. It tells the library which item an xdr_bytes() encodes or decodes, so that the items of
 * a binding file (rrdk/tirpc.h) can be placed directly.
 *
 * On streams of RRDK it also bounds the memory that a message takes (RRDK_CLSET_MAX_DECODED), and
 * the depth of recursive types, such as a linked list, by three quarters of the thread's stack:
 * deeper data is neither decoded nor encoded. And it compares the counts of a peer's opaques,
 * strings and arrays with the rest of the message before memory is taken for them, and frees the
 * memory taken for a message that then does not decode. libtirpc by itself believes a count that is
 * within the bound in the .x, and never frees that memory. On other streams nothing changes, and
 * neither does it in a program that is not linked with librrdk-tirpc, which may use the same object
 * file or shared library.
 */
#pragma once

#include <rpc/rpc.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Weak: an object file that was compiled with this header also serves programs that are linked with
   libtirpc alone. In these, the names below mean libtirpc's own functions, as without the header.
 */
#ifndef RRDK_TIRPC_ITEM
#define RRDK_TIRPC_ITEM __attribute__((weak))
#endif

/* Like libtirpc's functions; `routine` is the XDR routine's name, `item` its argument's text. */
RRDK_TIRPC_ITEM bool_t rrdk_xdr_bytes(XDR* xdrs, char** data, u_int* size, u_int max,
                                      const char* routine, const char* item);
RRDK_TIRPC_ITEM bool_t rrdk_xdr_string(XDR* xdrs, char** text, u_int max);
RRDK_TIRPC_ITEM bool_t rrdk_xdr_array(XDR* xdrs, char** elements, u_int* count, u_int max,
                                      u_int size, xdrproc_t element);

RRDK_TIRPC_ITEM bool_t rrdk_xdr_pointer(XDR* xdrs, char** object, u_int size, xdrproc_t routine);
RRDK_TIRPC_ITEM bool_t rrdk_xdr_reference(XDR* xdrs, char** object, u_int size, xdrproc_t routine);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

// Names of libtirpc: NOLINTBEGIN(readability-identifier-naming)
#define xdr_bytes(xdrs, data, size, max)                                           \
  (rrdk_xdr_bytes != NULL ? rrdk_xdr_bytes(xdrs, data, size, max, __func__, #data) \
                          : xdr_bytes(xdrs, data, size, max))
#define xdr_string(xdrs, text, max) \
  (rrdk_xdr_string != NULL ? rrdk_xdr_string(xdrs, text, max) : xdr_string(xdrs, text, max))
#define xdr_array(xdrs, elements, count, max, size, element)                          \
  (rrdk_xdr_array != NULL ? rrdk_xdr_array(xdrs, elements, count, max, size, element) \
                          : xdr_array(xdrs, elements, count, max, size, element))
#define xdr_pointer(xdrs, object, size, routine)                            \
  (rrdk_xdr_pointer != NULL ? rrdk_xdr_pointer(xdrs, object, size, routine) \
                            : xdr_pointer(xdrs, object, size, routine))
#define xdr_reference(xdrs, object, size, routine)                              \
  (rrdk_xdr_reference != NULL ? rrdk_xdr_reference(xdrs, object, size, routine) \
                              : xdr_reference(xdrs, object, size, routine))
// NOLINTEND(readability-identifier-naming)
