#include "base/uri.h"

#include <algorithm>
#include <charconv>

namespace rrdk::base {

namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_scheme_character(char c) {
  return is_letter(c) || (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

tl::unexpected<Error> bad(const std::string& fault) {
  return fail(Errc::kBadUri, fault);
}

// RFC 3986 section 3.1. Takes "scheme:" off the front of `rest`.
bool take_scheme(std::string_view& rest, std::string& scheme) {
  const size_t colon = rest.find(':');
  if (colon == std::string_view::npos || colon == 0 || !is_letter(rest[0]))
    return false;
  const std::string_view name = rest.substr(0, colon);
  if (!std::all_of(name.begin(), name.end(), is_scheme_character))
    return false;
  for (char c : name)
    scheme += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  rest.remove_prefix(colon + 1);
  return true;
}

// fe80::/10
bool is_link_local(std::string_view host) {
  const auto is_one_of = [&](size_t i, std::string_view set) {
    return i < host.size() && set.find(host[i]) != std::string_view::npos;
  };
  return is_one_of(0, "fF") && is_one_of(1, "eE") && is_one_of(2, "89aAbB") && host.find(':') == 4;
}

// Splits `authority` into host and port text. Returns a description of the fault, or an empty
// string.
std::string split_authority(std::string_view authority, std::string& host, std::string_view& port) {
  if (authority.find('@') != std::string_view::npos)
    return "user names are not supported";
  size_t end = authority.find(':');
  if (authority.starts_with('[')) {
    const size_t bracket = authority.find(']');
    if (bracket == std::string_view::npos)
      return "the bracket of the IPv6 address is not closed";
    host = authority.substr(1, bracket - 1);
    if (host.empty())
      return "there is no host between the brackets";
    const size_t zone = std::min(host.find('%'), host.size());
    if (is_link_local(host) && zone == host.size())
      return "a link-local address needs its interface, as in //[fe80::1%eth0]:20049";
    if (host.size() > zone + 3 && host.compare(zone, 3, "%25") == 0)
      host.erase(zone + 1, 2);  // RFC 6874 writes it so
    end = bracket + 1;
    if (end < authority.size() && authority[end] != ':')
      return "only a port (\":20049\") may follow the bracket";
  } else {
    host = authority.substr(0, end);
    if (end != std::string_view::npos && authority.find(':', end + 1) != std::string_view::npos)
      return "an IPv6 address needs brackets, as in //[::1]:20049";
  }
  port = end < authority.size() ? authority.substr(end) : std::string_view();
  if (host.empty() && !port.empty())
    return "there is a port without a host";
  return {};
}

// `text` must be ":" and a number.
std::optional<uint16_t> parse_port(std::string_view text) {
  text.remove_prefix(1);
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size())
    return std::nullopt;
  return port;
}

void parse_query(std::string_view text, Uri& uri) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('&'), text.size());
    const std::string_view field = text.substr(0, end);
    const size_t equals = std::min(field.find('='), field.size());
    if (!field.empty())
      uri.query.emplace_back(field.substr(0, equals),
                             field.substr(std::min(equals + 1, field.size())));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace

Result<Uri> parse_uri(std::string_view text) {
  if (std::any_of(text.begin(), text.end(), is_control))
    return bad("the address contains a control character");
  Uri uri;
  std::string_view rest = text;
  if (!take_scheme(rest, uri.scheme))
    return bad("it does not begin with a scheme, as in shm:/run/rrdk.sock");
  const size_t question = std::min(rest.find('?'), rest.size());
  const std::string_view query = rest.substr(question);
  rest = rest.substr(0, question);

  if (rest.starts_with("//")) {
    rest.remove_prefix(2);
    const size_t slash = std::min(rest.find('/'), rest.size());
    std::string_view port;
    const std::string fault = split_authority(rest.substr(0, slash), uri.host, port);
    if (!fault.empty())
      return bad(fault);
    if (!port.empty() && !(uri.port = parse_port(port)))
      return bad("the port is not a number from 0 to 65535");
    rest.remove_prefix(slash);
  }
  uri.path = rest;
  if (uri.host.empty() && uri.path.empty())
    return bad("nothing follows the scheme");
  if (!query.empty())
    parse_query(query.substr(1), uri);
  return uri;
}

std::optional<std::chrono::seconds> parse_timeout(std::string_view value) {
  constexpr uint32_t kLongest = 3600;
  uint32_t seconds = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seconds);
  if (error != std::errc() || end != value.data() + value.size() || seconds == 0 ||
      seconds > kLongest)
    return std::nullopt;
  return std::chrono::seconds(seconds);
}

std::optional<std::chrono::seconds> timeout_of(std::string_view uri) {
  const Result<Uri> parsed = parse_uri(uri);
  if (!parsed)
    return std::nullopt;
  const auto at =
      std::ranges::find(parsed->query, kTimeoutOption, &std::pair<std::string, std::string>::first);
  return at != parsed->query.end() ? parse_timeout(at->second) : std::nullopt;
}

Error about(std::string_view address, const Error& error) {
  std::string text = address.empty() ? "\"\"" : std::string(address);
  std::replace_if(text.begin(), text.end(), is_control, '?');
  return {error.code, text + ": " + error.message};
}

}  // namespace rrdk::base
