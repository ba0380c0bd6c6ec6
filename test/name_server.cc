#include "test/name_server.h"

#include <dlfcn.h>
#include <netdb.h>

#include <condition_variable>
#include <map>
#include <mutex>

#include "base/addresses.h"

namespace rrdk::test {
namespace {

struct Name {
  bool silent = false;
  int asked = 0;
  std::vector<std::string> addresses;
};

// Never destroyed, because the threads that ask may outlive main().
struct Names {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, Name> names;
};

Names& names() {
  static auto& all = *new Names;
  return all;
}

int system_getaddrinfo(const char* node, const char* service, const addrinfo* hints,
                       addrinfo** found) {
  static const auto real =
      reinterpret_cast<decltype(&::getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  return real(node, service, hints, found);
}

// Waits while the name is silent. Returns false if the test has not set the name.
bool ask(const std::string& name, std::vector<std::string>& addresses) {
  Names& all = names();
  std::unique_lock lock(all.mutex);
  const auto at = all.names.find(name);
  if (at == all.names.end())
    return false;
  ++at->second.asked;
  all.changed.wait(lock, [&] { return !at->second.silent; });
  addresses = at->second.addresses;
  return true;
}

}  // namespace

void set_name(const std::string& name, std::vector<std::string> addresses) {
  const std::lock_guard lock(names().mutex);
  names().names[name].addresses = std::move(addresses);
}

void silence_name(const std::string& name, bool silent) {
  const std::lock_guard lock(names().mutex);
  names().names[name].silent = silent;
  names().changed.notify_all();
}

SilentName::SilentName(std::string name)
    : name_(std::move(name)), asked_before_(times_asked(name_)) {
  set_name(name_, {"127.0.0.1"});
  silence_name(name_, true);
  base::forget_addresses();
}

int times_asked(const std::string& name) {
  const std::lock_guard lock(names().mutex);
  return names().names[name].asked;
}

}  // namespace rrdk::test

// Replaces the C library's function.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  using namespace rrdk::test;
  std::vector<std::string> addresses;
  const bool numeric = hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0;
  if (node == nullptr || numeric || !ask(node, addresses))
    return system_getaddrinfo(node, service, hints, found);
  addrinfo** end = found;
  *end = nullptr;
  for (const std::string& address : addresses) {
    if (system_getaddrinfo(address.c_str(), service, hints, end) == 0)
      end = &(*end)->ai_next;
  }
  return *found == nullptr ? EAI_NONAME : 0;
}
