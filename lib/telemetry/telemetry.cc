#include "rrdk/telemetry.h"

#include <rte_telemetry.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <functional>
#include <limits>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "base/internals.h"
#include "base/lifetime.h"
#include "base/log.h"
#include "rrdk/client.h"
#include "rrdk/server.h"
#include "runtime/runtime_impl.h"
#include "telemetry/metrics.h"

namespace rrdk {

namespace telemetry {

namespace {

struct Registry {
  std::mutex mutex;
  std::vector<Telemetry::Impl*> entries;
};

// It is never destroyed, because DPDK's threads may use it until the process ends.
Registry& registry() {
  static auto* const made = new Registry;
  return *made;
}

bool is_name(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_';
  });
}

auto find(Registry& r, std::string_view name) {
  return std::ranges::find(r.entries, name,
                           [](const Telemetry::Impl* t) -> const std::string& { return t->name; });
}

}  // namespace

bool enter(Telemetry::Impl& telemetry) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  if (find(r, telemetry.name) != r.entries.end())
    return false;
  r.entries.push_back(&telemetry);
  return true;
}

void leave(Telemetry::Impl& telemetry) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  std::erase(r.entries, &telemetry);
}

std::vector<std::string> names() {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  std::vector<std::string> all;
  all.reserve(r.entries.size());
  for (const Telemetry::Impl* entry : r.entries)
    all.push_back(entry->name);
  return all;
}

bool use(std::string_view name, const std::function<void(const TelemetrySources&)>& user) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  const auto found = find(r, name);
  if (found == r.entries.end())
    return false;
  user((*found)->sources);
  return true;
}

}  // namespace telemetry

Telemetry::Telemetry(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Telemetry::~Telemetry() {
  if (base::forked)
    base::keep_for_good(std::move(impl_));
  else
    telemetry::leave(*impl_);
}

Result<std::unique_ptr<Telemetry>> Telemetry::create(const std::string& name,
                                                     const TelemetrySources& sources) {
  if (!telemetry::is_name(name))
    return fail(Errc::kInvalidArgument,
                "'" + name + "' is no name of a Telemetry: letters, digits, '-' and '_'");
  if (std::ranges::count(sources.servers, nullptr) + std::ranges::count(sources.clients, nullptr) !=
      0)
    return fail(Errc::kInvalidArgument, "a Server or ClientConnection of '" + name + "' is null");
  telemetry::register_commands();
  auto impl = std::make_unique<Impl>(Impl{name, sources});
  if (!telemetry::enter(*impl))
    return fail(Errc::kInvalidArgument, "there is a Telemetry named '" + name + "' already");
  return std::unique_ptr<Telemetry>(new Telemetry(std::move(impl)));
}

std::string Telemetry::openmetrics() const {
  return telemetry::to_text(telemetry::collect(impl_->sources), telemetry::Format::kOpenMetrics);
}

MetricsAnswer Telemetry::answer(std::string_view accept) const {
  return {telemetry::to_text(telemetry::collect(impl_->sources), telemetry::format_for(accept)),
          content_type(accept)};
}

const char* Telemetry::content_type(std::string_view accept) {
  return telemetry::format_for(accept) == telemetry::Format::kOpenMetrics
             ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
             : "text/plain; version=0.0.4; charset=utf-8";
}

}  // namespace rrdk

// The commands of DPDK's telemetry (rrdk/telemetry.h). DPDK runs them on its own threads, one for
// each client of the socket. An answer has at most 256 entries and 16 KiB: connections are listed
// in pages, and other lists are cut.
namespace rrdk::telemetry {

namespace {

constexpr size_t kMostEntries = 256;  // RTE_TEL_MAX_DICT_ENTRIES
constexpr size_t kPage = 256;

// Splits the parameters of a command, such as "NAME,FIRST".
class Arguments {
 public:
  explicit Arguments(const char* text) : left_(text != nullptr ? text : "") {}

  std::string_view next() {
    const size_t end = left_.find(',');
    const std::string_view part = left_.substr(0, end);
    left_.remove_prefix(end == std::string_view::npos ? left_.size() : end + 1);
    return part;
  }
  // Returns nothing if the next part is not a number.
  std::optional<uint64_t> next_number() {
    const std::string_view part = next();
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    const bool whole = error == std::errc() && end == part.data() + part.size();
    return whole && !part.empty() ? std::optional(value) : std::nullopt;
  }
  bool at_end() const { return left_.empty(); }

