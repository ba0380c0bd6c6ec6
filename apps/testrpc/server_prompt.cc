#include "server_prompt.h"

#include <cinttypes>
#include <cstdio>

#include "report.h"
#include "rrdk/faults.h"
#include "server_role.h"
#include "stop.h"

namespace rrdk::testrpc {
namespace {

constexpr uint64_t kLookNs = 10'000'000;
constexpr const char* kShow = "show what: stats, connections, cores, faults";

}  // namespace

ServerPrompt::ServerPrompt(Server& server, Runtime& runtime, const Options& options)
    : server_(server),
      runtime_(runtime),
      options_(options),
      faults_(options.faults ? to_string(*options.faults) : "off"),
      prompt_(*this) {}

bool ServerPrompt::look(int timeout_ms) {
  return prompt_.read(timeout_ms, [this] { return quit_; }) && !quit_;
}

bool ServerPrompt::look_now_and_then() {
  uint64_t now = Runtime::now_ns();
  if (now < next_look_ns_)
    return true;
  next_look_ns_ = now + kLookNs;
  return look(0);
}

std::vector<std::string> ServerPrompt::next(const std::vector<std::string>& words) const {
  if (words.empty())
    return {"help", "quit", "set", "show"};
  if (words.size() == 1 && words[0] == "show")
    return {"connections", "cores", "faults", "stats"};
  if (words.size() == 1 && words[0] == "set")
    return {"faults"};
  if (words.size() == 2 && words[0] == "set" && words[1] == "faults")
    return values_of("faults");
  return {};
}

void ServerPrompt::run(const std::vector<std::string>& words) {
  const std::string& verb = words[0];
  if (verb == "quit")
    quit_ = true;
  else if (verb == "show")
    show(words.size() == 2 ? words[1] : "");
  else if (verb == "set")
    set(words);
  else
    std::printf(
        "%sshow stats, show connections, show cores, show faults, set faults SPEC|off, quit\n",
        verb == "help" ? "" : ("unknown command '" + verb + "'; there are: ").c_str());
}

void ServerPrompt::show(const std::string& what) {
  if (what == "stats") {
    print_served(server_.stats(), options_.replay_cache);
  } else if (what == "connections") {
    show_connections();
  } else if (what == "cores") {
    for (uint32_t core = 0; core < runtime_.num_cores(); ++core) {
      CoreStats stats = runtime_.stats(core);
      std::printf("core %u: %u connections, %" PRIu64 " completions, %" PRIu64 " passes (%" PRIu64
                  " with work), %" PRIu64 " sleeps\n",
                  core, stats.connections, stats.completions, stats.polls, stats.busy_polls,
                  stats.sleeps);
    }
  } else if (what == "faults") {
    std::printf("faults %s\n", faults_.c_str());
    print_faults(runtime_.fault_counts());
  } else {
    std::printf("%s\n", kShow);
  }
}

// The library counts connections, and keeps no list of who they are; its log has their coming and
// going.
void ServerPrompt::show_connections() {
  ServerStats stats = server_.stats();
  std::printf("%" PRIu64 " connections now; %" PRIu64 " accepted, %" PRIu64 " refused, %" PRIu64
              " ended (RRDK_LOG=debug names each)\n",
              stats.connections, stats.connections_accepted, stats.connections_refused,
              stats.connections_ended);
  for (uint32_t core = 0; core < runtime_.num_cores(); ++core)
    std::printf("  on core %u: %u\n", core, runtime_.stats(core).connections);
}

void ServerPrompt::set(const std::vector<std::string>& words) {
  if (words.size() != 3 || words[1] != "faults") {
    std::printf("%s\n", about_option("faults").c_str());
    return;
  }
  Options changed = options_;
  Result<void> done = set_option(changed, "faults", words[2]);
  if (done && changed.faults)
    done = runtime_.set_faults(*changed.faults);
  if (!done) {
    std::printf("%s\n", done.error().message.c_str());
    return;
  }
  if (!changed.faults)
    runtime_.clear_faults();
  faults_ = changed.faults ? to_string(*changed.faults) : "off";
}

}  // namespace rrdk::testrpc
