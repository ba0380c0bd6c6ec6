// Limits of an end that knows version 1 alone.
#pragma once

#include "proto/header.h"

namespace rrdk::proto {

inline Limits version1_only(Limits limits = {}) {
  limits.versions.two.reset();
  return limits;
}

}  // namespace rrdk::proto
