// Closes descriptors that come from a peer, in its own threads: the peer can make close() block for
// any time (on a file of a file system in user space, or a socket whose queue has other
// descriptors). Users take turns, and no user's closes keep all threads busy. A close that cannot
// block, and only takes long, does not wait behind those that can.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstring>
#include <utility>

#include "drivers/shm/mapping.h"

namespace rrdk::shm {

// Any thread; does not block. `sender` is the user whose process sent the descriptor.
void close_elsewhere(Fd fd, uid_t sender) noexcept;

// For a mapping of a peer's memory: giving many pages back takes long, a second for several GiB,
// and its last user may be a polling thread. Any thread; does not block.
void unmap_elsewhere(Mapping mapping) noexcept;

// For a socket of ours that no longer listens: takes out the connections that have not been
// accepted, which are closed with it, and which may contain descriptors.
void close_listening(Fd listening) noexcept;

enum class Backlog {
  kFine,
  kMany,   // many of this user's descriptors wait to be closed: what it sends is read later
  kStuck,  // and none of those that are being closed finishes
};
// Whether more may be taken from processes of `sender`. Any thread.
Backlog janitor_backlog(uid_t sender) noexcept;
// Whether as many descriptors wait as are allowed for all users together. Any thread. A share for
// each user would not help: the user of a visitor is known only once it is accepted, and by then it
// needs a descriptor.
bool janitor_is_full() noexcept;

// The most that the kernel lets a peer send at once (its SCM_MAX_FD). The kernel closes those for
// which there is no space, in the thread that receives, and its owner decides how long the close of
// a socket that lingers takes. So a receiver must have space for all.
constexpr size_t kMostDescriptors = 253;

// Calls take(Fd) for each descriptor in a message, including that of the sender's process, which
// the kernel adds for a socket that was configured so (SO_PASSPIDFD).
template <typename Take>
void for_each_descriptor(msghdr& header, Take take) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    constexpr int kPidfd = 4;  // SCM_PIDFD, which C libraries do not define yet
    if (c->cmsg_level != SOL_SOCKET || (c->cmsg_type != SCM_RIGHTS && c->cmsg_type != kPidfd))
      continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
      take(Fd(fd));
    }
  }
}

// A descriptor that a peer sent.
class PeerFd {
 public:
  PeerFd() = default;
  PeerFd(Fd fd, uid_t sender) noexcept : fd_(std::move(fd)), sender_(sender) {}
  PeerFd(PeerFd&&) noexcept = default;
  PeerFd& operator=(PeerFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(sender_, other.sender_);
    return *this;
  }
  PeerFd(const PeerFd&) = delete;
  PeerFd& operator=(const PeerFd&) = delete;
  ~PeerFd() { close_elsewhere(std::move(fd_), sender_); }

  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }
  int get() const noexcept { return fd_.get(); }
  uid_t sender() const noexcept { return sender_; }
  void set_sender(uid_t sender) noexcept { sender_ = sender; }
  Fd release() noexcept { return std::move(fd_); }

 private:
  Fd fd_;
  uid_t sender_ = static_cast<uid_t>(-1);
};

// Our end of a socket to a peer. No other process has it; descriptors that were not received wait
// in it. The peer sees the end at once.
class PeerSocket {
 public:
  PeerSocket() = default;
  explicit PeerSocket(Fd connected) noexcept;
  // For a socket that does not know which process has its other end.
  PeerSocket(Fd connected, uid_t user) noexcept : fd_(std::move(connected), user) {}
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
  // The user at the other end.
  uid_t user() const noexcept { return fd_.sender(); }
  void set_user(uid_t user) noexcept { fd_.set_sender(user); }
  void reset() noexcept { end(); }

 private:
  void end() noexcept;
  PeerFd fd_;
};

}  // namespace rrdk::shm
