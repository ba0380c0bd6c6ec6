// The rendezvous: UNIX sockets at the paths of shm: addresses.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "drivers/shm/mapping.h"
#include "fabric/device.h"
#include "rrdk/error.h"

namespace rrdk::shm {

struct Address final : fabric::Place {
  std::string path;  // of the socket; "@name" is an abstract one
  // Bytes of a peer's memory that one connection may have mapped here; 0: not stated.
  uint64_t peer_memory = 0;
};

// "shm:/run/x.sock" or "shm:@name", followed by "?peer_memory=SIZE": bytes, or with K, M or G; and
// "timeout=S", the seconds that connecting or, at a listener, a peer's handshake may take. Options
// are joined by "&". Errors: kBadUri.
Result<Address> parse_address(std::string_view uri);

// fabric::Driver::find.
Result<std::unique_ptr<fabric::Place>> find(const std::string& uri, fabric::Names names);

// A connected socket. Never waits. Errors: kNotFound, kPermission, kNotAPeer, kRefused, kSystem.
Result<Fd> connect_socket(const std::string& path);

// A listening socket; its file is removed with it, if the file is still ours.
class ListeningSocket {
 public:
  // Errors: kAddressInUse, kNotFound (no such directory), kPermission, kSystem.
  static Result<ListeningSocket> open(const std::string& path);
  ListeningSocket(ListeningSocket&&) noexcept = default;
  ListeningSocket& operator=(ListeningSocket&&) = delete;
  ~ListeningSocket();

  int fd() const { return fd_.get(); }

 private:
  ListeningSocket(std::string path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  std::string path_;
  Fd fd_;
  Fd directory_;  // of the file, even if the process changes its directory; empty: there is no file
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace rrdk::shm
