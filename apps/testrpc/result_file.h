// The outputs of --json and --csv, and stdout.
#pragma once

#include <string>

#include "options.h"
#include "rrdk/error.h"

namespace rrdk::testrpc {

// The destination of one text. A regular file, or one that does not exist yet, gets the complete
// text or none: a temporary file is written beside it and renamed. A file that cannot be replaced
// (a mount point, or in a folder that is not writable), a pipe or a device is written directly.
// Symbolic links are followed, and stay.
class ResultFile {
 public:
  // "-", and any name of the file that is open as stdout, means stdout; all other output to stdout
  // goes to stderr from now on. Errors: kSystem, before a run whose results could not be written.
  static Result<ResultFile> open(const std::string& path);
  ResultFile() = default;
  ResultFile(ResultFile&& other) noexcept;
  ResultFile& operator=(ResultFile&& other) noexcept;
  ~ResultFile();

  bool wanted() const { return !path_.empty(); }
  bool is_stdout() const { return stdout_ >= 0; }
  // A text that cannot be written is saved elsewhere, in a file beside it or on stdout, and the
  // error says where.
  Result<void> write(const std::string& text);

 private:
  Result<void> write_beside(const std::string& text, std::string& copy);
  Result<void> write_into(const std::string& text);

  std::string path_;       // empty: no output
  int stdout_ = -1;        // a copy of the original stdout
  bool replaced_ = false;  // by rename; else written directly
};

struct ResultFiles {
  ResultFile json, csv;

  // Errors: those of ResultFile, and kInvalidArgument (two of --json, --csv and --capture are the
  // same file, or one is also stdout).
  static Result<ResultFiles> open(const Options& options);
};

// Called at the end of the program. Returns an error if some output was lost.
Result<void> close_stdout();

}  // namespace rrdk::testrpc
