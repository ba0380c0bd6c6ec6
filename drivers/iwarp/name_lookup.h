// Looks a name up without holding up whoever asks: the resolver blocks, so it has a thread of its
// own, which outlives the asker if need be.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "drivers/iwarp/address.h"

namespace rrdk::iwarp {

class NameLookup {
 public:
  static std::shared_ptr<NameLookup> start(const Address& address);

  // Null: it is still under way.
  const Result<std::vector<Endpoint4Or6>>* result() const {
    return done_.load(std::memory_order_acquire) ? &*result_ : nullptr;
  }

 private:
  std::optional<Result<std::vector<Endpoint4Or6>>> result_;
  std::atomic<bool> done_{false};
};

}  // namespace rrdk::iwarp
