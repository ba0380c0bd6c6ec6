#include "interactive.h"

#include <cmdline.h>
#include <cmdline_socket.h>
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "client_role.h"
#include "commands.h"
#include "plan.h"
#include "stop.h"

namespace rrdk::testrpc {
namespace {

constexpr int kIdlePollMs = 10;
// Here a run lasts until it is stopped, unless its end is set.
constexpr double kUntilStopSeconds = 1e9;

// The prompt, and what it has been told. While a run lasts, its tick looks after the prompt.
class Prompt {
 public:
  Prompt(Bench& bench, const Options& options) : bench_(bench), options_(options) {
    if (options_.engines.empty())
      options_.engines = {"null"};
  }

  void loop();
  void command(const std::string& verb, const std::string& second, const std::string& third);

 private:
  bool read_input(int timeout_ms);
  void start();
  void set(const std::string& name, const std::string& value);
  void show(const std::string& what);

  Bench& bench_;
  Options options_;
  cmdline* line_ = nullptr;
  bool running_ = false;
  bool start_ = false;
  bool stop_ = false;
  bool quit_ = false;
};

// cmdline's callbacks have no room for ours.
Prompt* prompt = nullptr;

void Prompt::loop() {
  prompt = this;
  line_ = cmdline_stdin_new(testrpc_commands, "testrpc> ");
  if (line_ == nullptr) {
    std::fprintf(stderr, "testrpc: the prompt can not be set up\n");
    return;
  }
  while (!quit_ && !stop_requested() && read_input(kIdlePollMs)) {
    if (start_)
      start();
  }
  cmdline_stdin_exit(line_);  // frees it, too
  prompt = nullptr;
}

// Takes what was typed; false at the end of the input.
bool Prompt::read_input(int timeout_ms) {
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  while (poll(&input, 1, timeout_ms) > 0) {
    char c;
    if (read(STDIN_FILENO, &c, 1) != 1)
      return false;
    if (cmdline_in(line_, &c, 1) < 0)
      return false;
    if (quit_ || start_)
      return true;
    timeout_ms = 0;
  }
  return true;
}

void Prompt::start() {
  start_ = false;
  stop_ = false;
  running_ = true;
  Options options = options_;
  if (options.count == 0 && options.duration_s == 0)
    options.duration_s = kUntilStopSeconds;
  for (const RunSpec& spec : make_plan(options)) {
    bool more = bench_.run(spec, options, [this] {
      quit_ = !read_input(0) || quit_;
      return !stop_ && !quit_ && !stop_requested();
    });
    if (!more || stop_ || quit_)
      break;
  }
  running_ = false;
  if (bench_.connection_lost()) {
    std::printf("the connection is lost\n");
    quit_ = true;
  }
  std::printf("stopped\n");
  std::fflush(stdout);
}

void Prompt::set(const std::string& name, const std::string& value) {
  Options changed = options_;
  Result<void> done = set_option(changed, name, value);
  if (done && name == "faults")
    done = bench_.set_faults(changed.faults);  // at once, also while a run lasts
  if (!done) {
    std::printf("%s\n", done.error().message.c_str());
    return;
  }
  Options filled = changed;
  std::vector<RunSpec> plan = make_plan(filled);
  if (largest_size(plan) > bench_.max_size() || largest_window(plan) > bench_.max_window()) {
    std::printf(
        "memory was made for sizes up to %u and windows up to %u; start testrpc with more\n",
        bench_.max_size(), bench_.max_window());
  } else if (has_nfs3(plan) && !bench_.has_nfs3()) {
    std::printf("nfs3 is set up at the start: start testrpc with --engine nfs3\n");
  } else {
    options_ = changed;
  }
}

void Prompt::show(const std::string& what) {
  if (what == "config") {
    std::fputs(show_settable(options_).c_str(), stdout);
  } else if (what == "faults") {
    std::printf("faults %s\n", options_.faults ? to_string(*options_.faults).c_str() : "off");
    print_faults(bench_.fault_counts());
  } else {
    print_table(bench_.results());
    print_failures(bench_.results());
    print_survival(bench_.results());
  }
}

void Prompt::command(const std::string& verb, const std::string& second, const std::string& third) {
  if (verb == "start" && !running_)
    start_ = true;
  else if (verb == "start")
    std::printf("running already\n");
  else if (verb == "stop")
    stop_ = true;
  else if (verb == "quit")
    quit_ = true;
  else if (verb == "set")
    set(second, third);
  else if (verb == "show")
    show(second);
  else if (verb == "clear")
    bench_.clear_results();
  else
    std::printf(
        "start, stop, set OPTION VALUE, show config, show stats, show faults, clear stats, quit\n");
  std::fflush(stdout);
}

}  // namespace

void run_interactive(Bench& bench, const Options& options) {
  Prompt(bench, options).loop();
}

}  // namespace rrdk::testrpc

extern "C" void testrpc_command(const char* verb, const char* second, const char* third) {
  if (rrdk::testrpc::prompt != nullptr)
    rrdk::testrpc::prompt->command(verb, second, third);
}
