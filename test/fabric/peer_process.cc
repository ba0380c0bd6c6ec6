#include "test/fabric/peer_process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>

namespace rrdk::fabric::test {

namespace {

struct Order {
  PeerRole role;  // the forker is a fork of the tests: addresses are the same
  std::array<char, 256> uri;
};

int forker_socket = -1;

// Sends one int beside a descriptor.
void send_with_descriptor(int socket, int value, int fd) {
  std::array<char, CMSG_SPACE(sizeof(int))> control{};
  iovec piece{&value, sizeof(value)};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  cmsghdr* c = CMSG_FIRSTHDR(&header);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(c), &fd, sizeof(fd));
  ::sendmsg(socket, &header, MSG_NOSIGNAL);
}

int receive_with_descriptor(int socket, int& fd) {
  std::array<char, CMSG_SPACE(sizeof(int))> control{};
  int value = -1;
  iovec piece{&value, sizeof(value)};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  if (::recvmsg(socket, &header, MSG_CMSG_CLOEXEC) <= 0 || CMSG_FIRSTHDR(&header) == nullptr)
    return -1;
  std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(fd));
  return value;
}

// A pipe takes these at once.
constexpr size_t kMostWords = 2048;

std::string run_role(const Order& order) {
  try {
    return order.role(order.uri.data());
  } catch (const std::exception& thrown) {
    return std::string("exception: ") + thrown.what();
  }
}

// Waits for one peer and passes its status on; a process of its own, so that the forker never
// blocks.
[[noreturn]] void supervise(const Order& order, int socket) {
  int ends[2];
  if (::pipe(ends) != 0)
    ::_exit(1);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close(ends[0]);
    ::close(socket);
    const std::string failure = run_role(order);
    (void)!::write(ends[1], failure.data(), std::min(failure.size(), kMostWords));
    ::_exit(failure.empty() ? 0 : 1);
  }
  send_with_descriptor(socket, pid, ends[0]);
  ::close(ends[0]);
  ::close(socket);
  int status = 0;
  ::waitpid(pid, &status, 0);
  (void)!::write(ends[1], &status, sizeof(status));
  ::_exit(0);
}

[[noreturn]] void run_forker(int socket) {
  ::signal(SIGCHLD, SIG_IGN);
  Order order;
  while (::recv(socket, &order, sizeof(order), 0) == sizeof(order)) {
    if (::fork() == 0) {
      ::signal(SIGCHLD, SIG_DFL);
      supervise(order, socket);
    }
  }
  ::_exit(0);
}

bool start_forker() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return false;
  if (::fork() == 0) {
    ::close(ends[0]);
    run_forker(ends[1]);
  }
  ::close(ends[1]);
  forker_socket = ends[0];
  return true;
}

// Before main(), and so before EAL and every thread.
const bool forker_started = start_forker();

}  // namespace

PeerProcess::PeerProcess(PeerRole role, const std::string& uri) {
  Order order{role, {}};
  uri.copy(order.uri.data(), order.uri.size() - 1);
  ::send(forker_socket, &order, sizeof(order), 0);
  pid_ = receive_with_descriptor(forker_socket, end_pipe_);
  EXPECT_GT(pid_, 0);
}

PeerProcess::~PeerProcess() {
  if (end_pipe_ < 0)
    return;
  kill();
  failure();
}

void PeerProcess::kill() {
  if (pid_ > 0)
    ::kill(pid_, SIGKILL);
}

std::string PeerProcess::failure() {
  std::string words;
  std::array<char, kMostWords> piece;
  for (ssize_t n; (n = ::read(end_pipe_, piece.data(), piece.size())) > 0;)
    words.append(piece.data(), static_cast<size_t>(n));
  ::close(end_pipe_);
  end_pipe_ = -1;
  pid_ = -1;
  int status = 0;
  if (words.size() < sizeof(status))
    return "the process that waited for the peer did not tell how it ended";
  std::memcpy(&status, words.data() + words.size() - sizeof(status), sizeof(status));
  words.resize(words.size() - sizeof(status));
  if (WIFSIGNALED(status))
    words += "the peer was ended by signal " + std::to_string(WTERMSIG(status));
  else if (words.empty() && WEXITSTATUS(status) != 0)
    words = "the peer ended with status " + std::to_string(WEXITSTATUS(status));
  return words;
}

}  // namespace rrdk::fabric::test
