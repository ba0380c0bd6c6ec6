// Parses values into the options, with one function for each form of a value. Errors say what is
// wrong with the value and what is valid; the parser adds the option's name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "options.h"
#include "values.h"

namespace rrdk::testrpc {

// Digits, within [low, high].
template <typename T>
Result<void> take_count(T& to, const std::string& value, uint64_t low, uint64_t high) {
  Result<uint64_t> parsed = parse_count(value, low, high);
  if (!parsed)
    return tl::unexpected(parsed.error());
  to = static_cast<T>(*parsed);
  return {};
}

// A role, which may be given only once.
Result<void> take_role(Options& options, Role role, const std::string& uri);
Result<void> take_size(uint32_t& to, const std::string& value);
Result<void> take_memory(uint64_t& to, const std::string& value);
// A number above 0, or "off", which means 0.
Result<void> take_positive(double& to, const std::string& value);
Result<void> take_interval(double& to, const std::string& value);
Result<void> take_calls(uint64_t& to, const std::string& value);
Result<void> take_engines(Options& options, const std::string& value);
Result<void> take_sizes(Options& options, const std::string& value);
Result<void> take_windows(Options& options, const std::string& value);
Result<void> take_active(Options& options, const std::string& value);
Result<void> take_arrivals(Options& options, const std::string& value);
Result<void> take_cpus(std::vector<int>& cpus, const std::string& value);
Result<void> take_replay_cache(Options& options, const std::string& value);
Result<void> take_dispatch(Options& options, const std::string& value);
Result<void> take_sec(Options& options, const std::string& value);
Result<void> take_sec_target(Options& options, const std::string& value);
Result<void> take_gss_tcp(Options& options, const std::string& value);
Result<void> take_idle(Options& options, const std::string& value);
Result<void> take_version(Options& options, const std::string& value);
Result<void> take_draft(Options& options, const std::string& value);
Result<void> take_compat(Options& options, const std::string& value);
// The size of a Receive: a multiple of 1024.
Result<void> take_buffer_size(uint32_t& to, const std::string& value);
// "on", "off", or an empty value, which means on.
Result<void> take_switch(bool& to, const std::string& value);
// The name of a file to write. Refuses an empty name, which is probably a script's unset variable.
Result<void> take_file(std::string& to, const std::string& value);
Result<void> take_metrics(Options& options, const std::string& value);
// A file, but not stdout, which gets the table; or "off".
Result<void> take_capture(Options& options, const std::string& value);
Result<void> take_faults(Options& options, const std::string& value);
Result<void> take_access(Options& options, const std::string& value);
Result<void> take_nfs_mount(Options& options, const std::string& value);
Result<void> take_nfs_calls(Options& options, const std::string& value);

}  // namespace rrdk::testrpc
