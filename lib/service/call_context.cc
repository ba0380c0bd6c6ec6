#include "service/call_context.h"

namespace rrdk::service {

void ContextPool::grow() {
  constexpr size_t kSlab = 64;
  slabs_.push_back(std::make_unique<CallContext[]>(kSlab));
  // Room for all there are, so that put() never grows.
  free_.reserve(slabs_.size() * kSlab);
  for (size_t i = 0; i < kSlab; ++i)
    free_.push_back(&slabs_.back()[i]);
}

}  // namespace rrdk::service
