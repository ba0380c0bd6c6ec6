// The rendezvous: UNIX sockets at the paths of shm: addresses.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "drivers/shm/mapping.h"
#include "rrdk/error.h"

namespace rrdk::shm {

// The path of "shm:/run/x.sock" or "shm:@name" (abstract). Errors: kBadUri.
Result<std::string> parse_path(std::string_view uri);

// A connected socket. Never waits. Errors: kNotFound, kPermission, kNotAPeer, kRefused.
Result<Fd> connect_socket(const std::string& path);

// A listening socket; its file goes away with it, if it is still ours.
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
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace rrdk::shm
