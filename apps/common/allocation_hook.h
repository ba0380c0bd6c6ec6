// A hook for allocations, which the steady state must not make. In a program that links this, every
// allocation of the process calls the hook, whichever library makes it; with sanitizers too.
#pragma once

namespace rrdk::apps {

// Called at each allocation, in the allocating thread. It must not allocate.
using AllocationHook = void (*)() noexcept;
void set_allocation_hook(AllocationHook hook) noexcept;

}  // namespace rrdk::apps
