// Messages of registered types, RDMA2_OPTIONAL of draft-04 and RDMA_OPTIONAL of draft-00: what both
// halves need to check. A request takes a credit as a call does; its answer or error returns the
// credit (V2D0-OPT-06). None of this is on the path of calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/common.h"
#include "proto/header.h"
#include "rrdk/counters.h"
#include "rrdk/extensions.h"

namespace rrdk::engine {

// Holds any header of such a message, and the pad of its data.
constexpr uint32_t kOptionHeaderRoom = 32;

inline const OptionType* option_type(const Common& common, uint32_t type) noexcept {
  const Extensions* known = common.options.extensions;
  return known != nullptr ? known->find(type) : nullptr;
}

inline void tell(const Common& common, const OptionType& type, OptionError::Why why,
                 uint32_t code = 0) noexcept {
  type.on_error({why, type.type, code, common.known_as}, type.context);
}

// What is wrong with the data and payload of a message of that type; null: nothing. The payload's
// XID is not checked in a request that has not been sent yet.
struct OptionFault {
  OptionError::Why why;
  Refusal reason;
  const char* what;
};
const OptionFault* fault_of(const OptionType& type, bool is_answer, std::span<const std::byte> info,
                            std::span<const std::byte> payload) noexcept;
bool has_xid(std::span<const std::byte> payload, uint32_t xid) noexcept;  // or is empty

}  // namespace rrdk::engine
