// What follows the fixed words, by version: for codec_datapath.cc only. The fixed words, `wire`,
// the expected direction and empty lists are in `header` already.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "proto/header.h"
#include "proto/words.h"

namespace rrdk::proto {

namespace version1 {
Decoded decode_body(std::span<const std::byte> message, uint32_t proc, const Limits& limits,
                    Header& header);
uint32_t body_length(const Header& header);
void encode_body(Writer& out, const Header& header);
// Of a type with lists; draft-00 has the same (V2D0-HDR-03).
Decoded decode_with_lists(std::span<const std::byte> message, const Limits& limits, Header& header);
}  // namespace version1

namespace version2 {
Decoded decode_body(std::span<const std::byte> message, uint32_t proc, const Limits& limits,
                    Header& header);
uint32_t body_length(const Header& header);
void encode_body(Writer& out, const Header& header);
}  // namespace version2

// ERR_VERS, whose code and range stand in the same places in every version (V2X-15).
constexpr uint32_t kErrVers = 1;
bool is_version_error(std::span<const std::byte> message, uint32_t proc);
Decoded decode_version_error(std::span<const std::byte> message, Header& header);
// How the body of every error begins. Empty: `code` is one of the version's own.
std::optional<Decoded> decode_error_start(std::span<const std::byte> message, Header& header,
                                          uint32_t& code);

// Without a field for it, the direction is that of the RPC message inline (BIDIR-04), and of a
// message in a chunk what the lists can tell (BIDIR-15). Before the lists are checked.
Direction direction_of_message(std::span<const std::byte> rpc, Direction expected);

}  // namespace rrdk::proto
