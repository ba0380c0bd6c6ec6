// The Connection Configuration Protocol's bodies as rpcgen's codec has them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace rrdk::proto {

using ConfigBody = std::array<std::byte, 12>;
using ConfigWords = std::array<uint32_t, 3>;

ConfigBody reference_config_request(const ConfigWords& fields);
ConfigBody reference_config_reply(const ConfigWords& fields);
ConfigWords reference_config_request(const ConfigBody& body);
ConfigWords reference_config_reply(const ConfigBody& body);

struct ConfigNumbers {
  uint32_t program, version, procedure;
};
ConfigNumbers reference_config_numbers();

}  // namespace rrdk::proto
