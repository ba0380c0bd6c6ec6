// Descriptors that come from a peer, closed in a thread of their own: close() can block for as long
// as the peer likes (a TCP socket that lingers, a file of a file system in user space, a socket in
// whose queue there are such descriptors).
#pragma once

#include <utility>

#include "drivers/shm/mapping.h"

namespace rrdk::shm {

// Any thread; does not block. When descriptors come faster than they can be closed, they pile up.
void close_elsewhere(Fd fd) noexcept;

// A descriptor that a peer sent.
class PeerFd {
 public:
  PeerFd() = default;
  PeerFd(Fd fd) noexcept : fd_(std::move(fd)) {}
  PeerFd(PeerFd&&) noexcept = default;
  PeerFd& operator=(PeerFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  PeerFd(const PeerFd&) = delete;
  PeerFd& operator=(const PeerFd&) = delete;
  ~PeerFd() { close_elsewhere(std::move(fd_)); }

  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }
  int get() const noexcept { return fd_.get(); }

 private:
  Fd fd_;
};

// Our end of the socket to a peer; descriptors that were not received wait in it. The peer sees the
// end at once.
class PeerSocket {
 public:
  PeerSocket() = default;
  PeerSocket(Fd fd) noexcept : fd_(std::move(fd)) {}
  PeerSocket(PeerSocket&&) noexcept = default;
  PeerSocket& operator=(PeerSocket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  PeerSocket(const PeerSocket&) = delete;
  PeerSocket& operator=(const PeerSocket&) = delete;
  ~PeerSocket() { end(); }

  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }
  int get() const noexcept { return fd_.get(); }
  void reset() noexcept {
    end();
    fd_ = {};
  }

 private:
  void end() noexcept;
  PeerFd fd_;
};

}  // namespace rrdk::shm
