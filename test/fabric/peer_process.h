// Peers in processes of their own. EAL does not survive a fork, so a process that never has EAL is
// forked off before the first test and forks the peers.
#pragma once

#include <sys/types.h>

#include <string>

namespace rrdk::fabric::test {

// What a peer does with the address it is given; true: all was as it should be.
using PeerRole = bool (*)(const std::string& uri);

class PeerProcess {
 public:
  PeerProcess(PeerRole role, const std::string& uri);
  ~PeerProcess();  // kills it
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  void kill();
  // Waits for its end: whether its role returned true.
  bool succeeded();

 private:
  pid_t pid_ = -1;
  int exit_pipe_ = -1;  // carries its exit status
};

}  // namespace rrdk::fabric::test
