// The table of testrpc's options, which the parser, the help, `set` and the completion use.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "options.h"

namespace rrdk::testrpc {

// When an option can be given.
enum class Kind : uint8_t {
  kStart,  // fixed when the process starts
  kRun,    // applies to the next run: interactive mode may set it
};

// In the order of --help and of doc/testrpc.md.
enum class Group : uint8_t {
  kRole,
  kCalls,
  kResults,
  kThreads,
  kTransport,
  kSurvival,
  kServer,
  kNfs
};
constexpr uint32_t kGroups = 8;
const char* title_of(Group group);

// The roles that use an option; any other role refuses it.
enum For : uint8_t {
  kForServer = 1,
  kForClient = 2,
  kForSelf = 4,
  kCallers = kForClient | kForSelf,
  kServers = kForServer | kForSelf,
  kEnds = kForServer | kForClient,
  kEverybody = 7,
};

struct Option {
  const char* name;
  const char* argument;  // null: none; in brackets: optional
  Kind kind;
  Group group;
  uint8_t roles;        // For
  const char* choices;  // completions of the value, separated by spaces; may be null
  const char* help;
  Result<void> (*apply)(Options& options, const std::string& value);
};

std::span<const Option> option_table();
const Option* find_option(std::string_view name);
// Returns ", did you mean X?" for a name that differs from `word` by one or two typing errors, else
// an empty string.
std::string did_you_mean(std::string_view word, std::span<const std::string> names,
                         std::string_view prefix = "");
// The same for the options, with their dashes.
std::string did_you_mean_option(std::string_view word);

}  // namespace rrdk::testrpc