 private:
  std::string_view left_;
};

// DPDK allows only letters, digits, '_' and '/' in names.
std::string key_of(std::string text) {
  for (char& c : text) {
    const bool good = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                      c == '_' || c == '/';
    if (!good)
      c = '_';
  }
  return text;
}

int list(Arguments&, rte_tel_data* answer) {
  rte_tel_data_start_array(answer, RTE_TEL_STRING_VAL);
  for (const std::string& name : names())
    rte_tel_data_add_array_string(answer, name.c_str());
  return 0;
}

// Lists the families whose names begin with the prefix, or all families without one.
int metrics(const TelemetrySources& sources, Arguments& arguments, rte_tel_data* answer) {
  const std::string_view prefix = arguments.next();
  rte_tel_data_start_dict(answer);
  size_t entries = 0;
  for (const Family& family : collect(sources)) {
    const bool is_number = family.kind == Kind::kCounter || family.kind == Kind::kGauge;
    if (!is_number || family.unit == "seconds" || !family.name.starts_with(prefix))
      continue;
    for (const Sample& sample : family.samples) {
      if (sample.value == 0 || entries == kMostEntries)
        continue;
      std::string key(family.name);
      for (const auto& label : sample.labels)
        key += "/" + label.second;
      rte_tel_data_add_dict_u64(answer, key_of(std::move(key)).c_str(), sample.value);
      ++entries;
    }
  }
  return 0;
}

void visit(const TelemetrySources& sources,
           const std::function<void(const ConnectionInfo&)>& visitor) {
  for (const Server* server : sources.servers)
    server->visit(visitor);
  for (const ClientConnection* client : sources.clients)
    visitor(client->info());
}

int connections(const TelemetrySources& sources, Arguments& arguments, rte_tel_data* answer) {
  const uint64_t first = arguments.next_number().value_or(0);
  std::vector<uint64_t> ids;
  visit(sources, [&](const ConnectionInfo& info) {
    if (info.id >= first && info.id != 0)
      ids.push_back(info.id);
  });
  std::ranges::sort(ids);
  rte_tel_data* const page = rte_tel_data_alloc();
  if (page == nullptr)
    return -ENOMEM;
  rte_tel_data_start_array(page, RTE_TEL_U64_VAL);
  for (size_t i = 0; i < std::min(ids.size(), kPage); ++i)
    rte_tel_data_add_array_u64(page, ids[i]);
  rte_tel_data_start_dict(answer);
  rte_tel_data_add_dict_container(answer, "ids", page, 0);
  if (ids.size() > kPage)
    rte_tel_data_add_dict_u64(answer, "next", ids[kPage]);
  return 0;
}

void add(rte_tel_data* answer, const Numbers& numbers) {
  for (const auto& [name, value] : numbers)
    rte_tel_data_add_dict_u64(answer, name.c_str(), value);
}

void describe(const ConnectionInfo& info, rte_tel_data* answer) {
  rte_tel_data_start_dict(answer);
  const std::pair<const char*, std::string> texts[] = {{"peer", info.peer.to_string()},
                                                       {"driver", std::string(info.peer.driver)},
                                                       {"local", info.peer.local.to_string()}};
  for (const auto& [name, text] : texts)
    rte_tel_data_add_dict_string(answer, name, text.c_str());
  add(answer, numbers_of(info));
}

int connection(const TelemetrySources& sources, Arguments& arguments, rte_tel_data* answer) {
  const std::optional<uint64_t> id = arguments.next_number();
  std::optional<ConnectionInfo> found;
  visit(sources, [&](const ConnectionInfo& info) {
    if (info.id == id && info.id != 0)
      found = info;
  });
  if (!found)
    return -ENOENT;
  describe(*found, answer);
  return 0;
}

// Adds an array with the counts of all buckets of a DurationHistogram.
int add_buckets(rte_tel_data* answer, const char* name, const DurationHistogram& times) {
  rte_tel_data* const buckets = rte_tel_data_alloc();
  if (buckets == nullptr)
    return -ENOMEM;
  rte_tel_data_start_array(buckets, RTE_TEL_U64_VAL);
  for (const uint64_t count : times.buckets)
    rte_tel_data_add_array_u64(buckets, count);
  const int failure = rte_tel_data_add_dict_container(answer, name, buckets, 0);
  if (failure != 0)
    rte_tel_data_free(buckets);
  return failure;
}

std::vector<ProcedureStats> procedures_of(const TelemetrySources& sources) {
  std::vector<ProcedureStats> all;
  for (const Server* server : sources.servers) {
    for (ProcedureStats& procedure : server->procedures())
      all.push_back(std::move(procedure));
  }
  return all;
}

int procedures(const TelemetrySources& sources, Arguments&, rte_tel_data* answer) {
  rte_tel_data_start_array(answer, RTE_TEL_STRING_VAL);
  for (const ProcedureStats& procedure : procedures_of(sources))
    rte_tel_data_add_array_string(answer, procedure.name.c_str());
  return 0;
}

// The parameter is the place of the procedure in the list.
int procedure(const TelemetrySources& sources, Arguments& arguments, rte_tel_data* answer) {
  const std::vector<ProcedureStats> all = procedures_of(sources);
  const uint64_t place = arguments.next_number().value_or(std::numeric_limits<uint64_t>::max());
  if (place >= all.size())
    return -ENOENT;
  rte_tel_data_start_dict(answer);
  rte_tel_data_add_dict_string(answer, "name", all[place].name.c_str());
  add(answer, numbers_of(all[place]));
  return add_buckets(answer, "handler_buckets", all[place].handler);
}

std::vector<runtime::CalledStats> called_of(const TelemetrySources& sources) {
  if (sources.runtime == nullptr)
    return {};
  return Internals::of(*sources.runtime).called.read();
}

int called(const TelemetrySources& sources, Arguments&, rte_tel_data* answer) {
  rte_tel_data_start_array(answer, RTE_TEL_STRING_VAL);
  for (const runtime::CalledStats& one : called_of(sources))
    rte_tel_data_add_array_string(answer, one.name.c_str());
  return 0;
}

int called_procedure(const TelemetrySources& sources, Arguments& arguments, rte_tel_data* answer) {
  const std::vector<runtime::CalledStats> all = called_of(sources);
  const uint64_t place = arguments.next_number().value_or(std::numeric_limits<uint64_t>::max());
  if (place >= all.size())
    return -ENOENT;
  rte_tel_data_start_dict(answer);
  rte_tel_data_add_dict_string(answer, "name", all[place].name.c_str());
  rte_tel_data_add_dict_string(answer, "target", all[place].target.c_str());
  add(answer, numbers_of(all[place]));
  return add_buckets(answer, "call_buckets", all[place].call);
}

// DPDK calls this function, so no exception may leave it.
template <auto kCommand>
int entry(const char*, const char* parameters, rte_tel_data* answer) {
  Arguments arguments(parameters);
  try {
    if constexpr (std::is_invocable_v<decltype(kCommand), Arguments&, rte_tel_data*>) {
      return kCommand(arguments, answer);
    } else {
      int result = -ENOENT;
      use(arguments.next(),
          [&](const TelemetrySources& sources) { result = kCommand(sources, arguments, answer); });
      return result;
    }
  } catch (const std::bad_alloc&) {
    return -ENOMEM;
  }
}

}  // namespace

void register_commands() {
  static std::once_flag once;
  std::call_once(once, [] {
    const std::tuple<const char*, telemetry_cb, const char*> commands[] = {
        {"/rrdk/list", entry<list>, "Names of the Telemetry objects. No parameters"},
        {"/rrdk/metrics", entry<metrics>,
         "Counters and gauges that are not zero. Parameters: name, prefix of theirs (optional)"},
        {"/rrdk/connections", entry<connections>,
         "Ids of connections. Parameters: name, first id (optional)"},
        {"/rrdk/connection", entry<connection>, "One connection. Parameters: name, id"},
        {"/rrdk/procedures", entry<procedures>, "Names of procedures. Parameters: name"},
        {"/rrdk/procedure", entry<procedure>,
         "One procedure. Parameters: name, its place in the list of procedures, from 0"},
        {"/rrdk/called", entry<called>,
         "Names of procedures that were called of servers, and timed. Parameters: name"},
        {"/rrdk/called_procedure", entry<called_procedure>,
         "One such procedure. Parameters: name, its place in that list, from 0"}};
    for (const auto& [command, function, help] : commands) {
      if (rte_telemetry_register_cmd(command, function, help) != 0)
        base::log_warning("DPDK's telemetry does not take the command %s", command);
    }
  });
}

}  // namespace rrdk::telemetry
