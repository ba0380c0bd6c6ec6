#include "results_csv.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

namespace rrdk::testrpc {
namespace {

using nlohmann::ordered_json;
using Cells = std::vector<std::pair<std::string, std::string>>;  // by column

// Their members are whatever there was to count: no columns.
constexpr std::string_view kTallies[] = {"errors_by_reason", "procedures"};

std::string cell_of(const ordered_json& value) {
  if (value.is_null())
    return "";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void flatten(const ordered_json& object, const std::string& before, Cells& cells) {
  for (const auto& [name, value] : object.items()) {
    if (value.is_object() && std::ranges::find(kTallies, name) == std::end(kTallies))
      flatten(value, before + name + ".", cells);
    else if (!value.is_structured())
      cells.emplace_back(before + name, cell_of(value));
  }
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

// In the order in which they come first.
std::vector<std::string> columns_of(const std::vector<Cells>& rows) {
  std::vector<std::string> columns;
  for (const Cells& row : rows) {
    for (const auto& [column, cell] : row) {
      if (std::ranges::find(columns, column) == columns.end())
        columns.push_back(column);
    }
  }
  return columns;
}

}  // namespace

std::string to_csv(const std::string& json) {
  const ordered_json whole = ordered_json::parse(json);
  std::vector<Cells> rows;
  for (const ordered_json& run : whole["runs"])
    flatten(run, "", rows.emplace_back());
  if (rows.empty())
    return {};
  const std::vector<std::string> columns = columns_of(rows);
  std::string text = line_of(columns);
  for (const Cells& row : rows) {
    std::vector<std::string> cells;
    for (const std::string& column : columns) {
      auto cell = std::ranges::find(row, column, &Cells::value_type::first);
      cells.push_back(cell == row.end() ? "" : cell->second);
    }
    text += line_of(cells);
  }
  return text;
}

}  // namespace rrdk::testrpc
