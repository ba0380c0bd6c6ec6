// A line editor on stdin and stdout with history and completion: DPDK's, as in dpdk-testpmd.
#pragma once

#include <termios.h>

#include <functional>
#include <string>
#include <vector>

struct rdline;

namespace rrdk::testrpc {

// The commands of a prompt.
class Commands {
 public:
  virtual ~Commands() = default;
  // Runs a line of at least one word.
  virtual void run(const std::vector<std::string>& words) = 0;
  // Returns the words that may follow `words`.
  virtual std::vector<std::string> next(const std::vector<std::string>& words) const = 0;
  // Called on Ctrl-C. Returns false if there was nothing to interrupt; the line is then discarded.
  virtual bool interrupt() = 0;
};

class Prompt {
 public:
  // `commands` outlives the Prompt, which takes over the terminal, if stdin is one, until it is
  // destroyed.
  explicit Prompt(Commands& commands);
  ~Prompt();
  Prompt(const Prompt&) = delete;
  Prompt& operator=(const Prompt&) = delete;

  bool made() const { return line_ != nullptr; }
  // Waits up to `timeout_ms` for input, reads it and runs its commands. `until` is called after
  // each character; if it returns true, the rest is left for later. Returns false at the end of the
  // input.
  bool read(int timeout_ms, const std::function<bool()>& until);
  // Called around text that is printed while the user may be typing.
  void clear_line();
  void redraw();

 private:
  static std::vector<std::string> words_of(const std::string& text);
  void validate(const char* text);
  int complete(const char* text, char* to, unsigned room, int& state);
  bool take(char c);

  Commands& commands_;
  rdline* line_ = nullptr;
  bool terminal_ = false;
  termios before_ = {};
};

}  // namespace rrdk::testrpc
