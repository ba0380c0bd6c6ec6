// Messages of registered types, RDMA2_OPTIONAL of draft-04 and RDMA_OPTIONAL of draft-00: what both
// halves ask of one. A request takes a credit as a call does, its answer or error gives it back
// (V2D0-OPT-06). All of it is off the way of calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/common.h"
#include "proto/header.h"
#include "rrdk/counters.h"
#include "rrdk/extensions.h"

namespace rrdk::engine {

// Room for any header of one, and the pad of its data.
constexpr uint32_t kOptionHeaderRoom = 32;

inline const OptionType* option_type(const Common& common, uint32_t type) noexcept {
  const Extensions* known = common.options.extensions;
  return known != nullptr ? known->find(type) : nullptr;
}

inline void tell(const Common& common, const OptionType& type, OptionError::Why why,
                 uint32_t code = 0) noexcept {
  type.on_error({why, type.type, code, common.known_as}, type.context);
}

// What is wrong with data and payload of a message of that type; null: nothing. Of a request that
// is not sent yet the payload's XID is not looked at.
struct OptionFault {
  OptionError::Why why;
  Refusal reason;
  const char* what;
};
const OptionFault* fault_of(const OptionType& type, bool is_answer, std::span<const std::byte> info,
                            std::span<const std::byte> payload) noexcept;
bool has_xid(std::span<const std::byte> payload, uint32_t xid) noexcept;  // or is empty

}  // namespace rrdk::engine
