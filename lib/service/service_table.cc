#include "service/service_table.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "base/log.h"
#include "rpc/names.h"

namespace rrdk::service {

namespace {

std::string name_of(const Binding& binding) {
  return std::string(binding.name != nullptr ? binding.name : "program") + " (" +
         std::to_string(binding.program) + " version " + std::to_string(binding.version) + ")";
}

// `which` is the number of a result, or its region.
std::string describe(Mistake mistake, uint32_t which) {
  switch (mistake) {
    case Mistake::kInvalidMemory:
      return "result " + std::to_string(which) +
             " is not registered memory, or is longer than its buffer";
    case Mistake::kUnusableMemory:
      return "a result is memory of region " + std::to_string(which) +
             ", which has no descriptor, and the driver needs one: take it from "
             "Memory::allocate(), or adopt() it with its memfd";
    case Mistake::kTooLarge:
      return "its results are longer than max_reply, or max_chunk_bytes, or one has more than " +
             std::to_string(Encoder::kMaxItemSegments) + " segments";
    case Mistake::kNoBuffers:
      return "no buffer was left for its results: enlarge MemoryOptions::classes";
    case Mistake::kFailed:
      return "Encoder::fail() was called";
    case Mistake::kUnanswered:
      return "a ServerCall was destroyed without an answer";
  }
  return "a mistake";
}

std::pair<uint32_t, uint32_t> key(const std::unique_ptr<ServiceEntry>& entry) {
  return {entry->binding->program, entry->binding->version};
}

uint32_t program_of(const std::unique_ptr<ServiceEntry>& entry) {
  return entry->binding->program;
}

void count_on(size_t cores, ServiceEntry& entry) {
  entry.counters.resize(cores);
  for (std::unique_ptr<ProcedureCounters[]>& of_core : entry.counters)
    of_core = std::make_unique<ProcedureCounters[]>(entry.procedures.size() + 1);
}

// Fills `procedures` in order, each with its handler and context.
Result<void> fill(const Service& service, std::vector<Procedure>& procedures) {
  procedures.assign(service.procedures.begin(), service.procedures.end());
  std::ranges::sort(procedures, {}, &Procedure::number);
  for (size_t i = 0; i < procedures.size(); ++i) {
    Procedure& p = procedures[i];
    if (p.context == nullptr)
      p.context = service.context;
    if (p.accepts == kAcceptAny)
      p.accepts = service.accepts;
    if (p.number == 0)
      p.accepts = kAcceptAny;
    if (p.handler == nullptr)
      return fail(Errc::kInvalidArgument, name_of(*service.binding) + ": procedure " +
                                              std::to_string(p.number) + " has no handler");
    if (i > 0 && procedures[i - 1].number == p.number)
      return fail(Errc::kInvalidArgument, name_of(*service.binding) + ": procedure " +
                                              std::to_string(p.number) + " is listed twice");
  }
  return {};
}

// The interceptor sees the calls of NULL as well.
void intercept(const ServiceInterceptor& interceptor, ServiceEntry& entry) {
  std::vector<Procedure>& procedures = entry.procedures;
  entry.null_added = procedures.empty() || procedures.front().number != 0;
  if (entry.null_added)
    procedures.insert(procedures.begin(), {.number = 0, .handler = [](ServerCall call, void*) {
                                             std::move(call).reply();
                                           }});
  entry.intercepted.reserve(procedures.size());
  for (Procedure& procedure : procedures) {
    entry.intercepted.push_back({procedure.handler, procedure.context, &interceptor});
    procedure.handler = enter_intercepted;
    procedure.context = &entry.intercepted.back();
  }
}

}  // namespace

Result<void> ServiceTable::add(const Service& service, bool by_library) {
  if (service.binding == nullptr)
    return fail(Errc::kInvalidArgument, "a service needs a binding");
  if (auto checked = check(*service.binding); !checked)
    return checked;
  auto entry = std::make_unique<ServiceEntry>();
  entry->binding = service.binding;
  if (auto filled = fill(service, entry->procedures); !filled)
    return filled;
  if (!by_library && (interceptor_.before != nullptr || interceptor_.after != nullptr))
    intercept(interceptor_, *entry);
  entry->told = std::make_unique<std::atomic<uint8_t>[]>(entry->procedures.size());
  std::lock_guard lock(mutex_);
  auto at = std::ranges::lower_bound(entries_, key(entry), {}, key);
  if (at != entries_.end() && key(*at) == key(entry))
    return fail(Errc::kInvalidArgument, name_of(*service.binding) + " was added before");
  if (cores_ != 0)
    service::count_on(cores_, *entry);
  entries_.insert(at, std::move(entry));
  set_versions(service.binding->program);
  publish();
  return {};
}

auto ServiceTable::withdraw(uint32_t program, uint32_t version) -> Result<Withdrawn> {
  std::lock_guard lock(mutex_);
  auto at = std::ranges::lower_bound(entries_, std::pair(program, version), {}, key);
  if (at == entries_.end() || key(*at) != std::pair(program, version))
    return fail(Errc::kNotFound, "no service has program " + std::to_string(program) + " version " +
                                     std::to_string(version));
  std::unique_ptr<ServiceEntry> entry = std::move(*at);
  entries_.erase(at);
  // What its late calls are told: the versions that remain.
  auto [low, high] = set_versions(program);
  entry->low = low;
  entry->high = high;
  entry->removed.store(true, std::memory_order_seq_cst);
  publish();
  Withdrawn withdrawn = {.entry = entry.get(), .grace = {}};
  removed_.push_back({std::move(entry), withdrawn.grace});
  return withdrawn;
}

void ServiceTable::withdraw_all() {
  std::vector<std::pair<uint32_t, uint32_t>> all;
  {
    std::lock_guard lock(mutex_);
    std::ranges::transform(entries_, std::back_inserter(all), key);
  }
  for (auto [program, version] : all)
    (void)withdraw(program, version);
}

// mutex_ must be held, here and below.
std::pair<uint32_t, uint32_t> ServiceTable::set_versions(uint32_t program) {
  auto same = std::ranges::equal_range(entries_, program, {}, program_of);
  if (same.empty())
    return {0, 0};
  const uint32_t low = same.front()->binding->version;
  const uint32_t high = same.back()->binding->version;
  for (std::unique_ptr<ServiceEntry>& entry : same) {
    entry->low = low;
    entry->high = high;
  }
  return {low, high};
}

// Publishes the list before its edition: a reader that sees the edition sees this list or a later
// one.
void ServiceTable::publish() {
  auto list = std::make_unique<Entries>();
  for (const std::unique_ptr<ServiceEntry>& entry : entries_)
    list->all.push_back(entry.get());
  published_.store(list.get(), std::memory_order_release);
  edition_.fetch_add(1, std::memory_order_release);
  base::retire(std::exchange(list_, std::move(list)));
}

// The order matters: a pass in progress may have found the entry and not counted its call yet.
void ServiceTable::collect() {
  std::lock_guard lock(mutex_);
  std::erase_if(removed_, [](const Removed& removed) {
    return removed.grace.over() && !removed.entry->in_use();
  });
}

bool ServiceEntry::in_use() const noexcept {
  for (const std::unique_ptr<ProcedureCounters[]>& of_core : counters) {
    for (size_t i = 0; i <= procedures.size(); ++i) {
      if (of_core[i].calls_in_progress != 0)
        return true;
    }
  }
  return false;
}

bool ServiceTable::empty() const noexcept {
  std::lock_guard lock(mutex_);
  return entries_.empty();
}

void ServiceTable::count_on(size_t cores) {
  std::lock_guard lock(mutex_);
  cores_ = cores;
  for (const std::unique_ptr<ServiceEntry>& entry : entries_)
    service::count_on(cores, *entry);
}

std::vector<ProcedureStats> ServiceTable::procedures() const {
  std::vector<ProcedureStats> all;
  std::lock_guard lock(mutex_);
  for (const std::unique_ptr<ServiceEntry>& each : entries_) {
    const ServiceEntry& entry = *each;
    const Binding& binding = *entry.binding;
    auto add = [&](const Procedure* procedure) {
      const uint32_t number = procedure != nullptr ? procedure->number : 0;
      ProcedureStats& stats = all.emplace_back();
      stats.program = binding.program;
      stats.version = binding.version;
      stats.procedure = number;
      stats.name = rpc::name_of(binding, number);
      for (uint32_t core = 0; core < entry.counters.size(); ++core)
        entry.counters_of(core)[entry.index_of(procedure)].add_to(stats);
    };
    if (entry.find(0) == nullptr)
      add(nullptr);
    for (const Procedure& procedure : entry.procedures)
      add(&procedure);
  }
  return all;
}

void ServiceTable::note(Mistake mistake, const ServiceEntry& entry, uint32_t number,
                        uint32_t which) const noexcept {
  auto bit = static_cast<uint8_t>(1u << static_cast<unsigned>(mistake));
  std::atomic<uint8_t>& told = entry.told[entry.index_of(entry.find(number))];
  if ((told.fetch_or(bit, std::memory_order_relaxed) & bit) == 0)
    base::log_error("%s: %s; the client gets SYSTEM_ERR (logged once for each procedure)",
                    rpc::name_of(*entry.binding, number).c_str(), describe(mistake, which).c_str());
}

bool ServiceTable::idempotent() const noexcept {
  std::lock_guard lock(mutex_);
  return std::ranges::all_of(entries_, [](const std::unique_ptr<ServiceEntry>& entry) {
    return std::ranges::all_of(entry->procedures, &Procedure::idempotent);
  });
}

}  // namespace rrdk::service
