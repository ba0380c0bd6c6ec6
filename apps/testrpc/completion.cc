#include "completion.h"

#include "option_table.h"

namespace rrdk::testrpc {
namespace {

constexpr const char* kSchemes = "shm: iwarp:// verbs://";

bool is_file(const Option& option) {
  return option.argument != nullptr && std::string_view(option.argument).starts_with("FILE");
}

bool is_uri(const Option& option) {
  return option.argument != nullptr &&
         std::string_view(option.argument).find("URI") != std::string_view::npos;
}

// Returns the words that complete the value, if any.
std::string words_for(const Option& option) {
  if (is_uri(option))
    return kSchemes;
  return option.choices == nullptr ? "" : option.choices;
}

std::string bash() {
  std::string names = "-i --help --version", cases;
  for (const Option& option : option_table()) {
    names += std::string(" --") + option.name;
    if (option.argument == nullptr || option.argument[0] == '[')
      continue;
    cases += std::string("    --") + option.name + ") ";
    if (is_file(option))
      cases += "compopt -o default; ";
    else if (std::string words = words_for(option); !words.empty())
      cases += "COMPREPLY=($(compgen -W '" + words + "' -- \"$word\")); ";
    cases += "return ;;\n";
  }
  return R"(# Completion of testrpc's command line for bash; made by: testrpc --completion bash
_testrpc() {
  local word=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD - 1]}
  # bash-completion or not: a value may stand behind an equals sign.
  [ "$option" != = ] || option=${COMP_WORDS[COMP_CWORD - 2]}
  [ "$word" != = ] || { option=${COMP_WORDS[COMP_CWORD - 1]}; word=; }
  COMPREPLY=()
  case $option in
)" + cases +
         "  esac\n  COMPREPLY=($(compgen -W '" + names +
         "' -- \"$word\"))\n}\ncomplete -F _testrpc testrpc\n";
}

// Returns `text` as a description for zsh's _arguments, in single quotes.
std::string described(std::string_view text) {
  std::string result;
  for (char c : text) {
    if (c == '\'')
      result += "'\\'";
    else if (c == '[' || c == ']' || c == ':' || c == '\\')
      result += '\\';
    result += c;
  }
  return result;
}

std::string zsh() {
  std::string text =
      "#compdef testrpc\n# Completion of testrpc's command line for zsh; made by: testrpc "
      "--completion zsh\n"
      "_arguments \\\n  '-i[a prompt]' \\\n  '--help[what there is]' \\\n  '--version[the "
      "version]'";
  for (const Option& option : option_table()) {
    bool may_stay_away = option.argument != nullptr && option.argument[0] == '[';
    text += std::string(" \\\n  '*--") + option.name + (may_stay_away ? "=" : "") + "[" +
            described(option.help) + "]";
    if (option.argument != nullptr) {
      std::string words = words_for(option);
      text += (may_stay_away ? "::" : ":") + described(option.argument) + ":" +
              (is_file(option) ? "_files"
               : words.empty() ? " "
                               : "(" + described(words) + ")");
    }
    text += "'";
  }
  return text + "\n";
}

}  // namespace

Result<std::string> completion(std::string_view shell) {
  if (shell == "bash")
    return bash();
  if (shell == "zsh")
    return zsh();
  return fail(Errc::kInvalidArgument, "--completion is for bash and zsh");
}

}  // namespace rrdk::testrpc
