#include "base/addresses.h"

#include <netdb.h>

#include <algorithm>
#include <cctype>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string_view>
#include <utility>

namespace rrdk::base {

namespace {

using Addresses = std::vector<SocketAddress>;
using AddressClock = std::chrono::steady_clock;

constexpr size_t kMostAddresses = 8;  // of one name
constexpr std::chrono::seconds kAnswerKept{3};
constexpr std::chrono::seconds kFailureKept{1};

Result<Addresses> ask_system(const std::string& host, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0)
    return fail(Errc::kNotFound, ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  Addresses addresses;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    SocketAddress& address = addresses.emplace_back();
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    address.length = at->ai_addrlen;
  }
  order_addresses(addresses);
  addresses.resize(std::min(addresses.size(), kMostAddresses));
  return addresses;
}

Addresses with_port(Addresses addresses, uint16_t port) {
  for (SocketAddress& address : addresses)
    set_port(address, port);
  return addresses;
}

bool is_same_name(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

bool is_in_hosts_file(const std::string& name) {
  std::ifstream file("/etc/hosts");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string word;
    for (words >> word; words >> word;) {  // the first is the address
      if (is_same_name(word, name))
        return true;
    }
  }
  return false;
}

// Recent answers for names.
class Answers {
 public:
  Result<Addresses> find(const std::string& name) {
    std::unique_lock lock(mutex_);
    forget_old(AddressClock::now());
    const auto [at, is_new] = answers_.try_emplace(name, std::make_shared<Answer>());
    const std::shared_ptr<Answer> answer = at->second;
    if (!is_new) {
      came_.wait(lock, [&] { return answer->is_there; });
      return answer->found;
    }
    lock.unlock();
    Result<Addresses> found = ask_system(name, 0);
    lock.lock();
    answer->good_until = AddressClock::now() + (found ? kAnswerKept : kFailureKept);
    answer->found = std::move(found);
    answer->is_there = true;
    came_.notify_all();
    return answer->found;
  }

  void forget() {
    const std::lock_guard lock(mutex_);
    forget_old(AddressClock::time_point::max());
  }

 private:
  struct Answer {
    bool is_there = false;  // otherwise a thread asks
    AddressClock::time_point good_until;
    Result<Addresses> found;
  };

  void forget_old(AddressClock::time_point now) {
    std::erase_if(answers_, [&](const auto& entry) {
      return entry.second->is_there && entry.second->good_until <= now;
    });
  }

  std::mutex mutex_;
  std::condition_variable came_;
  std::map<std::string, std::shared_ptr<Answer>> answers_;
};

// Never destroyed: a thread that waits for a name server may outlive everything.
Answers& answers() {
  static auto& all = *new Answers;
  return all;
}

}  // namespace

void forget_addresses() {
  answers().forget();
}

void set_port(SocketAddress& address, uint16_t port) {
  if (address.storage.ss_family == AF_INET6)
    reinterpret_cast<sockaddr_in6&>(address.storage).sin6_port = htons(port);
  else
    reinterpret_cast<sockaddr_in&>(address.storage).sin_port = htons(port);
}

void order_addresses(std::vector<SocketAddress>& addresses) {
  if (addresses.empty())
    return;
  const sa_family_t first_family = addresses.front().storage.ss_family;
  std::vector<SocketAddress> of_first, of_other;
  for (const SocketAddress& address : addresses)
    (address.storage.ss_family == first_family ? of_first : of_other).push_back(address);
  addresses.clear();
  for (size_t i = 0; i < std::max(of_first.size(), of_other.size()); ++i) {
    for (const auto* family : {&of_first, &of_other}) {
      if (i < family->size())
        addresses.push_back((*family)[i]);
    }
  }
}

bool needs_name_server(const std::string& host) {
  return !host.empty() && numeric_address(host, 0).empty() && !is_in_hosts_file(host);
}

std::vector<SocketAddress> numeric_address(const std::string& host, uint16_t port) {
  return with_port(ask_system(host, AI_NUMERICHOST).value_or(Addresses{}), port);
}

Result<std::vector<SocketAddress>> look_up_addresses(const std::string& host, uint16_t port) {
  if (std::vector<SocketAddress> numeric = numeric_address(host, port); !numeric.empty())
    return numeric;
  return answers().find(host).map(
      [port](const Addresses& found) { return with_port(found, port); });
}

}  // namespace rrdk::base
