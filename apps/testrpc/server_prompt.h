// A server's prompt: -i with --server.
#pragma once

#include <string>
#include <vector>

#include "options.h"
#include "prompt.h"
#include "rrdk/runtime.h"
#include "rrdk/server.h"

namespace rrdk::testrpc {

class ServerPrompt : public Commands {
 public:
  // All three outlive the ServerPrompt.
  ServerPrompt(Server& server, Runtime& runtime, const Options& options);

  // Reads what was typed. Returns false if the server is to end.
  bool look(int timeout_ms);
  // The same for a polling loop: looks about every 10 ms, and only reads the clock in between.
  bool look_now_and_then();

  void run(const std::vector<std::string>& words) override;
  std::vector<std::string> next(const std::vector<std::string>& words) const override;
  bool interrupt() override { return false; }
  bool capture_whole() const { return capture_whole_; }  // of each capture that has ended

 private:
  void show(const std::string& what);
  void show_connections();
  void show_procedures();
  void close(const std::string& text);
  void show_limits();
  void set(const std::vector<std::string>& words);
  void set_faults(const Options& changed);
  void set_limit(const std::string& what, const Options& changed);

  Server& server_;
  Runtime& runtime_;
  const Options& options_;
  std::string faults_;
  bool quit_ = false;
  bool capture_whole_ = true;
  uint64_t next_look_ns_ = 0;
  Prompt prompt_;  // last: it uses the rest
};

}  // namespace rrdk::testrpc
