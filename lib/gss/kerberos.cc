#include "gss/kerberos.h"

#include <dlfcn.h>

#include <algorithm>
#include <ctime>
#include <utility>

namespace rrdk::gss {

// Those functions of libgssapi_krb5 that are used here.
struct Library {
  // clang-format off
#define RRDK_GSS_FUNCTIONS(X) \
  X(gss_accept_sec_context) \
  X(gss_acquire_cred_from) \
  X(gss_delete_sec_context) \
  X(gss_display_name) \
  X(gss_display_status) \
  X(gss_get_mic) \
  X(gss_import_name) \
  X(gss_init_sec_context) \
  X(gss_inquire_context) \
  X(gss_release_buffer) \
  X(gss_release_cred) \
  X(gss_release_name) \
  X(gss_unwrap) \
  X(gss_verify_mic) \
  X(gss_wrap)
// clang-format on
#define RRDK_GSS_DECLARE(function) decltype(&::function) function = nullptr;
  RRDK_GSS_FUNCTIONS(RRDK_GSS_DECLARE)
#undef RRDK_GSS_DECLARE
  gss_OID service_name = nullptr;  // GSS_C_NT_HOSTBASED_SERVICE: "nfs@host"
  gss_OID user_name = nullptr;     // GSS_C_NT_USER_NAME
  std::string lacks;               // why it cannot be used; empty: it is complete
};

namespace {

// 1.2.840.113554.1.2.2 (RFC 4121 section 4).
char kerberos_number[] = "\x2a\x86\x48\x86\xf7\x12\x01\x02\x02";
gss_OID_desc kerberos_oid = {sizeof kerberos_number - 1, kerberos_number};
gss_OID_set_desc only_kerberos = {1, &kerberos_oid};

constexpr const char* kFile = "libgssapi_krb5.so.2";

Library load() {
  Library library;
  // Never closed: contexts may live until the end of the process.
  void* const handle = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    library.lacks =
        std::string("RPCSEC_GSS needs MIT Kerberos (Debian's libgssapi-krb5-2): ") + dlerror();
    return library;
  }
#define RRDK_GSS_FIND(function)                                                         \
  library.function = reinterpret_cast<decltype(&::function)>(dlsym(handle, #function)); \
  if (library.function == nullptr)                                                      \
    library.lacks =                                                                     \
        std::string(kFile) + " has no " #function "; RPCSEC_GSS needs a newer MIT Kerberos";
  RRDK_GSS_FUNCTIONS(RRDK_GSS_FIND)
#undef RRDK_GSS_FIND
  if (const auto* const name = static_cast<gss_OID*>(dlsym(handle, "GSS_C_NT_HOSTBASED_SERVICE")))
    library.service_name = *name;
  if (const auto* const name = static_cast<gss_OID*>(dlsym(handle, "GSS_C_NT_USER_NAME")))
    library.user_name = *name;
  return library;
}

const Library& the_library() {
  static const Library library = load();
  return library;
}

gss_buffer_desc view(std::span<const std::byte> bytes) noexcept {
  return {bytes.size(), const_cast<std::byte*>(bytes.data())};
}

std::string text_of(gss_buffer_t buffer) {
  std::string text(static_cast<const char*>(buffer->value), buffer->length);
  uint32_t minor;
  the_library().gss_release_buffer(&minor, buffer);
  return text;
}

// Appends all that the library has to say about a status of that kind.
void add_status(std::string& text, uint32_t status, int kind) {
  const Library& library = the_library();
  uint32_t more = 0;
  do {
    uint32_t minor;
    gss_buffer_desc buffer = GSS_C_EMPTY_BUFFER;
    if (GSS_ERROR(library.gss_display_status(&minor, status, kind, &kerberos_oid, &more, &buffer)))
      return;
    if (!text.empty())
      text += ": ";
    text += text_of(&buffer);
  } while (more != 0);
}

// A name of the library.
class Name {
 public:
  Name() = default;
  ~Name() {
    uint32_t minor;
    if (name_ != GSS_C_NO_NAME)
      the_library().gss_release_name(&minor, &name_);
  }
  Name(const Name&) = delete;
  Name& operator=(const Name&) = delete;

  // An empty text leaves it without a name. Errors: kInvalidArgument.
  Result<void> import(const std::string& text, gss_OID type) {
    if (text.empty())
      return {};
    uint32_t minor = 0;
    gss_buffer_desc bytes = view(std::as_bytes(std::span(text)));
    const uint32_t major = the_library().gss_import_name(&minor, &bytes, type, &name_);
    if (GSS_ERROR(major))
      return fail(Errc::kInvalidArgument,
                  "'" + text + "' cannot be a name in Kerberos: " + describe(major, minor));
    return {};
  }
  gss_name_t* out() noexcept { return &name_; }
  gss_name_t get() const noexcept { return name_; }

 private:
  gss_name_t name_ = GSS_C_NO_NAME;
};

}  // namespace

std::string describe(uint32_t major, uint32_t minor) {
  std::string text;
  add_status(text, major, GSS_C_GSS_CODE);
  if (minor != 0)
    add_status(text, minor, GSS_C_MECH_CODE);
  // It may quote what a peer has sent.
  std::ranges::replace_if(text, [](unsigned char c) { return c < ' ' || c == 0x7f; }, '?');
  return text;
}

Token::~Token() {
  out();
}

gss_buffer_t Token::out() noexcept {
  uint32_t minor;
  if (buffer_.value != nullptr)
    the_library().gss_release_buffer(&minor, &buffer_);
  buffer_ = GSS_C_EMPTY_BUFFER;
  return &buffer_;
}

Result<std::shared_ptr<const Identity>> Identity::acquire(gss_name_t name, gss_cred_usage_t usage,
                                                          gss_const_key_value_set_t store,
                                                          const std::string& lacks) {
  std::shared_ptr<Identity> identity(new Identity);
  uint32_t minor = 0;
  const uint32_t major =
      the_library().gss_acquire_cred_from(&minor, name, GSS_C_INDEFINITE, &only_kerberos, usage,
                                          store, &identity->credential_, nullptr, nullptr);
  if (GSS_ERROR(major))
    return fail(Errc::kNotFound, lacks + ": " + describe(major, minor));
  return identity;
}

Result<std::shared_ptr<const Identity>> Identity::acceptor(const std::string& service,
                                                           const std::string& key_table) {
  if (!the_library().lacks.empty())
    return fail(Errc::kUnsupported, the_library().lacks);
  Name name;
  if (auto imported = name.import(service, the_library().service_name); !imported)
    return tl::unexpected(imported.error());
  // Kerberos' own cache of tokens writes to a file for each context. RPCSEC_GSS does not need that:
  // a token that is replayed makes a context whose keys the sender does not have (RFC 2203 section
  // 7.1).
  gss_key_value_element_desc elements[] = {{"rcache", "none:"}, {"keytab", key_table.c_str()}};
  const gss_key_value_set_desc store = {key_table.empty() ? 1u : 2u, elements};
  return acquire(name.get(), GSS_C_ACCEPT, &store,
                 "no keys of " + (service.empty() ? "any service" : "'" + service + "'") + " in " +
                     (key_table.empty() ? "the default key table, which KRB5_KTNAME names"
                                        : "'" + key_table + "'") +
                     " (klist -k lists the keys of a table)");
}

Result<std::shared_ptr<const Identity>> Identity::initiator(const std::string& principal) {
  if (!the_library().lacks.empty())
    return fail(Errc::kUnsupported, the_library().lacks);
  Name name;
  if (auto imported = name.import(principal, the_library().user_name); !imported)
    return tl::unexpected(imported.error());
  return acquire(
      name.get(), GSS_C_INITIATE, nullptr,
      "no ticket" + (principal.empty() ? "" : " of '" + principal + "'") +
          " (kinit gets one; KRB5CCNAME names the cache, KRB5_CLIENT_KTNAME a key table)");
}

Identity::~Identity() {
  uint32_t minor;
  if (credential_ != GSS_C_NO_CREDENTIAL)
    the_library().gss_release_cred(&minor, &credential_);
}

Context::~Context() {
  uint32_t minor;
  if (context_ != GSS_C_NO_CONTEXT)
    the_library().gss_delete_sec_context(&minor, &context_, GSS_C_NO_BUFFER);
}

Step Context::accept(const Identity& identity, std::span<const std::byte> token, Token& answer) {
  const Library& library = the_library();
  const std::lock_guard lock(mutex_);
  gss_buffer_desc input = view(token);
  Name peer;
  Step step;
  uint32_t seconds = 0, flags = 0;
  step.major = library.gss_accept_sec_context(&step.minor, &context_, identity.get(), &input,
                                              GSS_C_NO_CHANNEL_BINDINGS, peer.out(), nullptr,
                                              answer.out(), &flags, &seconds, nullptr);
  if (GSS_ERROR(step.major))
    step.error = describe(step.major, step.minor);
  if (!step.complete())
    return step;
  note_end(seconds);
  if ((flags & GSS_C_ANON_FLAG) == 0)  // such a caller has proven nothing
    note_name(peer.get(), peer_);
  return step;
}

// Mutual authentication is asked for, so that a server without the key is found out at once.
// Kerberos' own detection of replays and order is not (RFC 2203 section 5.2.2): calls overtake each
// other.
Step Context::initiate(const Identity& identity, const std::string& target,
                       std::span<const std::byte> token, Token& next) {
  const Library& library = the_library();
  Step step;
  Name name;
  if (auto imported = name.import(target, library.service_name); !imported) {
    step.error = imported.error().message;
    return step;
  }
  const std::lock_guard lock(mutex_);
  gss_buffer_desc input = view(token);
  uint32_t seconds = 0;
  step.major = library.gss_init_sec_context(
      &step.minor, identity.get(), &context_, name.get(), &kerberos_oid,
      GSS_C_MUTUAL_FLAG | GSS_C_INTEG_FLAG | GSS_C_CONF_FLAG, GSS_C_INDEFINITE,
      GSS_C_NO_CHANNEL_BINDINGS, &input, nullptr, next.out(), nullptr, &seconds);
  if (GSS_ERROR(step.major))
    step.error = describe(step.major, step.minor);
  if (step.complete()) {
    note_end(seconds);
    peer_ = target;
    Name own;
    uint32_t minor;
    if (!GSS_ERROR(library.gss_inquire_context(&minor, context_, own.out(), nullptr, nullptr,
                                               nullptr, nullptr, nullptr, nullptr)))
      note_name(own.get(), own_name_);
  }
  return step;
}

void Context::note_end(uint32_t seconds) {
  ends_at_ = seconds == GSS_C_INDEFINITE ? UINT64_MAX
                                         : static_cast<uint64_t>(std::time(nullptr)) + seconds;
}

void Context::note_name(gss_name_t name, std::string& text) {
  uint32_t minor;
  gss_buffer_desc shown = GSS_C_EMPTY_BUFFER;
  if (!GSS_ERROR(the_library().gss_display_name(&minor, name, &shown, nullptr)))
    text = text_of(&shown);
}

bool Context::sign(std::span<const std::byte> message, Token& checksum) noexcept {
  const std::lock_guard lock(mutex_);
  uint32_t minor;
  gss_buffer_desc input = view(message);
  return !GSS_ERROR(
      the_library().gss_get_mic(&minor, context_, GSS_C_QOP_DEFAULT, &input, checksum.out()));
}

// Kerberos' own detection of replays and order adds only supplementary bits to the status: it is
// left to the window of RFC 2203 section 5.3.3.1.
bool Context::verify(std::span<const std::byte> message,
                     std::span<const std::byte> checksum) noexcept {
  const std::lock_guard lock(mutex_);
  uint32_t minor;
  gss_buffer_desc input = view(message);
  gss_buffer_desc token = view(checksum);
  return !GSS_ERROR(the_library().gss_verify_mic(&minor, context_, &input, &token, nullptr));
}

bool Context::wrap(std::span<const std::byte> clear, Token& sealed) noexcept {
  const std::lock_guard lock(mutex_);
  uint32_t minor;
  gss_buffer_desc input = view(clear);
  int is_private = 0;
  const uint32_t major = the_library().gss_wrap(&minor, context_, 1, GSS_C_QOP_DEFAULT, &input,
                                                &is_private, sealed.out());
  return !GSS_ERROR(major) && is_private != 0;
}

bool Context::unwrap(std::span<const std::byte> sealed, Token& clear) noexcept {
  const std::lock_guard lock(mutex_);
  uint32_t minor;
  gss_buffer_desc input = view(sealed);
  int is_private = 0;
  const uint32_t major =
      the_library().gss_unwrap(&minor, context_, &input, clear.out(), &is_private, nullptr);
  // Old releases of the library trust a length that a peer may have changed (CVE-2024-37371).
  return !GSS_ERROR(major) && is_private != 0 && clear.bytes().size() <= sealed.size();
}

}  // namespace rrdk::gss
