// A line editor on stdin and stdout, with history and completion: DPDK's, as dpdk-testpmd has it.
#pragma once

#include <termios.h>

#include <functional>
#include <string>
#include <vector>

struct rdline;

namespace rrdk::testrpc {

// What a prompt is for.
class Commands {
 public:
  virtual ~Commands() = default;
  // A line of at least one word.
  virtual void run(const std::vector<std::string>& words) = 0;
  // What may stand behind `words`: whole words.
  virtual std::vector<std::string> next(const std::vector<std::string>& words) const = 0;
  // Ctrl-C. False: nothing was going on; the line is forgotten.
  virtual bool interrupt() = 0;
};

class Prompt {
 public:
  // `commands` outlives it. Takes the terminal, if stdin is one, and gives it back at the end.
  explicit Prompt(Commands& commands);
  ~Prompt();
  Prompt(const Prompt&) = delete;
  Prompt& operator=(const Prompt&) = delete;

  bool made() const { return line_ != nullptr; }
  // Waits up to `timeout_ms` for input, takes it and runs its commands. `until` is asked after each
  // character; when it is true, the rest is left for later. False at the end of the input.
  bool read(int timeout_ms, const std::function<bool()>& until);
  // Around text that is printed while somebody may be typing.
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
