// The library's access to the implementation of objects of the public headers, which declare it a
// friend. Programs that include those headers have no such access.
#pragma once

#include <utility>

namespace rrdk {

struct Internals {
  // Returns the object's implementation. `Object::Impl` must be complete where this is used.
  template <typename Object>
  static auto& of(Object& object) noexcept {
    return object.impl();
  }
  // Makes an object by a constructor that programs do not have.
  template <typename Object, typename... Arguments>
  static Object make(Arguments&&... arguments) {
    return Object(std::forward<Arguments>(arguments)...);
  }
};

}  // namespace rrdk
