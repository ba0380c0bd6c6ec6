#include "rpc/auth.h"

namespace rrdk {

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
