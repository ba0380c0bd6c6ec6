// A stand-in for libgssapi_krb5.so.2 with a mechanism that a fuzzer can satisfy: it looks at the
// first byte. It protects nothing.
#include <gssapi/gssapi.h>
#include <gssapi/gssapi_ext.h>

#include <cstdlib>
#include <cstring>
#include <string>

struct gss_ctx_id_struct {
  int tokens = 0;
};

namespace {

constexpr char kName[] = "someone@FUZZ";
gss_OID_desc no_name = {0, nullptr};
int one_name, one_credential;

void give(gss_buffer_t to, char first, const void* rest, size_t length) {
  auto* const bytes = static_cast<char*>(std::malloc(length + 1));
  bytes[0] = first;
  if (length != 0)
    std::memcpy(bytes + 1, rest, length);
  *to = {length + 1, bytes};
}

char first_of(gss_buffer_t buffer) {
  return buffer->length == 0 ? '\0' : *static_cast<const char*>(buffer->value);
}

}  // namespace

extern "C" {

gss_OID GSS_C_NT_HOSTBASED_SERVICE = &no_name;
gss_OID GSS_C_NT_USER_NAME = &no_name;

// 'o': the context is complete; 'c': it goes on; 'n': complete, without a name.
OM_uint32 gss_accept_sec_context(OM_uint32* minor, gss_ctx_id_t* context, gss_cred_id_t,
                                 gss_buffer_t token, gss_channel_bindings_t, gss_name_t* name,
                                 gss_OID*, gss_buffer_t answer, OM_uint32* flags, OM_uint32* time,
                                 gss_cred_id_t*) {
  *minor = 0;
  if (*context == nullptr)
    *context = new gss_ctx_id_struct;
  if (first_of(token) == 'c' && ++(*context)->tokens < 10) {
    give(answer, 'a', nullptr, 0);
    return GSS_S_CONTINUE_NEEDED;
  }
  if (first_of(token) != 'o' && first_of(token) != 'n')
    return GSS_S_DEFECTIVE_TOKEN;
  *name = reinterpret_cast<gss_name_t>(&one_name);
  *flags = first_of(token) == 'n' ? GSS_C_ANON_FLAG : 0;
  *time = 3600;
  give(answer, 'a', nullptr, 0);
  return GSS_S_COMPLETE;
}

OM_uint32 gss_delete_sec_context(OM_uint32* minor, gss_ctx_id_t* context, gss_buffer_t) {
  *minor = 0;
  delete *context;
  *context = nullptr;
  return GSS_S_COMPLETE;
}

OM_uint32 gss_get_mic(OM_uint32* minor, gss_ctx_id_t, gss_qop_t, gss_buffer_t, gss_buffer_t sum) {
  *minor = 0;
  give(sum, 'k', "sum", 3);
  return GSS_S_COMPLETE;
}

OM_uint32 gss_verify_mic(OM_uint32* minor, gss_ctx_id_t, gss_buffer_t, gss_buffer_t sum,
                         gss_qop_t*) {
  *minor = 0;
  return first_of(sum) == 'k' ? GSS_S_COMPLETE : GSS_S_BAD_SIG;
}

OM_uint32 gss_wrap(OM_uint32* minor, gss_ctx_id_t, int, gss_qop_t, gss_buffer_t clear,
                   int* is_private, gss_buffer_t sealed) {
  *minor = 0;
  *is_private = 1;
  give(sealed, 'w', clear->value, clear->length);
  return GSS_S_COMPLETE;
}

OM_uint32 gss_unwrap(OM_uint32* minor, gss_ctx_id_t, gss_buffer_t sealed, gss_buffer_t clear,
                     int* is_private, gss_qop_t*) {
  *minor = 0;
  *is_private = first_of(sealed) == 'w';
  if (first_of(sealed) != 'w' && first_of(sealed) != 's')
    return GSS_S_DEFECTIVE_TOKEN;
  *clear = {sealed->length - 1, std::malloc(sealed->length)};
  std::memcpy(clear->value, static_cast<char*>(sealed->value) + 1, clear->length);
  return GSS_S_COMPLETE;
}

OM_uint32 gss_acquire_cred_from(OM_uint32* minor, gss_name_t, OM_uint32, gss_OID_set,
                                gss_cred_usage_t, gss_const_key_value_set_t,
                                gss_cred_id_t* credential, gss_OID_set*, OM_uint32*) {
  *minor = 0;
  *credential = reinterpret_cast<gss_cred_id_t>(&one_credential);
  return GSS_S_COMPLETE;
}

OM_uint32 gss_release_cred(OM_uint32* minor, gss_cred_id_t* credential) {
  *minor = 0;
  *credential = nullptr;
  return GSS_S_COMPLETE;
}

OM_uint32 gss_import_name(OM_uint32* minor, gss_buffer_t, gss_OID, gss_name_t* name) {
  *minor = 0;
  *name = reinterpret_cast<gss_name_t>(&one_name);
  return GSS_S_COMPLETE;
}

OM_uint32 gss_release_name(OM_uint32* minor, gss_name_t* name) {
  *minor = 0;
  *name = nullptr;
  return GSS_S_COMPLETE;
}

OM_uint32 gss_display_name(OM_uint32* minor, gss_name_t, gss_buffer_t text, gss_OID*) {
  *minor = 0;
  give(text, kName[0], kName + 1, sizeof kName - 2);
  return GSS_S_COMPLETE;
}

OM_uint32 gss_display_status(OM_uint32* minor, OM_uint32, int, gss_OID, OM_uint32* more,
                             gss_buffer_t text) {
  *minor = *more = 0;
  give(text, 'n', "o", 1);
  return GSS_S_COMPLETE;
}

OM_uint32 gss_release_buffer(OM_uint32* minor, gss_buffer_t buffer) {
  *minor = 0;
  std::free(buffer->value);
  *buffer = GSS_C_EMPTY_BUFFER;
  return GSS_S_COMPLETE;
}

// The caller's end is not used.
OM_uint32 gss_init_sec_context(OM_uint32* minor, gss_cred_id_t, gss_ctx_id_t*, gss_name_t, gss_OID,
                               OM_uint32, OM_uint32, gss_channel_bindings_t, gss_buffer_t, gss_OID*,
                               gss_buffer_t, OM_uint32*, OM_uint32*) {
  *minor = 0;
  return GSS_S_FAILURE;
}

OM_uint32 gss_inquire_context(OM_uint32* minor, gss_ctx_id_t, gss_name_t*, gss_name_t*, OM_uint32*,
                              gss_OID*, OM_uint32*, int*, int*) {
  *minor = 0;
  return GSS_S_FAILURE;
}

}  // extern "C"
