// What others than its core do with a connection: they look at it, and close it.
//
// The list's lock is taken by cores, too, when connections come and go: so whoever goes through all
// of them holds it for a few at a time.
#include <vector>

#include "server/server_impl.h"
#include "server/server_link.h"

namespace rrdk {

namespace {

constexpr size_t kVisitedAtOnce = 32;

}  // namespace

void Server::Impl::visit(const std::function<void(const ConnectionInfo&)>& visitor) const {
  std::vector<ConnectionInfo> seen;
  uint64_t last = 0;
  do {
    seen.clear();
    {
      std::lock_guard lock(links_mutex_);
      for (auto next = links_.upper_bound(last);
           next != links_.end() && seen.size() < kVisitedAtOnce; ++next)
        seen.push_back(next->second->info());
    }
    for (const ConnectionInfo& one : seen)
      visitor(one);
    last = seen.empty() ? last : seen.back().id;
  } while (seen.size() == kVisitedAtOnce);
}

// On its core, where it can not go meanwhile.
Result<void> Server::Impl::close(uint64_t id, const std::string& reason) {
  std::lock_guard lock(links_mutex_);
  auto found = links_.find(id);
  if (found == links_.end())
    return fail(Errc::kNotFound, "there is no connection " + std::to_string(id));
  found->second->core().post([this, id, reason] {
    server::ServerLink* link = nullptr;
    {
      std::lock_guard still(links_mutex_);
      if (auto here = links_.find(id); here != links_.end())
        link = here->second;
    }
    if (link != nullptr)
      link->close_for(reason);
  });
  return {};
}

}  // namespace rrdk
