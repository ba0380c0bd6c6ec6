#include "drivers/shm/socket.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>

#include "base/uri.h"
#include "drivers/shm/janitor.h"

namespace rrdk::shm {

namespace {

constexpr std::string_view kPrefix = "shm:";
constexpr size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;
// A part of a process's address space.
constexpr uint64_t kMostPeerMemory = uint64_t{1} << 45;

struct SocketAddress {
  sockaddr_un un{};
  socklen_t length = 0;

  explicit SocketAddress(const std::string& path) {
    un.sun_family = AF_UNIX;
    std::memcpy(un.sun_path, path.data(), path.size());
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
    if (path[0] == '@') {
      un.sun_path[0] = '\0';
      --length;
    }
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&un); }
};

bool is_abstract(const std::string& path) {
  return path[0] == '@';
}

std::string because(int error) {
  return std::string(": ") + std::strerror(error);
}

Fd new_socket() {
  return Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// The directory of a path, which need not be readable.
Fd directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string directory =
      slash == std::string::npos ? "." : (slash == 0 ? "/" : path.substr(0, slash));
  return Fd(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
}

// Blocks other listeners of ours while one checks what is in the directory and replaces it. The
// lock is on the directory itself, so that no lock file is left behind.
class DirectoryLock {
 public:
  explicit DirectoryLock(const Fd& directory)
      : fd_(::openat(directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    // An unreadable directory cannot be locked; bind() still decides which one is first.
    if (fd_ && ::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0)
      wait_a_little();
  }

 private:
  // Another process may hold the lock for ever, which must not keep a server from starting.
  void wait_a_little() {
    constexpr int kTries = 100;
    constexpr useconds_t kPause = 10000;
    for (int i = 0; i < kTries && ::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0; ++i)
      ::usleep(kPause);
  }
  Fd fd_;
};

// Makes `path` free for binding: removes the socket of a server that is gone.
Result<void> clear_path(const std::string& path) {
  struct stat st{};
  if (::lstat(path.c_str(), &st) != 0)
    return {};
  if (!S_ISSOCK(st.st_mode))
    return fail(Errc::kAddressInUse, "it exists and is not a socket");
  const PeerSocket probe(new_socket(), ::geteuid());  // a process that listens there may send to it
  const SocketAddress address(path);
  if (::connect(probe.get(), address.get(), address.length) == 0 || errno == EAGAIN)
    return fail(Errc::kAddressInUse, "another server listens there");
  if (errno == EPROTOTYPE)
    return fail(Errc::kAddressInUse, "it is the socket of something else");
  if (errno == EACCES || errno == EPERM)
    return fail(Errc::kPermission, std::strerror(errno));
  if (errno != ECONNREFUSED)
    return fail(Errc::kAddressInUse, std::strerror(errno));
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    return fail(Errc::kPermission, "cannot remove the stale socket" + because(errno));
  return {};
}

// Returns false if the value is invalid.
bool take_peer_memory(std::string_view option, Address& address) {
  const char* const begin = std::to_address(option.begin());
  const char* const end = std::to_address(option.end());
  const auto [unit, error] = std::from_chars(begin, end, address.peer_memory);
  if (error != std::errc() || address.peer_memory == 0 || address.peer_memory > kMostPeerMemory)
    return false;
  constexpr std::string_view kUnits = "KMG";
  if (unit == end)
    return true;
  const size_t power = kUnits.find(*unit);
  if (power == std::string_view::npos || unit + 1 != end)
    return false;
  const size_t shift = 10 * (power + 1);
  if (address.peer_memory > kMostPeerMemory >> shift)
    return false;
  address.peer_memory <<= shift;
  return true;
}

// Returns false if there is no such option, or if the value is invalid.
bool take_option(std::string_view option, Address& address) {
  const size_t sign = option.find('=');
  if (sign == std::string_view::npos)
    return false;
  const std::string_view name = option.substr(0, sign), value = option.substr(sign + 1);
  if (name == "peer_memory")
    return take_peer_memory(value, address);
  address.timeout = base::parse_timeout(value);
  return name == base::kTimeoutOption && address.timeout.has_value();
}

Errc bind_error(int error) {
  switch (error) {
    case EADDRINUSE:
      return Errc::kAddressInUse;
    case ENOENT:
    case ENOTDIR:
      return Errc::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return Errc::kPermission;
    default:
      return Errc::kSystem;
  }
}

}  // namespace

Result<Address> parse_address(std::string_view uri) {
  if (!uri.starts_with(kPrefix))
    return fail(Errc::kBadUri, "not a shm: address");
  const size_t query = uri.find('?');
  std::string_view path = uri.substr(0, query).substr(kPrefix.size());
  if (path.starts_with("//"))  // an empty authority: shm:///run/x.sock
    path.remove_prefix(2);
  if (path.empty() || path == "@")
    return fail(Errc::kBadUri, "names no socket; shm:/PATH is expected");
  if (path.find('\0') != std::string_view::npos)
    return fail(Errc::kBadUri, "the address contains a zero byte");
  if (path.size() > kMaxPath)
    return fail(Errc::kBadUri, "the path is longer than " + std::to_string(kMaxPath) + " bytes");
  Address address;
  address.path = path;
  for (size_t at = query; at != std::string_view::npos;) {
    const size_t next = uri.find('&', at + 1);
    if (!take_option(uri.substr(at + 1, next - at - 1), address))
      return fail(
          Errc::kBadUri,
          "the options after the path are peer_memory=SIZE, in bytes or with K, M or G, and "
          "timeout=1 to 3600 (seconds)");
    at = next;
  }
  return address;
}

// A path needs no name server.
Result<std::unique_ptr<fabric::Place>> find(const std::string& uri, fabric::Names /*names*/) {
  Result<Address> address = parse_address(uri);
  if (!address)
    return tl::unexpected(address.error());
  return std::make_unique<Address>(std::move(*address));
}

Result<Fd> connect_socket(const std::string& path) {
  Fd fd = new_socket();
  if (!fd)
    return fail(Errc::kSystem, "socket" + because(errno));
  const SocketAddress address(path);
  if (::connect(fd.get(), address.get(), address.length) == 0)
    return fd;
  switch (errno) {
    case ENOENT:
    case ENOTDIR:
      return fail(Errc::kNotFound, "no such socket; is the server running?");
    case ECONNREFUSED: {
      struct stat st{};
      if (!is_abstract(path) && ::lstat(path.c_str(), &st) == 0 && !S_ISSOCK(st.st_mode))
        return fail(Errc::kNotAPeer, "it is not a socket");
      return fail(Errc::kNotFound, "no server listens there");
    }
    case EACCES:
    case EPERM:
      return fail(Errc::kPermission, std::strerror(errno));
    case EPROTOTYPE:
      return fail(Errc::kNotAPeer, "it is the socket of something else");
    case EAGAIN:
      return fail(Errc::kRefused, "too many connections wait for the server");
    default:
      return fail(Errc::kSystem, std::strerror(errno));
  }
}

Result<ListeningSocket> ListeningSocket::open(const std::string& path) {
  Fd fd = new_socket();
  if (!fd)
    return fail(Errc::kSystem, "socket" + because(errno));
  Fd directory;
  std::unique_ptr<DirectoryLock> lock;
  if (!is_abstract(path)) {
    directory = directory_of(path);
    lock = std::make_unique<DirectoryLock>(directory);
    if (Result<void> cleared = clear_path(path); !cleared)
      return tl::unexpected(cleared.error());
  }
  const SocketAddress address(path);
  if (::bind(fd.get(), address.get(), address.length) != 0)
    return fail(bind_error(errno), "cannot listen there" + because(errno));
  ListeningSocket socket(path, std::move(fd));
  struct stat st{};
  if (!is_abstract(path) && ::lstat(path.c_str(), &st) == 0) {
    socket.directory_ = std::move(directory);
    socket.device_ = st.st_dev;
    socket.inode_ = st.st_ino;
  }
  if (::listen(socket.fd(), SOMAXCONN) != 0)
    return fail(Errc::kSystem, "listen" + because(errno));
  return socket;
}

ListeningSocket::~ListeningSocket() {
  if (!fd_)
    return;
  if (directory_) {
    const DirectoryLock lock(directory_);
    const std::string name = path_.substr(path_.rfind('/') + 1);
    struct stat st{};
    if (::fstatat(directory_.get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        st.st_dev == device_ && st.st_ino == inode_)
      ::unlinkat(directory_.get(), name.c_str(), 0);
  }
  close_listening(std::move(fd_));
}

}  // namespace rrdk::shm
