// The library's access to the implementation of objects of the public headers, which declare it a
// friend. Programs that include those headers have no such access.
#pragma once

namespace rrdk {

struct Internals {
  // Returns the object's implementation. `Object::Impl` must be complete where this is used.
  template <typename Object>
  static auto& of(Object& object) noexcept {
    return object.impl();
  }
};

}  // namespace rrdk
