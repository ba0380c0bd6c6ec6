// A reply as the duplicate request cache keeps it: the RPC message without any transport framing,
// so that it can be answered through whatever chunks a repeated call offers.
//
//   run:  length, kind (eight bytes)  then the bytes
//
// Runs of the stream itself are kept without the counts of the items behind them, which the
// Encoder writes anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "rrdk/memory.h"
#include "rrdk/xdr.h"

namespace rrdk::server {

// Bytes that keep() writes.
uint64_t kept_size(std::span<const Piece> reply) noexcept;
void keep(std::span<const Piece> reply, std::byte* to) noexcept;
// Writes the reply again. out.ok() tells whether there were buffers for its eligible items.
void restore(std::span<const std::byte> kept, Encoder& out, Memory& memory) noexcept;

}  // namespace rrdk::server
