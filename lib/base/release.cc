#include "rrdk/release.h"

uint32_t rrdk_version(void) {
  return RRDK_VERSION;
}

const char* rrdk_version_string(void) {
  return RRDK_VERSION_STRING;
}
