#include "nfs3_mount.h"

#include <netinet/in.h>

#include <span>
#include <utility>

#include "nfs3_tcp_call.h"

namespace rrdk::nfs3 {
namespace {

// rpcbind as the portmapper it was (RFC 1833 section 3).
constexpr uint16_t kRpcbindPort = 111;
constexpr uint32_t kRpcbind = 100000;
constexpr uint32_t kRpcbindVersion = 2;
constexpr uint32_t kGetPort = 3;

constexpr uint16_t kUsualPort = 20048;  // what IANA gives mountd

Decoder decoder_of(const Fragment& results) {
  return Decoder(std::span(&results, 1));
}

Fragment fragment_of(const std::vector<std::byte>& bytes) {
  return {bytes.data(), static_cast<uint32_t>(bytes.size())};
}

// The port of the MOUNT service.
uint16_t find_port(const MountTarget& target) {
  if (target.port != 0)
    return target.port;
  std::vector<std::byte> args;
  for (uint32_t word : {mount::kProgram, mount::kVersion, uint32_t{IPPROTO_TCP}, 0u})
    put_u32(args, word);
  auto results = call_over_tcp({target.host, kRpcbindPort, kRpcbind, kRpcbindVersion, kGetPort,
                                std::move(args), target.timeout_ms});
  if (!results)
    return kUsualPort;
  Fragment fragment = fragment_of(*results);
  Decoder decoder = decoder_of(fragment);
  uint32_t port = decoder.get_u32();
  bool usable = decoder.at_end() && port != 0 && port <= UINT16_MAX;
  return usable ? static_cast<uint16_t>(port) : kUsualPort;
}

Result<std::vector<std::byte>> call(const MountTarget& target, uint16_t port, uint32_t procedure) {
  std::vector<std::byte> args;
  put_string(args, target.path);
  return call_over_tcp({target.host, port, mount::kProgram, mount::kVersion, procedure,
                        std::move(args), target.timeout_ms});
}

Errc code_of(Status status) {
  if (status == Status::kNoEnt || status == Status::kNotDir)
    return Errc::kNotFound;
  return status == Status::kAcces || status == Status::kPerm ? Errc::kPermission : Errc::kSystem;
}

}  // namespace

Result<FileHandle> mount_export(const MountTarget& target) {
  uint16_t port = find_port(target);
  std::string where = "MOUNT of '" + target.path + "' at " + target.host;
  Result<std::vector<std::byte>> results = call(target, port, mount::kMnt);
  if (!results)
    return fail(results.error().code, where + ": " + results.error().message);
  Fragment fragment = fragment_of(*results);
  Decoder decoder = decoder_of(fragment);
  // mountstat3 has nfsstat3's numbers, with names of its own.
  auto status = static_cast<Status>(decoder.get_u32());
  if (decoder.ok() && status != Status::kOk)
    return fail(code_of(status), where + ": " + to_string(status));
  FileHandle root = get_handle(decoder);
  if (!decoder.ok() || root.bytes().empty())
    return fail(Errc::kNotAPeer, where + ": the answer does not decode");
  return root;
}

void unmount_export(const MountTarget& target) {
  (void)call(target, find_port(target), mount::kUmnt);
}

}  // namespace rrdk::nfs3
