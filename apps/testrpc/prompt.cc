#include "prompt.h"

#include <cmdline_rdline.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace rrdk::testrpc {
namespace {

constexpr char kCtrlA = 1;  // to the beginning of the line
constexpr char kCtrlC = 3;
constexpr char kCtrlK = 11;  // deletes up to the end of the line
constexpr char kCtrlU = 21;  // deletes the line; not supported by DPDK's line editor
constexpr const char* kText = "testrpc> ";

int put_char(rdline*, char c) {
  return static_cast<int>(::write(STDOUT_FILENO, &c, 1));
}

size_t common_length(const std::vector<std::string>& words) {
  size_t length = words.front().size();
  for (const std::string& word : words) {
    auto [end, other] = std::ranges::mismatch(words.front(), word);
    length = std::min(length, static_cast<size_t>(end - words.front().begin()));
  }
  return length;
}

}  // namespace

Prompt::Prompt(Commands& commands) : commands_(commands) {
  terminal_ = tcgetattr(STDIN_FILENO, &before_) == 0;
  if (terminal_) {
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  }
  line_ = rdline_new(
      put_char,
      [](rdline* line, const char* text, unsigned) {
        static_cast<Prompt*>(rdline_get_opaque(line))->validate(text);
      },
      [](rdline* line, const char* text, char* to, unsigned room, int* state) {
        return static_cast<Prompt*>(rdline_get_opaque(line))->complete(text, to, room, *state);
      },
      this);
  std::fflush(stdout);
  if (line_ != nullptr)
    rdline_newline(line_, kText);
}

Prompt::~Prompt() {
  if (line_ != nullptr)
    rdline_free(line_);
  if (terminal_)
    tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

bool Prompt::read(int timeout_ms, const std::function<bool()>& until) {
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  while (poll(&input, 1, timeout_ms) > 0) {
    char c;
    const ssize_t got = ::read(STDIN_FILENO, &c, 1);
    if (got == 0 && !terminal_)
      take('\n');  // the last line of a file may lack its end
    if (got != 1 || !take(c))
      return false;
    if (until())
      return true;
    timeout_ms = 0;
  }
  return true;
}

// Returns false at the end of the input.
bool Prompt::take(char c) {
  if (c == kCtrlC) {
    if (!commands_.interrupt()) {
      std::printf("^C\n");
      std::fflush(stdout);
      rdline_newline(line_, kText);
    }
    return true;
  }
  if (c == kCtrlU) {
    rdline_char_in(line_, kCtrlA);
    c = kCtrlK;
  }
  int outcome = rdline_char_in(line_, c);
  if (outcome == RDLINE_RES_VALIDATED)
    rdline_newline(line_, kText);
  return outcome >= 0;
}

void Prompt::clear_line() {
  if (terminal_)
    std::fputs("\r\033[K", stdout);
}

void Prompt::redraw() {
  std::fflush(stdout);
  if (terminal_)
    rdline_redisplay(line_);
}

std::vector<std::string> Prompt::words_of(const std::string& text) {
  std::vector<std::string> words;
  for (size_t at = 0; (at = text.find_first_not_of(" \t\r\n", at)) != std::string::npos;) {
    size_t end = std::min(text.find_first_of(" \t\r\n", at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

void Prompt::validate(const char* text) {
  std::vector<std::string> words = words_of(text);
  if (words.empty() || words.front().starts_with('#'))
    return;
  const char* last = rdline_get_history_item(line_, 0);
  std::string line(text, std::strcspn(text, "\n"));
  if (last == nullptr || line != last)
    rdline_add_history(line_, line.c_str());
  commands_.run(words);
  std::fflush(stdout);
}

// rdline's protocol: RDLINE_RES_COMPLETE returns characters to add; 1 returns one of several
// choices, and rdline calls again with the same `state`; 0 means no more.
int Prompt::complete(const char* text, char* to, unsigned room, int& state) {
  std::vector<std::string> words = words_of(text);
  std::string typed;
  size_t length = std::strlen(text);
  if (!words.empty() && length != 0 && std::strchr(" \t", text[length - 1]) == nullptr) {
    typed = words.back();
    words.pop_back();
  }
  // Only the last part of a list is completed.
  size_t comma = typed.rfind(',');
  std::string part = comma == std::string::npos ? typed : typed.substr(comma + 1);
  std::vector<std::string> choices = commands_.next(words);
  std::erase_if(choices, [&](const std::string& choice) { return !choice.starts_with(part); });
  if (state <= 0 && !choices.empty()) {
    std::string more = choices.front().substr(part.size(), common_length(choices) - part.size());
    if (choices.size() == 1 && !choices.front().ends_with('='))
      more += ' ';
    if (state == 0 && !more.empty()) {
      std::snprintf(to, room, "%s", more.c_str());
      return RDLINE_RES_COMPLETE;
    }
    state = 0;
  }
  if (static_cast<size_t>(state) >= choices.size())
    return 0;
  std::snprintf(to, room, "%s", choices[static_cast<size_t>(state++)].c_str());
  return 1;
}

}  // namespace rrdk::testrpc
