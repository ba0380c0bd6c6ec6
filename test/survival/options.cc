#include "options.h"

#include <cstdlib>
#include <string_view>

namespace rrdk::survival {

const char* to_string(Mode mode) {
  return mode == Mode::kKill ? "kill" : "break";
}

const char* usage() {
  return "survival [--mode kill|break] [--seconds N] [--seed N] [--json FILE] [--server-cache]\n";
}

Result<Options> parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string_view name = argv[i];
    if (name == "--server-cache") {
      options.server_cache = true;
      continue;
    }
    if (i + 1 == argc)
      return fail(Errc::kInvalidArgument, std::string(name) + ": no such option, or no value");
    std::string value = argv[++i];
    if (name == "--mode" && (value == "kill" || value == "break"))
      options.mode = value == "kill" ? Mode::kKill : Mode::kBreak;
    else if (name == "--seconds" && std::atof(value.c_str()) >= 1)
      options.seconds = std::atof(value.c_str());
    else if (name == "--seed")
      options.seed = std::strtoull(value.c_str(), nullptr, 0);
    else if (name == "--json")
      options.json = value;
    else if (name == "--role" && (value == "server" || value == "client"))
      options.role = value == "server" ? Role::kServer : Role::kClient;
    else if (name == "--uri")
      options.uri = value;
    else if (name == "--journal")
      options.journal = value;
    else if (name == "--report-fd")
      options.report_fd = std::atoi(value.c_str());
    else
      return fail(Errc::kInvalidArgument,
                  std::string(name) + ": not an option, or not with " + value);
  }
  if (options.server_cache && options.mode != Mode::kBreak)
    return fail(
        Errc::kInvalidArgument,
        "--server-cache is for --mode break: a server that is killed takes its cache along");
  return options;
}

}  // namespace rrdk::survival
