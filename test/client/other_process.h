// Another process, for tests that need two. EAL cannot be used on both sides of a fork, so it is
// this program again, with the role and the address in its environment.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

namespace rrdk::loopback {

constexpr const char* kRole = "RRDK_TEST_ROLE";
constexpr const char* kUri = "RRDK_TEST_URI";

// Runs the test OtherProcess.Runs of this program, which looks at kRole and returns if there is
// none.
class Process {
 public:
  Process(const char* role, const std::string& uri) {
    int fds[2];
    if (pipe(fds) != 0)
      return;
    pid_ = fork();
    if (pid_ == 0) {
      dup2(fds[1], STDOUT_FILENO);
      close(fds[0]);
      close(fds[1]);
      setenv(kRole, role, 1);
      setenv(kUri, uri.c_str(), 1);
      execl("/proc/self/exe", "other-process", "--gtest_filter=OtherProcess.Runs",
            static_cast<char*>(nullptr));
      _exit(127);
    }
    close(fds[1]);
    output_ = fdopen(fds[0], "r");
  }
  ~Process() {
    kill_hard();
    if (output_ != nullptr)
      fclose(output_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // The rest of the first line that begins with `word`; empty at the end of the output.
  std::string wait_for(const char* word) {
    char line[512];
    while (fgets(line, sizeof(line), output_) != nullptr) {
      line[std::strcspn(line, "\n")] = 0;
      if (std::strncmp(line, word, std::strlen(word)) == 0)
        return line + std::strlen(word);
    }
    return "";
  }
  void kill_hard() {
    if (pid_ <= 0)
      return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  int wait() {
    int status = -1;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = -1;
  FILE* output_ = nullptr;
};

inline void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

}  // namespace rrdk::loopback
