#include "drivers/verbs/registrations.h"

#include <utility>

namespace rrdk::verbs {

Registrations::~Registrations() {
  for (auto& [key, entry] : entries_)
    end(entry);
}

void Registrations::end(Entry& entry) noexcept {
  if (entry.mr != nullptr)
    ibv_dereg_mr(std::exchange(entry.mr, nullptr));
}

bool Registrations::reserve(std::span<uint32_t> keys) noexcept {
  if (entries_.size() + keys.size() > most_)
    return false;
  for (uint32_t& key : keys) {
    do {
      key = names_.next();
    } while (!entries_.try_emplace(key).second);
  }
  return true;
}

uint32_t Registrations::name(uint32_t key, const MemorySpan& span, fabric::Rights rights) noexcept {
  auto reserved = entries_.find(key);
  if (reserved == entries_.end() || reserved->second.mr != nullptr)
    return key;
  const int access = rights == fabric::Rights::kRemoteRead
                         ? IBV_ACCESS_REMOTE_READ
                         : IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;
  // The real function: <infiniband/verbs.h> has a macro of this name for constant arguments.
  ibv_mr* mr = (ibv_reg_mr)(pd_, span.data, span.length, access);
  if (mr == nullptr) {
    Counters::count(counts_.registrations_failed);
    return key;  // its bind will be refused
  }
  Counters::count(counts_.keys_by_registration);
  if (mr->rkey != key &&
      entries_.contains(mr->rkey)) {  // the name of one that is not given back yet
    ibv_dereg_mr(mr);
    return key;
  }
  entries_.erase(key);
  entries_.emplace(mr->rkey, Entry{mr, span, rights});
  return mr->rkey;
}

void Registrations::release(uint32_t key) noexcept {
  if (auto found = entries_.find(key); found != entries_.end()) {
    end(found->second);
    entries_.erase(found);
  }
}

KeyVerdict Registrations::bind(const fabric::SendWr& wr, ibv_mr* /*mr*/,
                               ibv_send_wr& /*to*/) noexcept {
  auto found = entries_.find(wr.key);
  if (found == entries_.end() || found->second.mr == nullptr || wr.num_sges != 1)
    return KeyVerdict::kRefused;
  const Entry& entry = found->second;
  const MemorySpan& span = wr.sges[0];
  const bool as_named =
      entry.span.data == span.data && entry.span.length == span.length && entry.rights == wr.rights;
  return as_named ? KeyVerdict::kNothing : KeyVerdict::kRefused;
}

KeyVerdict Registrations::invalidate(uint32_t key, ibv_send_wr& /*to*/) noexcept {
  auto found = entries_.find(key);
  if (found == entries_.end())
    return KeyVerdict::kRefused;
  end(found->second);
  return KeyVerdict::kNothing;
}

}  // namespace rrdk::verbs
