// Peers in their own processes. EAL does not survive a fork, so a process that never has EAL is
// forked off before the first test, and forks the peers.
#pragma once

#include <sys/types.h>

#include <string>

namespace rrdk::fabric::test {

// What a peer does with the address that it is given. Returns what went wrong, or an empty text.
using PeerRole = std::string (*)(const std::string& uri);

class PeerProcess {
 public:
  PeerProcess(PeerRole role, const std::string& uri);
  ~PeerProcess();  // kills it
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  void kill();
  // Waits for its end, and returns what went wrong: its role's text, or how the process ended.
  // Empty if nothing did.
  std::string failure();

 private:
  pid_t pid_ = -1;
  int end_pipe_ = -1;  // carries the role's text and, behind it, the exit status
};

}  // namespace rrdk::fabric::test
