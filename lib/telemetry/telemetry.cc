#include "rrdk/telemetry.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/lifetime.h"
#include "telemetry/metrics.h"

namespace rrdk {

namespace telemetry {

namespace {

struct Registry {
  std::mutex mutex;
  std::vector<Telemetry::Impl*> entries;
};

// Never destroyed: DPDK's thread may ask until the process ends.
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
  telemetry::register_commands();
  auto impl = std::make_unique<Impl>(Impl{name, sources});
  if (!telemetry::enter(*impl))
    return fail(Errc::kInvalidArgument, "there is a Telemetry named '" + name + "' already");
  return std::unique_ptr<Telemetry>(new Telemetry(std::move(impl)));
}

std::string Telemetry::openmetrics() const {
  return telemetry::to_openmetrics(telemetry::collect(impl_->sources));
}

}  // namespace rrdk
