#include "values.h"

#include <charconv>
#include <cmath>
#include <utility>

namespace rrdk::testrpc {
namespace {

std::string in_quotes(std::string_view text) {
  return "'" + std::string(text) + "'";
}

bool whole_number(std::string_view text, uint64_t& value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

}  // namespace

Result<uint64_t> parse_count(std::string_view text, uint64_t low, uint64_t high) {
  uint64_t value = 0;
  if (!whole_number(text, value) || value < low || value > high) {
    return fail(Errc::kInvalidArgument, in_quotes(text) + " is not a number from " +
                                            std::to_string(low) + " to " + std::to_string(high));
  }
  return value;
}

Result<uint64_t> parse_bytes(std::string_view text, uint64_t low, uint64_t high) {
  std::string_view digits = text;
  uint64_t unit = 1;
  if (!text.empty() && (text.back() == 'K' || text.back() == 'k'))
    unit = 1u << 10;
  if (!text.empty() && (text.back() == 'M' || text.back() == 'm'))
    unit = 1u << 20;
  if (!text.empty() && (text.back() == 'G' || text.back() == 'g'))
    unit = 1u << 30;
  if (!text.empty() && (text.back() == 'T' || text.back() == 't'))
    unit = uint64_t{1} << 40;
  if (unit != 1)
    digits.remove_suffix(1);
  uint64_t value = 0;
  if (!whole_number(digits, value) || value > high / unit || value * unit < low) {
    return fail(Errc::kInvalidArgument, in_quotes(text) + " is not a size from " + size_text(low) +
                                            " to " + size_text(high) + ", such as 1000, 4K or 1M");
  }
  return value * unit;
}

Result<uint32_t> parse_size(std::string_view text, uint32_t high) {
  return parse_bytes(text, 0, high).transform([](uint64_t bytes) {
    return static_cast<uint32_t>(bytes);
  });
}

Result<double> parse_positive(const std::string& text) {
  constexpr double kMost = 1e9;
  double value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) ||
      value <= 0 || value > kMost)
    return fail(Errc::kInvalidArgument,
                in_quotes(text) + " is not a number above 0 and at most 1000000000");
  return Result<double>(value);
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (true) {
    size_t comma = text.find(',');
    parts.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos)
      return parts;
    text.remove_prefix(comma + 1);
  }
}

std::vector<std::string> split_uris(std::string_view text) {
  constexpr std::string_view kOfDriverNames = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::vector<std::string> uris;
  for (const std::string& part : split(text)) {
    const size_t colon = part.find_first_not_of(kOfDriverNames);
    const bool begins = colon != std::string::npos && colon != 0 && part[colon] == ':';
    if (uris.empty() || begins || part.empty())
      uris.push_back(part);
    else
      uris.back() += "," + part;
  }
  return uris;
}

std::string in_own_words(std::string message) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"ServerOptions::credits, first_credits or backward_credits",
       "--credits or --backward-credits"},
      {"Version2ServerOptions::max_receive_size, credits or backward_credits",
       "--max-receive-size, --credits or --backward-credits"},
      {"credits or backward_credits", "--credits or --backward-credits"},
      {"MemoryOptions::bytes", "--memory"},
      {"ServerOptions::max_connections_per_client", "--max-connections-per-client"},
      {"ServerOptions::first_call_timeout_ms", "--first-call-timeout"},
      {"version2.max_receive_size", "--max-receive-size"},
      {"inline_size", "--inline"}};
  for (const auto& [library, own] : kWords) {
    for (size_t at = message.find(library); at != std::string::npos;
         at = message.find(library, at + own.size()))
      message.replace(at, library.size(), own);
  }
  return message;
}

std::string host_of(const std::string& uri) {
  size_t begin = uri.find("://");
  if (begin == std::string::npos)
    return "";
  std::string authority = uri.substr(begin + 3, uri.find_first_of("/?", begin + 3) - begin - 3);
  if (authority.starts_with("["))
    return authority.substr(1, authority.find(']') - 1);
  return authority.substr(0, authority.rfind(':'));
}

std::string number_text(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value, std::chars_format::general).ptr};
}

std::string size_text(uint64_t bytes) {
  constexpr std::string_view kUnits = " KMGT";
  size_t unit = 0;
  for (; bytes != 0 && bytes % 1024 == 0 && unit + 1 < kUnits.size(); bytes /= 1024)
    ++unit;
  return std::to_string(bytes) + (unit == 0 ? "" : std::string(1, kUnits[unit]));
}

std::string mix_text(std::span<const uint32_t> sizes, std::span<const uint32_t> weights) {
  std::string text;
  for (size_t i = 0; i < sizes.size(); ++i)
    text += (i == 0 ? "" : ",") + size_text(sizes[i]) + ":" + std::to_string(weights[i]);
  return text;
}

}  // namespace rrdk::testrpc
