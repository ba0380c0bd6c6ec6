#include "results_csv.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

namespace rrdk::testrpc {
namespace {

using nlohmann::ordered_json;

// Always the same columns, so that the rows of two files can be combined: members of a run, and
// then members of the whole that distinguish its row from one of another file.
constexpr std::string_view kOfRun[] = {"/time",
                                       "/engine",
                                       "/size",
                                       "/sizes",
                                       "/window",
                                       "/connections",
                                       "/active",
                                       "/dispatch",
                                       "/verify",
                                       "/duration",
                                       "/count",
                                       "/seed",
                                       "/think_us",
                                       "/warmup_seconds",
                                       "/warmup_calls",
                                       "/seconds",
                                       "/calls",
                                       "/calls_right",
                                       "/errors",
                                       "/wrong_bytes",
                                       "/connection_lost",
                                       "/stopped",
                                       "/rate",
                                       "/arrivals",
                                       "/calls_due",
                                       "/calls_not_made",
                                       "/saturated",
                                       "/reconnects",
                                       "/retransmissions",
                                       "/keepalives",
                                       "/tried_later",
                                       "/preemptions",
                                       "/rpcrdma_version",
                                       "/fallbacks",
                                       "/receive_size_changes",
                                       "/own_receive_size_changes",
                                       "/rfc5666/configured",
                                       "/rfc5666/padded_calls",
                                       "/rfc5666/read_replies",
                                       "/rfc5666/dones",
                                       "/rpc_per_s",
                                       "/bytes_per_s",
                                       "/spread",
                                       "/latency_ns/min",
                                       "/latency_ns/mean",
                                       "/latency_ns/p50",
                                       "/latency_ns/p90",
                                       "/latency_ns/p99",
                                       "/latency_ns/p99.9",
                                       "/latency_ns/max",
                                       "/calls_per_connection/min",
                                       "/calls_per_connection/mean",
                                       "/calls_per_connection/max",
                                       "/limits/cache_line_rtt_ns",
                                       "/limits/p50_per_cache_line_rtt",
                                       "/limits/memcpy_bytes_per_s",
                                       "/limits/of_memcpy",
                                       "/stages/every",
                                       "/noise/seconds",
                                       "/noise/remarks",
                                       "/noise/cache_line/before_ns",
                                       "/noise/cache_line/after_ns",
                                       "/noise/waits/credit",
                                       "/noise/waits/sent_again"};
constexpr std::string_view kOfAll[] = {"/environment/host",  "/revision",     "/uri",
                                       "/negotiated/driver", "/options/idle", "/options/credits",
                                       "/options/auth"};

// Returns latency_ns.p50 for "/latency_ns/p50".
std::string name_of_column(std::string_view path) {
  std::string name(path.substr(1));
  std::ranges::replace(name, '/', '.');
  return name;
}

std::string cell_of(const ordered_json& value) {
  if (value.is_null())
    return "";
  if (value.is_string())
    return value.get<std::string>();
  if (!value.is_array())
    return value.dump();
  std::string items;
  for (const ordered_json& item : value)
    items += (items.empty() ? "" : item.is_string() ? "; " : " ") + cell_of(item);
  return items;
}

// Returns the cell's text, empty if the member does not exist.
std::string cell_at(const ordered_json& object, std::string_view path) {
  const ordered_json::json_pointer pointer{std::string(path)};
  return object.contains(pointer) ? cell_of(object.at(pointer)) : "";
}

std::string escaped(const std::string& cell) {
  if (cell.find_first_of(",\"\r\n") == std::string::npos)
    return cell;
  std::string text = "\"";
  for (char c : cell)
    text += c == '"' ? "\"\"" : std::string(1, c);
  return text + "\"";
}

std::string line_of(const std::vector<std::string>& cells) {
  std::string line;
  const char* comma = "";
  for (const std::string& cell : cells) {
    line += comma + escaped(cell);
    comma = ",";
  }
  return line + "\n";
}

}  // namespace

std::string to_csv(const std::string& json) {
  const ordered_json whole = ordered_json::parse(json);
  std::vector<std::string> cells;
  std::ranges::transform(kOfRun, std::back_inserter(cells), name_of_column);
  std::ranges::transform(kOfAll, std::back_inserter(cells), name_of_column);
  std::string text = line_of(cells);
  for (const ordered_json& run : whole["runs"]) {
    cells.clear();
    for (std::string_view path : kOfRun)
      cells.push_back(cell_at(run, path));
    for (std::string_view path : kOfAll)
      cells.push_back(cell_at(whole, path));
    text += line_of(cells);
  }
  return text;
}

}  // namespace rrdk::testrpc
