// Where --json and --csv go, and stdout.
#pragma once

#include <string>

#include "options.h"
#include "rrdk/error.h"

namespace rrdk::testrpc {

// A place for one text. A regular file, or one that is not there yet, gets the text whole or not at
// all: a temporary file is written beside it, and renamed. A file that cannot be replaced (a mount
// point, one in a folder that is not ours to write), a pipe and a device are written into. Symbolic
// links are followed, and stay.
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
  // A text that cannot be written is kept elsewhere, in a file beside it or on stdout, and the
  // error says where.
  Result<void> write(const std::string& text);

 private:
  Result<void> write_beside(const std::string& text, std::string& copy);
  Result<void> write_into(const std::string& text);

  std::string path_;       // empty: nothing is wanted
  int stdout_ = -1;        // a copy of what stdout was
  bool replaced_ = false;  // by rename; else written into
};

struct ResultFiles {
  ResultFile json, csv;

  // Errors: as ResultFile's, and kInvalidArgument (two of --json, --csv and --capture are one file,
  // or one of them is stdout as well).
  static Result<ResultFiles> open(const Options& options);
};

// At the end of the program: whether all that was printed has arrived.
Result<void> close_stdout();

}  // namespace rrdk::testrpc
