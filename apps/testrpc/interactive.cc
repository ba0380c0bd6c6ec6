#include "interactive.h"

#include <cstdio>
#include <string>
#include <vector>

#include "client_role.h"
#include "option_table.h"
#include "plan.h"
#include "prompt.h"
#include "repetitions.h"
#include "stop.h"

namespace rrdk::testrpc {
namespace {

constexpr int kIdlePollMs = 10;
// In interactive mode a run lasts until it is stopped, unless its duration or count is set.
constexpr double kUntilStopSeconds = 1e9;

constexpr const char* kHelp =
    "start                run what is set, until 'stop' or Ctrl-C unless duration or count is set\n"
    "stop                 end the run, with its result\n"
    "wait                 wait for the run's end before the next command\n"
    "set OPTION VALUE     for the next run; 'set' lists the options, 'set OPTION' its values\n"
    "show config          what is set\n"
    "show stats           the results so far, the run at hand included\n"
    "show faults          fault injection: the plan and its counts\n"
    "clear stats          forget the results\n"
    "quit                 end, with all results; so does Ctrl-D\n";

// The state of the prompt. During a run, the run's tick serves the prompt.
class ClientPrompt : public Commands {
 public:
  ClientPrompt(Bench& bench, const Options& options) : bench_(bench), options_(options) {
    if (options_.engines.empty())
      options_.engines = {"null"};
  }

  void loop();
  void run(const std::vector<std::string>& words) override;
  std::vector<std::string> next(const std::vector<std::string>& words) const override;
  bool interrupt() override;

 private:
  bool read(int timeout_ms);
  void start();
  void set(const std::vector<std::string>& words);
  void set(const std::string& name, const std::string& value);
  void show(const std::string& what);
  static void show_results(Results results);
  void list_options();

  Bench& bench_;
  Options options_;
  Prompt* prompt_ = nullptr;
  size_t rows_ = 0;  // number of runs so far
  bool running_ = false;
  bool start_ = false;
  bool stop_ = false;
  bool wait_ = false;
  bool quit_ = false;
};

void ClientPrompt::loop() {
  Prompt prompt(*this);
  prompt_ = &prompt;
  if (!prompt.made()) {
    std::fprintf(stderr, "testrpc: the prompt cannot be set up\n");
    return;
  }
  leave_interrupts_to_prompt();
  bench_.use({[&] { prompt.clear_line(); }, [&] { prompt.redraw(); }});
  while (!quit_ && !stop_requested() && !take_interrupt() && read(kIdlePollMs)) {
    if (take_figures_request())
      bench_.show_figures();
    if (start_)
      start();
  }
  bench_.use({});
}

// Reads what was typed; returns false at the end of the input.
bool ClientPrompt::read(int timeout_ms) {
  return prompt_->read(timeout_ms, [this] { return quit_ || start_ || wait_; });
}

void ClientPrompt::start() {
  start_ = stop_ = false;
  running_ = true;
  Options options = options_;
  if (options.count == 0 && options.duration_s == 0)
    options.duration_s = kUntilStopSeconds;
  size_t before = bench_.results().size();
  const std::vector<RunSpec> plan = make_plan(options);
  const size_t runs = plan.size() * options.repeat;
  for (size_t i = 0; i < runs; ++i) {
    const size_t row = i % plan.size();
    const RunPlace place = {i, runs, options_.warmup_s + options_.duration_s, rows_ + row};
    bool more = bench_.run(plan[row], options, place, [this] {
      if (!wait_)
        quit_ = !read(0) || quit_;
      stop_ = stop_ || take_interrupt();
      return !stop_ && !quit_ && !stop_requested();
    });
    if (!more || stop_ || quit_)
      break;
  }
  rows_ += plan.size();
  running_ = wait_ = false;
  if (bench_.connection_lost()) {
    std::printf("the connection is lost\n");
    quit_ = true;
  }
  prompt_->clear_line();
  // 'clear stats' may have removed some.
  Results results = bench_.results();
  show_results(results.subspan(std::min(before, results.size() - 1)));
  std::printf("stopped\n");
  prompt_->redraw();
}

bool ClientPrompt::interrupt() {
  if (running_)
    stop_ = true;
  return running_;
}

std::vector<std::string> ClientPrompt::next(const std::vector<std::string>& words) const {
  if (words.empty())
    return {"clear", "help", "quit", "set", "show", "start", "stop", "wait"};
  if (words.size() == 1 && words[0] == "show")
    return {"config", "faults", "stats"};
  if (words.size() == 1 && words[0] == "clear")
    return {"stats"};
  if (words.size() == 1 && words[0] == "set")
    return settable_options();
  if (words.size() == 2 && words[0] == "set")
    return values_of(words[1]);
  return {};
}

void ClientPrompt::list_options() {
  std::printf("set what:\n");
  for (const std::string& name : settable_options())
    std::printf("  %s\n", about_option(name).c_str());
}

void ClientPrompt::set(const std::vector<std::string>& words) {
  if (words.size() == 3)
    return set(words[1], words[2]);
  if (words.size() > 3) {
    std::printf("set OPTION VALUE: a list has commas and no spaces\n");
  } else if (words.size() == 1) {
    list_options();
  } else if (Result<void> known = set_option_name(words[1]); !known) {
    std::printf("%s\n", known.error().message.c_str());
  } else {
    std::printf("%s\n", about_option(words[1]).c_str());
  }
}

void ClientPrompt::set(const std::string& name, const std::string& value) {
  Options changed = options_;
  Result<void> done = set_option(changed, name, value);
  if (done && name == "faults")
    done = bench_.set_faults(changed.faults);  // at once, also during a run
  if (done && name == "capture")
    done = bench_.set_capture(changed.capture);  // likewise
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

void ClientPrompt::show_results(Results results) {
  const std::vector<std::unique_ptr<RunResult>> rows = by_row(results);
  print_table(rows);
  print_remarks(rows);
}

void ClientPrompt::show(const std::string& what) {
  if (what == "config") {
    std::fputs(show_settable(options_).c_str(), stdout);
  } else if (what == "faults") {
    std::printf("faults %s\n", options_.faults ? to_string(*options_.faults).c_str() : "off");
    print_faults(bench_.fault_counts());
  } else if (what == "stats") {
    show_results(bench_.results());
    if (running_)
      std::printf("the last run is not over\n");
  } else {
    std::printf("show what: config, stats, faults\n");
  }
}

void ClientPrompt::run(const std::vector<std::string>& words) {
  const std::string& verb = words[0];
  std::string second = words.size() == 2 ? words[1] : "";
  if (verb == "start" && !running_)
    start_ = true;
  else if (verb == "start")
    std::printf("running already\n");
  else if (verb == "stop")
    stop_ = true;
  else if (verb == "wait")
    wait_ = running_;
  else if (verb == "quit")
    quit_ = true;
  else if (verb == "set")
    set(words);
  else if (verb == "show")
    show(second);
  else if (verb == "clear" && second == "stats")
    bench_.clear_results();
  else if (verb == "clear")
    std::printf("clear what: stats\n");
  else if (verb == "help")
    std::fputs(kHelp, stdout);
  else {
    std::vector<std::string> verbs = next({});
    std::string meant = did_you_mean(verb, verbs);
    std::printf("unknown command '%s'%s\n", verb.c_str(),
                meant.empty() ? "; 'help' lists them" : meant.c_str());
  }
}

}  // namespace

void run_interactive(Bench& bench, const Options& options) {
  ClientPrompt(bench, options).loop();
}

}  // namespace rrdk::testrpc
