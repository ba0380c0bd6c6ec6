// Seeing what the steady state must not do: allocate. In a program that links this, every
// allocation of the process, by whatever library, passes the hook; in a sanitizer's build too.
#pragma once

namespace rrdk::apps {

// From now on called at each allocation, in the thread that makes it. It must not allocate.
using AllocationHook = void (*)() noexcept;
void set_allocation_hook(AllocationHook hook) noexcept;

}  // namespace rrdk::apps
