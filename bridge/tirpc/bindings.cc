#include "bindings.h"

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string_view>

#include "failure.h"
#include "rrdk/tirpc.h"
#include "sizes.h"

namespace rrdk::tirpc {

namespace {

using ProgramKey = std::pair<uint32_t, uint32_t>;
using Programs = std::map<ProgramKey, std::map<uint32_t, ProcedureItems>>;

struct Known {
  std::mutex mutex;
  Programs programs;
  std::map<ProgramKey, std::shared_ptr<const ProgramItems>> made;  // of `programs`
  bool environment_read = false;
};

Known& known() {
  static Known& instance = *new Known;  // used until the process has ended
  return instance;
}

// Decimal, or hexadecimal after "0x".
std::optional<uint32_t> number(std::string_view text) {
  const int base = text.starts_with("0x") ? 16 : 10;
  if (base == 16)
    text.remove_prefix(2);
  uint32_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size())
    return std::nullopt;
  return value;
}

// With K or M; at most kMostBytes.
std::optional<uint32_t> byte_count(std::string_view text) {
  uint64_t unit = 1;
  if (text.ends_with('K'))
    unit = 1 << 10;
  else if (text.ends_with('M'))
    unit = 1 << 20;
  if (unit != 1)
    text.remove_suffix(1);
  auto value = number(text);
  if (!value || *value * unit > kMostBytes)
    return std::nullopt;
  return static_cast<uint32_t>(*value * unit);
}

// Replaces the item with the same name, or appends the item.
const char* add(std::vector<Item>& items, Item item) {
  for (Item& other : items) {
    if (other.type == item.type && other.field == item.field) {
      other = std::move(item);
      return nullptr;
    }
  }
  if (items.size() == kMaxEligibleItems)
    return "a procedure has at most 16 items in its arguments, and in its results";
  items.push_back(std::move(item));
  return nullptr;
}

// "TYPE.FIELD", or "TYPE".
std::optional<Item> named(const std::string& text) {
  const size_t dot = text.find('.');
  std::string type = text.substr(0, dot);
  std::string field = dot == std::string::npos ? type : text.substr(dot + 1);
  if (type.empty() || field.empty() || field.find('.') != std::string::npos)
    return std::nullopt;
  return Item{std::move(type), std::move(field), 0, false};
}

// Returns null on success.
const char* read_line(Programs& programs, const std::vector<std::string>& words) {
  if (words.size() < 5)
    return "a line has PROGRAM VERSION PROCEDURE, and args, results or reply with what belongs to "
           "it";
  auto program = number(words[0]), version = number(words[1]), procedure = number(words[2]);
  if (!program || !version || !procedure)
    return "program, version and procedure are numbers of 32 bits";
  if (*procedure == 0)
    return "procedure 0 has neither arguments nor results";
  ProcedureItems& entry = programs[{*program, *version}][*procedure];
  entry.procedure = *procedure;
  auto bytes = byte_count(words[words[3] == "reply" ? 4 : std::min<size_t>(5, words.size() - 1)]);
  if (!bytes)
    return "a size has bytes, or a number with K or M, and is at most 8M";
  if (words[3] == "reply" && words.size() == 5) {
    entry.reply = bytes;
    return nullptr;
  }
  const bool copy = words.size() == 7 && words[6] == "copy";
  const bool args = words[3] == "args", results = words[3] == "results";
  if ((!args && !results) || (words.size() != 6 && !copy))
    return "what follows the procedure is args or results with TYPE.FIELD LARGEST [copy], or reply "
           "BYTES";
  auto item = named(words[4]);
  if (!item)
    return "an item is TYPE.FIELD, or TYPE for a typedef";
  item->largest = *bytes;
  item->copy = copy;
  return add(args ? entry.args : entry.results, std::move(*item));
}

Result<void> read_into(Programs& programs, const std::string& file) {
  std::ifstream stream(file);
  if (!stream)
    return fail(Errc::kSystem, "binding file " + file + ": " + std::strerror(errno));
  Programs merged = programs;
  std::string line;
  for (uint32_t at = 1; std::getline(stream, line); ++at) {
    std::istringstream text(line.substr(0, line.find('#')));
    std::vector<std::string> words;
    for (std::string word; text >> word;)
      words.push_back(word);
    if (words.empty())
      continue;
    if (const char* wrong = read_line(merged, words))
      return fail(Errc::kInvalidArgument, file + ":" + std::to_string(at) + ": " + wrong);
  }
  programs = std::move(merged);
  return {};
}

}  // namespace

bool Item::matches(const char* routine, const char* argument) const noexcept {
  constexpr std::string_view kPrefix = "xdr_", kSuffix = "_val";
  const std::string_view name = routine, text = argument;
  if (!name.starts_with(kPrefix) || name.substr(kPrefix.size()) != type || !text.ends_with(kSuffix))
    return false;
  // "(char **)&objp->data.data_val", or "->blob_val" for a typedef.
  const std::string_view chain = text.substr(0, text.size() - kSuffix.size());
  if (!chain.ends_with(field) || chain.size() == field.size())
    return false;
  const char before = chain[chain.size() - field.size() - 1];
  return before == '.' || before == '>';
}

ProgramItems::ProgramItems(uint32_t program, uint32_t version,
                           std::vector<ProcedureItems> procedures)
    : procedures_(std::move(procedures)), name_("program " + std::to_string(program)) {
  names_.reserve(procedures_.size());
  for (const ProcedureItems& entry : procedures_) {
    names_.push_back(entry.procedure == kOtherProcedures
                         ? "other procedures"
                         : "procedure " + std::to_string(entry.procedure));
    const auto results = static_cast<uint8_t>(entry.results.size());
    table_.push_back({.procedure = entry.procedure,
                      .name = names_.back().c_str(),
                      .eligible_args = static_cast<uint8_t>(entry.args.size()),
                      .eligible_results = results,
                      .fixed_results = 4u * results});
  }
  binding_ = {.program = program, .version = version, .name = name_.c_str(), .procedures = table_};
}

const ProcedureItems* ProgramItems::find(uint32_t procedure) const noexcept {
  const ProcedureBinding* entry = binding_.find(procedure);
  return entry == nullptr ? nullptr : &procedures_[static_cast<size_t>(entry - table_.data())];
}

Result<void> read_binding(const std::string& file) {
  Known& all = known();
  std::lock_guard lock(all.mutex);
  if (auto done = read_into(all.programs, file); !done)
    return done;
  all.made.clear();
  return {};
}

Result<std::shared_ptr<const ProgramItems>> items_of(uint32_t program, uint32_t version) {
  Known& all = known();
  std::lock_guard lock(all.mutex);
  const char* file = ::secure_getenv("RRDK_TIRPC_BINDING");
  if (file != nullptr && !all.environment_read) {
    if (auto done = read_into(all.programs, file); !done)
      return tl::unexpected(done.error());
    all.environment_read = true;
  }
  auto& made = all.made[{program, version}];
  if (made == nullptr) {
    std::vector<ProcedureItems> procedures;
    for (const auto& [number, entry] : all.programs[{program, version}])
      procedures.push_back(entry);
    made = std::make_shared<ProgramItems>(program, version, std::move(procedures));
  }
  return made;
}

}  // namespace rrdk::tirpc

bool_t rrdk_tirpc_bind(const char* file) {
  auto done = rrdk::tirpc::read_binding(file);
  if (!done)
    rrdk::tirpc::note_failure(done.error().message);
  return done.has_value();
}
