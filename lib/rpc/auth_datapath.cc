// Credentials into wire form, which is done once for a connection, and out of it, for each call.
#include <algorithm>

#include "rpc/auth.h"
#include "rrdk/xdr.h"

namespace rrdk {

bool AuthSys::set_machine_name(std::string_view name) noexcept {
  if (name.size() > kMaxMachineName)
    return false;
  std::ranges::copy(name, name_.begin());
  name_length_ = static_cast<uint32_t>(name.size());
  return true;
}

bool AuthSys::set_gids(std::span<const uint32_t> gids) noexcept {
  if (gids.size() > kMaxGids)
    return false;
  std::ranges::copy(gids, gids_.begin());
  num_gids_ = static_cast<uint32_t>(gids.size());
  return true;
}

bool decode(const Credential& credential, AuthSys& to) noexcept {
  if (credential.flavor != AuthFlavor::kSys || credential.body.size() > kMaxAuthBody)
    return false;
  std::byte body[kMaxAuthBody];
  credential.body.copy_to(body);
  const Fragment whole[] = {{body, credential.body.size()}};
  Decoder in(whole);

  AuthSys auth;
  auth.stamp = in.get_u32();
  char name[AuthSys::kMaxMachineName];
  std::string_view machine = in.get_string(name);
  auth.uid = in.get_u32();
  auth.gid = in.get_u32();
  uint32_t gids[AuthSys::kMaxGids] = {};
  uint32_t num_gids = in.get_u32();
  if (num_gids > AuthSys::kMaxGids)
    return false;
  for (uint32_t i = 0; i != num_gids; ++i)
    gids[i] = in.get_u32();
  if (!in.at_end())
    return false;
  auth.set_machine_name(machine);
  auth.set_gids({gids, num_gids});
  to = auth;
  return true;
}

}  // namespace rrdk

namespace rrdk::rpc {

void PreparedAuth::put_u32(uint32_t value) noexcept {
  xdr::store_u32(bytes_.data() + length_, value);
  length_ += 4;
}

void PreparedAuth::put_padded(std::span<const std::byte> bytes) noexcept {
  std::ranges::copy(bytes, bytes_.begin() + length_);
  length_ += static_cast<uint32_t>(bytes.size()) + xdr_pad(bytes.size());
}

PreparedAuth::PreparedAuth(const AuthSys& identity) noexcept {
  put_u32(static_cast<uint32_t>(AuthFlavor::kSys));
  put_u32(0);  // the body's length, known at the end
  put_u32(identity.stamp);
  std::string_view name = identity.machine_name();
  put_u32(static_cast<uint32_t>(name.size()));
  put_padded(std::as_bytes(std::span(name)));
  put_u32(identity.uid);
  put_u32(identity.gid);
  put_u32(static_cast<uint32_t>(identity.gids().size()));
  for (uint32_t gid : identity.gids())
    put_u32(gid);
  xdr::store_u32(bytes_.data() + 4, length_ - 8);
}

std::optional<PreparedAuth> PreparedAuth::opaque(AuthFlavor flavor,
                                                 std::span<const std::byte> body) noexcept {
  if (body.size() > kMaxAuthBody)
    return std::nullopt;
  PreparedAuth auth;
  auth.put_u32(static_cast<uint32_t>(flavor));
  auth.put_u32(static_cast<uint32_t>(body.size()));
  auth.put_padded(body);
  return auth;
}

bool transforms_body(const Credential& credential) noexcept {
  if (credential.flavor != AuthFlavor::kRpcsecGss) [[likely]]
    return false;
  if (credential.body.size() > kMaxAuthBody)
    return true;
  std::byte body[kMaxAuthBody];
  credential.body.copy_to(body);
  const Fragment whole[] = {{body, credential.body.size()}};
  Decoder in(whole);
  in.get_u32();  // version
  in.get_u32();  // gss_proc
  in.get_u32();  // sequence number
  constexpr uint32_t kServiceNone = 1;
  uint32_t service = in.get_u32();
  return !in.ok() || service != kServiceNone;
}

}  // namespace rrdk::rpc
