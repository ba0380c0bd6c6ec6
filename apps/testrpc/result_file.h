// Where --json and --csv go.
#pragma once

#include <string>

#include "rrdk/error.h"

namespace rrdk::testrpc {

// A place for one text. A regular file, or one that is not there yet, gets the text whole or not at
// all: a temporary file is written beside it, and renamed. Anything else (a pipe, a device,
// /dev/stdout) is opened and written to. Symbolic links are followed, and stay.
class ResultFile {
 public:
  // "-", and whatever is open as stdout, is stdout; everything else that is printed there goes to
  // stderr from now on. Errors: kSystem, before a run that would be in vain.
  static Result<ResultFile> open(const std::string& path);
  ResultFile() = default;
  ResultFile(ResultFile&& other) noexcept;
  ResultFile& operator=(ResultFile&& other) noexcept;
  ~ResultFile();

  bool wanted() const { return !path_.empty(); }
  bool is_stdout() const { return stdout_ >= 0; }
  Result<void> write(const std::string& text);

 private:
  std::string path_;       // empty: nothing is wanted
  int stdout_ = -1;        // a copy of what stdout was
  bool replaced_ = false;  // by rename; else written into
};

struct ResultFiles {
  ResultFile json, csv;

  // Errors: as ResultFile's, and kInvalidArgument (both are stdout).
  static Result<ResultFiles> open(const std::string& json, const std::string& csv);
};

}  // namespace rrdk::testrpc
