// A process that runs this program in another role.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace rrdk::survival {

class Child {
 public:
  Child() = default;
  // `arguments` without the program's name. It ends when this process ends, and inherits `fd`, if
  // that is a descriptor.
  explicit Child(const std::vector<std::string>& arguments, int fd = -1);
  ~Child() { kill_hard(); }
  Child(Child&& other) noexcept : pid_(other.pid_) { other.pid_ = -1; }
  Child& operator=(Child&& other) noexcept;

  pid_t pid() const { return pid_; }
  // Whether it has ended by itself.
  bool ended();
  void kill_hard();
  // Sends SIGTERM and waits. Returns its exit status, or -1 if it died of a signal or took too
  // long.
  int finish();

 private:
  pid_t pid_ = -1;
};

}  // namespace rrdk::survival
