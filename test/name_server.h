// A name server controlled by the test: getaddrinfo() of a test program that has name_server.cc.
// Names that the test has not set are resolved by the system.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace rrdk::test {

// `name` has these numeric addresses, in this order; without any, the name does not exist.
void set_name(const std::string& name, std::vector<std::string> addresses);
// Questions for `name` get no answer until it is released.
void silence_name(const std::string& name, bool silent);
// How often `name` was asked for, answered or not.
int times_asked(const std::string& name);

// A name at 127.0.0.1 whose name server is silent while this lives. It is in no cache.
class SilentName {
 public:
  explicit SilentName(std::string name);
  ~SilentName() { silence_name(name_, false); }
  SilentName(const SilentName&) = delete;
  SilentName& operator=(const SilentName&) = delete;

  int asked() const { return times_asked(name_) - asked_before_; }

 private:
  const std::string name_;
  const int asked_before_;
};

}  // namespace rrdk::test
