#include "security.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "rrdk/gss_context.h"
#include "stop.h"
#include "values.h"

namespace rrdk::testrpc {

namespace {

GssProtection protection_of(Sec sec) {
  switch (sec) {
    case Sec::kKrb5i:
      return GssProtection::kIntegrity;
    case Sec::kKrb5p:
      return GssProtection::kPrivacy;
    default:
      return GssProtection::kNone;
  }
}

std::string own_name() {
  std::array<char, 256> name = {};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

// The service at that address. The address of --self may be more precise than what was asked for.
std::string service_at(const Options& options, const std::string& uri) {
  if (!options.sec_target.empty())
    return options.sec_target;
  const std::string host = host_of(options.role == Role::kSelf ? options.uri : uri);
  return "nfs@" + (host.empty() ? own_name() : host);
}

}  // namespace

Sec sec_of(const Options& options) {
  return options.sec.empty() ? Sec::kNone : options.sec.front();
}

bool is_kerberos(Sec sec) {
  return sec >= Sec::kKrb5;
}

Acceptance acceptance_of(const Options& options) {
  if (options.sec.empty())
    return kAcceptNone | kAcceptSys;
  constexpr std::array<Acceptance, 5> kOf = {kAcceptNone, kAcceptSys, kAcceptAuthentic,
                                             kAcceptIntegrity, kAcceptPrivacy};
  Acceptance all = 0;
  for (Sec sec : options.sec)
    all |= kOf[static_cast<size_t>(sec)];
  return all;
}

AuthSys own_identity() {
  AuthSys identity;
  identity.uid = geteuid();
  identity.gid = getegid();
  identity.set_machine_name("testrpc");
  return identity;
}

Result<std::unique_ptr<GssAcceptor>> take_keys(const Options& options, uint64_t largest) {
  if (std::ranges::none_of(options.sec, is_kerberos))
    return nullptr;
  GssAcceptorOptions keys;
  keys.max_contexts = kMostConnections;
  keys.max_protected_bytes =
      static_cast<uint32_t>(std::max<uint64_t>(keys.max_protected_bytes, largest));
  keys.tcp = options.gss_tcp;
  return GssAcceptor::create(keys);
}

Result<void> secure(const Options& options, std::span<const std::string> targets,
                    std::span<const std::unique_ptr<ClientConnection>> connections,
                    const Binding& program) {
  const EndsAtOnce asking("the security context is made");
  const Sec sec = sec_of(options);
  if (!is_kerberos(sec))
    return {};
  // Calls overtake each other on the way through several connections, and a server may keep as few
  // as this many sequence numbers.
  constexpr uint32_t kLeastWindow = 128;
  const size_t sharing = std::max(1u, kLeastWindow / options.credits);
  const size_t stride = targets.size();
  for (size_t i = 0; i < connections.size(); ++i) {
    if (i / stride % sharing != 0)
      continue;
    GssContextOptions context;
    context.target = service_at(options, targets[i % stride]);
    context.protection = protection_of(sec);
    Result<SharedCredential> made = establish_context(*connections[i], program, context);
    if (!made)
      return tl::unexpected(made.error());
    for (size_t each = 0; each < sharing && i + each * stride < connections.size(); ++each)
      connections[i + each * stride]->set_credential(*made);
    // A server keeps few contexts that have made no call yet. If this fails, the run will report
    // it.
    Call first(*connections[i]);
    first.begin(program, 0);
    first.submit_and_wait();
  }
  return {};
}

}  // namespace rrdk::testrpc
