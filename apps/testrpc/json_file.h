// Where --json goes.
#pragma once

#include <string>

#include "rrdk/error.h"

namespace rrdk::testrpc {

// A place for one text. A regular file, or one that is not there yet, gets it whole or not at all:
// it is written beside it, and renamed. Anything else (a pipe, a device, /dev/stdout) is written
// into. Symbolic links are followed, and stay.
class JsonFile {
 public:
  // "-", and whatever is open as stdout, is stdout; everything else that is printed there goes to
  // stderr from now on. Errors: kSystem, before a run that would be in vain.
  static Result<JsonFile> open(const std::string& path);
  JsonFile() = default;
  JsonFile(JsonFile&& other) noexcept;
  JsonFile& operator=(JsonFile&& other) noexcept;
  ~JsonFile();

  bool wanted() const { return !path_.empty(); }
  Result<void> write(const std::string& text);

 private:
  std::string path_;       // empty: nothing is wanted
  int stdout_ = -1;        // a copy of what stdout was
  bool replaced_ = false;  // by rename; else written into
};

}  // namespace rrdk::testrpc
