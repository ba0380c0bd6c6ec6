// Parses and formats values of options. Errors quote the value and say what is valid.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rrdk/error.h"

namespace rrdk::testrpc {

// Digits, within [low, high].
Result<uint64_t> parse_count(std::string_view text, uint64_t low, uint64_t high);
// Digits with an optional suffix K, M, G or T (powers of 1024), within [low, high].
Result<uint64_t> parse_bytes(std::string_view text, uint64_t low, uint64_t high);
// The same for values up to 32 bits.
Result<uint32_t> parse_size(std::string_view text, uint32_t high);
// A decimal number above zero, at most 10^9.
Result<double> parse_positive(const std::string& text);
// Splits "a,b,c"; an empty part is kept, so that the parser of the parts refuses it.
std::vector<std::string> split(std::string_view text);
// Splits "shm:/a,iwarp://b" at its commas; a comma that is not followed by a driver's name and a
// colon is part of a path.
std::vector<std::string> split_uris(std::string_view text);
// Returns the host of "scheme://host:port/...", or an empty string without a host.
std::string host_of(const std::string& uri);
// Formats the number as short as possible: "0.5", "50000".
std::string number_text(double value);
// Returns a message of the library with testrpc's options in place of the library's.
std::string in_own_words(std::string message);
// Returns "4K", "1M", "1000".
std::string size_text(uint64_t bytes);
// Returns each size with its weight: "4K:70,1M:30".
std::string mix_text(std::span<const uint32_t> sizes, std::span<const uint32_t> weights);

}  // namespace rrdk::testrpc
