// Limits of an end that supports version 1 only.
#pragma once

#include "proto/header.h"

namespace rrdk::proto {

inline Limits version1_only(Limits limits = {}) {
  limits.versions.two.reset();
  return limits;
}

}  // namespace rrdk::proto
