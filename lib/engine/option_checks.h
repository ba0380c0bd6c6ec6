// Checks of the options that servers and clients have in common.
#pragma once

#include <cstdint>
#include <string>

#include "rrdk/error.h"
#include "rrdk/extensions.h"

namespace rrdk::engine {

constexpr uint32_t kMostCredits = 4096;
constexpr uint32_t kLargestInline = 262144;  // the largest size that RFC 8797 can express
// Holds an RPC header with the longest credential and verifier (RFC 5531 section 8.2).
constexpr uint64_t kLeastMessage = 1024;
constexpr uint64_t kMostMessage = uint64_t{1} << 30;

inline tl::unexpected<Error> wrong_option(const char* option, uint64_t value, const char* rule) {
  return fail(Errc::kInvalidArgument,
              std::string(option) + " is " + std::to_string(value) + ": " + rule);
}

// Checks ClientOptions or ServerOptions. Errors: kInvalidArgument.
template <typename Options>
Result<void> check_common(const Options& options) {
  if (options.credits == 0 || options.credits > kMostCredits)
    return wrong_option("credits", options.credits, "1 to 4096 are needed");
  if (options.backward_credits > kMostCredits)
    return wrong_option("backward_credits", options.backward_credits, "at most 4096 are possible");
  if (options.inline_size % 1024 != 0 || options.inline_size == 0 ||
      options.inline_size > kLargestInline)
    return wrong_option("inline_size", options.inline_size,
                        "a multiple of 1024, at most 262144, is needed");
  const uint32_t most = options.version2.max_receive_size;
  if (most != 0 && (most % 1024 != 0 || most < options.inline_size || most > kLargestInline))
    return wrong_option("version2.max_receive_size", most,
                        "0 is needed, or a multiple of 1024 from inline_size to 262144");
  if (most != 0 && !options.version2.properties)  // draft-04 section 5.3
    return wrong_option("version2.max_receive_size", most,
                        "it needs version2.properties, by which Receives that grow are announced");
  if (options.version2.extensions != nullptr &&
      !options.version2.extensions->properties().empty() && !options.version2.properties)
    return fail(Errc::kInvalidArgument,
                "version2.extensions has properties, which need version2.properties");
  if (options.max_call < kLeastMessage || options.max_call > kMostMessage)
    return wrong_option("max_call", options.max_call, "1024 to 1073741824 are possible");
  if (options.max_reply < kLeastMessage || options.max_reply > kMostMessage)
    return wrong_option("max_reply", options.max_reply, "1024 to 1073741824 are possible");
  return {};
}

}  // namespace rrdk::engine
