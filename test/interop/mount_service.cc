#include "mount_service.h"

#include <netinet/in.h>
#include <poll.h>
#include <rpc/rpc.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "rrdk/nfs3.h"

namespace rrdk::interop {
namespace {

using nfs3::FileHandle;
using nfs3::Status;

constexpr int kLookMs = 100;  // how soon the thread sees that it is to end
constexpr int kBacklog = 16;

// The dispatcher's answers; libtirpc passes it no argument.
FileHandle root;
std::vector<u_int> taken;

struct MountReply {
  Status status;
};

extern "C" bool_t put_nothing(XDR*, ...) {
  return TRUE;
}

extern "C" bool_t put_mount_reply(XDR* xdr, MountReply* reply) {
  auto status = static_cast<u_int>(reply->status);
  if (!xdr_u_int(xdr, &status))
    return FALSE;
  if (reply->status != Status::kOk)
    return TRUE;
  char handle[nfs3::kMaxHandle];
  auto length = static_cast<u_int>(root.bytes().size());
  std::memcpy(handle, root.bytes().data(), length);
  char* bytes = handle;
  auto flavors = static_cast<u_int>(taken.size());
  return xdr_bytes(xdr, &bytes, &length, nfs3::kMaxHandle) && xdr_u_int(xdr, &flavors) &&
         std::ranges::all_of(taken, [&](u_int& flavor) { return xdr_u_int(xdr, &flavor); });
}

// One export, for everyone: a list of one, with an empty list of groups.
extern "C" bool_t put_exports(XDR* xdr, ...) {
  bool_t more = TRUE, none = FALSE;
  char slash[] = "/";
  char* path = slash;
  return xdr_bool(xdr, &more) && xdr_string(xdr, &path, nfs3::mount::kMaxPath) &&
         xdr_bool(xdr, &none) && xdr_bool(xdr, &none);
}

extern "C" bool_t put_empty_list(XDR* xdr, ...) {
  bool_t none = FALSE;
  return xdr_bool(xdr, &none);
}

extern "C" bool_t get_path(XDR* xdr, char** path) {
  return xdr_string(xdr, path, nfs3::mount::kMaxPath);
}

// Reads a path; returns false if it was invalid, and the caller was told.
bool take_path(SVCXPRT* transport, std::string& path) {
  char* text = nullptr;
  auto get = reinterpret_cast<xdrproc_t>(get_path);
  if (!svc_getargs(transport, get, reinterpret_cast<caddr_t>(&text))) {
    svcerr_decode(transport);
    return false;
  }
  path = text != nullptr ? text : "";
  svc_freeargs(transport, get, reinterpret_cast<caddr_t>(&text));
  return true;
}

void reply(SVCXPRT* transport, xdrproc_t put) {
  svc_sendreply(transport, put, nullptr);
}

extern "C" void dispatch(svc_req* request, SVCXPRT* transport) {
  std::string path;
  switch (request->rq_proc) {
    case NULLPROC:
    case nfs3::mount::kUmntAll:
      return reply(transport, reinterpret_cast<xdrproc_t>(put_nothing));
    case nfs3::mount::kMnt: {
      if (!take_path(transport, path))
        return;
      MountReply answer = {path == "/" ? Status::kOk : Status::kNoEnt};
      svc_sendreply(transport, reinterpret_cast<xdrproc_t>(put_mount_reply), &answer);
      return;
    }
    case nfs3::mount::kUmnt:
      if (take_path(transport, path))
        reply(transport, reinterpret_cast<xdrproc_t>(put_nothing));
      return;
    case nfs3::mount::kDump:  // which clients have mounted is not recorded
      return reply(transport, reinterpret_cast<xdrproc_t>(put_empty_list));
    case nfs3::mount::kExport:
      return reply(transport, reinterpret_cast<xdrproc_t>(put_exports));
    default:
      svcerr_noproc(transport);
  }
}

// A listening socket, and the port that it got.
Result<int> listen_on(uint16_t& port) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
  int on = 1;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  bool listening = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                   bind(fd, generic, length) == 0 && listen(fd, kBacklog) == 0 &&
                   getsockname(fd, generic, &length) == 0;
  if (!listening) {
    Errc code = errno == EADDRINUSE ? Errc::kAddressInUse : Errc::kSystem;
    std::string reason = std::strerror(errno);
    if (fd >= 0)
      close(fd);
    return fail(code, "MOUNT on TCP port " + std::to_string(port) + ": " + reason);
  }
  port = ntohs(address.sin_port);
  return fd;
}

}  // namespace

Result<std::unique_ptr<MountService>> MountService::start(uint16_t port, const FileHandle& handle,
                                                          std::vector<uint32_t> flavors) {
  root = handle;
  taken = std::move(flavors);
  Result<int> fd = listen_on(port);
  if (!fd)
    return tl::unexpected(fd.error());
  SVCXPRT* transport = svc_vc_create(*fd, 0, 0);
  // Without a netconfig entry libtirpc does not tell rpcbind.
  if (transport == nullptr ||
      !svc_reg(transport, nfs3::mount::kProgram, nfs3::mount::kVersion, dispatch, nullptr))
    return fail(Errc::kSystem, "libtirpc does not take the MOUNT service");
  std::unique_ptr<MountService> service(new MountService);
  service->port_ = port;
  service->thread_ = std::thread([raw = service.get()] { raw->serve(); });
  return service;
}

MountService::~MountService() {
  stop_ = true;
  if (thread_.joinable())
    thread_.join();
}

void MountService::serve() {
  while (!stop_) {
    std::vector<pollfd> fds(svc_pollfd, svc_pollfd + svc_max_pollfd);
    int ready = poll(fds.data(), fds.size(), kLookMs);
    if (ready > 0)
      svc_getreq_poll(fds.data(), ready);
  }
}

}  // namespace rrdk::interop
