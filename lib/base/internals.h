// The library's own way into the objects of the public headers, which have it as a friend: programs
// that include those headers have none.
#pragma once

namespace rrdk {

struct Internals {
  // What implements the object. `Object::Impl` is complete where this is used.
  template <typename Object>
  static auto& of(Object& object) noexcept {
    return object.impl();
  }
};

}  // namespace rrdk
