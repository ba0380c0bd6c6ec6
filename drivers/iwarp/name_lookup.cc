#include "drivers/iwarp/name_lookup.h"

#include <thread>

#include "base/signals.h"

namespace rrdk::iwarp {

std::shared_ptr<NameLookup> NameLookup::start(const Address& address) {
  auto lookup = std::make_shared<NameLookup>();
  base::SignalsBlocked blocked;
  std::thread([lookup, address] {
    lookup->result_ = look_up(address, Lookup::kNames);
    lookup->done_.store(true, std::memory_order_release);
  }).detach();
  return lookup;
}

}  // namespace rrdk::iwarp
