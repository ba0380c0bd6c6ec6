#include "child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

namespace rrdk::survival {

Child::Child(const std::vector<std::string>& arguments, int fd) {
  std::vector<char*> argv = {const_cast<char*>("survival")};
  for (const std::string& argument : arguments)
    argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t parent = getpid();
  pid_ = fork();
  if (pid_ != 0)
    return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (fd >= 0)
    fcntl(fd, F_SETFD, 0);  // all others close at exec
  if (getppid() == parent)
    execv("/proc/self/exe", argv.data());
  _exit(127);
}

Child& Child::operator=(Child&& other) noexcept {
  if (this != &other) {
    kill_hard();
    pid_ = std::exchange(other.pid_, -1);
  }
  return *this;
}

bool Child::ended() {
  if (pid_ <= 0 || waitpid(pid_, nullptr, WNOHANG) == 0)
    return false;
  pid_ = -1;
  return true;
}

void Child::kill_hard() {
  if (pid_ <= 0)
    return;
  kill(pid_, SIGKILL);
  waitpid(std::exchange(pid_, -1), nullptr, 0);
}

int Child::finish() {
  if (pid_ <= 0)
    return -1;
  constexpr int kTries = 3000;
  constexpr useconds_t kPauseUs = 10000;
  kill(pid_, SIGTERM);
  for (int i = 0; i < kTries; ++i) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    usleep(kPauseUs);
  }
  kill_hard();
  return -1;
}

}  // namespace rrdk::survival
