// Running out of buffers, and of registrations, on purpose.
#include "rrdk/faults.h"

#include "mem/memory_impl.h"

namespace rrdk {

void Memory::Impl::set_faults(const FaultPlan& plan) {
  no_buffers.set(plan.seed, plan.no_buffers.rate, plan.no_buffers.every);
  no_registration.set(~plan.seed, plan.registration.rate, plan.registration.every);
  bool some = plan.no_buffers.rate > 0 || plan.no_buffers.every != 0;
  quick.store(some ? nothing.data() : smallest.data(), std::memory_order_relaxed);
}

void Memory::Impl::clear_faults() {
  no_buffers.off();
  no_registration.off();
  quick.store(smallest.data(), std::memory_order_relaxed);
}

}  // namespace rrdk
