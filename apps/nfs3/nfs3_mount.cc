#include "nfs3_mount.h"

#include <netinet/in.h>

#include <span>
#include <utility>
#include <vector>

#include "rrdk/nfs3.h"
#include "rrdk/tcp_call.h"

namespace rrdk::nfs3 {
namespace {

// rpcbind, asked by the portmapper protocol (RFC 1833 section 3).
constexpr uint16_t kRpcbindPort = 111;
constexpr uint32_t kRpcbind = 100000;
constexpr uint32_t kRpcbindVersion = 2;
constexpr uint32_t kGetPort = 3;

constexpr uint16_t kUsualPort = 20048;  // assigned to mountd by IANA

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
  TcpArguments args;
  for (uint32_t word : {mount::kProgram, mount::kVersion, uint32_t{IPPROTO_TCP}, 0u})
    args.put_u32(word);
  auto results = call_over_tcp({.host = target.host,
                                .port = kRpcbindPort,
                                .program = kRpcbind,
                                .version = kRpcbindVersion,
                                .procedure = kGetPort,
                                .args = std::move(args),
                                .timeout_ms = target.timeout_ms});
  if (!results)
    return kUsualPort;
  Fragment fragment = fragment_of(*results);
  Decoder decoder = decoder_of(fragment);
  uint32_t port = decoder.get_u32();
  bool usable = decoder.at_end() && port != 0 && port <= UINT16_MAX;
  return usable ? static_cast<uint16_t>(port) : kUsualPort;
}

Result<std::vector<std::byte>> call(const MountTarget& target, uint16_t port, uint32_t procedure) {
  TcpArguments args;
  args.put_string(target.path);
  return call_over_tcp({.host = target.host,
                        .port = port,
                        .program = mount::kProgram,
                        .version = mount::kVersion,
                        .procedure = procedure,
                        .args = std::move(args),
                        .timeout_ms = target.timeout_ms});
}

Errc code_of(Status status) {
  if (status == Status::kNoEnt || status == Status::kNotDir)
    return Errc::kNotFound;
  return status == Status::kAcces || status == Status::kPerm ? Errc::kPermission : Errc::kSystem;
}

}  // namespace

Result<FileHandle> mount_export(const MountTarget& target) {
  uint16_t port = find_port(target);
  std::string what = "MOUNT of '" + target.path + "'";
  Result<std::vector<std::byte>> results = call(target, port, mount::kMnt);
  if (!results)
    return fail(results.error().code, what + ": " + results.error().message);
  std::string where = what + " at " + target.host + " port " + std::to_string(port);
  Fragment fragment = fragment_of(*results);
  Decoder decoder = decoder_of(fragment);
  // mountstat3 has nfsstat3's numbers under other names.
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
