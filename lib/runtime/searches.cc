#include "runtime/searches.h"

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/addresses.h"
#include "base/clock.h"
#include "runtime/thread.h"

namespace rrdk::runtime {

namespace {

void begin(const Searches::Search& search) {
  if (search.began_ns != nullptr)
    *search.began_ns = base::Tsc::now_ns();
}

}  // namespace

// Shared by all threads that search: those that are left behind keep it.
struct Searches::State : std::enable_shared_from_this<State> {
  struct Host {
    std::deque<Search> searches;
    bool has_turn = false;  // a thread is at work for it
  };

  Result<void> start(Search search);
  void search_quickly();
  bool pass_on(Search& search);
  void search_names(std::string host);
  bool take(std::string& host, Search& search);
  bool go_on(Search& search);

  std::mutex mutex;
  std::condition_variable ended;
  bool stopped = false;
  uint32_t going_on = 0;  // threads in a `then`
  // Searches that need no name server: one thread, while there are any.
  std::deque<Search> quick;
  bool quick_thread = false;
  // A thread for each name that has its turn; it then takes the next name that waits.
  std::map<std::string, Host> hosts;
  std::deque<std::string> waiting;
  uint32_t name_threads = 0;
};

Searches::Searches() : state_(std::make_shared<State>()) {}

Result<void> Searches::start(Search search) {
  return state_->start(std::move(search));
}

void Searches::stop() {
  std::deque<Search> quick;  // their contents are destroyed outside the lock
  std::map<std::string, State::Host> hosts;
  std::unique_lock lock(state_->mutex);
  state_->stopped = true;
  quick.swap(state_->quick);
  hosts.swap(state_->hosts);
  state_->waiting.clear();
  state_->ended.wait(lock, [this] { return state_->going_on == 0; });
}

// Only a thread can find out whether a name server is needed, since that reads a file.
Result<void> Searches::State::start(Search search) {
  const std::lock_guard lock(mutex);
  if (!quick_thread) {
    auto thread =
        start_aside_thread("rrdk-find", [self = shared_from_this()] { self->search_quickly(); });
    if (!thread)
      return tl::unexpected(thread.error());
    thread->detach();
    quick_thread = true;
  }
  quick.push_back(std::move(search));
  return {};
}

void Searches::State::search_quickly() {
  for (;;) {
    Search search;
    {
      const std::lock_guard lock(mutex);
      if (quick.empty()) {
        quick_thread = false;
        return;
      }
      search = std::move(quick.front());
      quick.pop_front();
    }
    if ((search.is_slow || base::needs_name_server(search.host)) && pass_on(search))
      continue;
    begin(search);
    search.find();
    if (!go_on(search))
      return;
  }
}

// Leaves it to a thread of its name, or to the next that is free. Returns false if there can be
// none.
bool Searches::State::pass_on(Search& search) {
  const std::lock_guard lock(mutex);
  if (stopped)
    return true;
  const auto [at, is_new] = hosts.try_emplace(search.host);
  if (is_new && name_threads == kMostNames) {
    waiting.push_back(search.host);
  } else if (is_new) {
    auto thread = start_aside_thread(
        "rrdk-find", [self = shared_from_this(), host = search.host] { self->search_names(host); });
    if (!thread) {
      hosts.erase(at);
      return false;
    }
    thread->detach();
    ++name_threads;
    at->second.has_turn = true;
  }
  if (at->second.has_turn)
    begin(search);
  at->second.searches.push_back(std::move(search));
  return true;
}

void Searches::State::search_names(std::string host) {
  for (Search search; take(host, search); search = {}) {
    search.find();
    if (!go_on(search))
      return;
  }
}

// Takes the next search of `host`, or of a host that waits.
bool Searches::State::take(std::string& host, Search& search) {
  const std::lock_guard lock(mutex);
  if (stopped)
    return false;
  auto at = hosts.find(host);
  if (at->second.searches.empty()) {
    hosts.erase(at);
    if (waiting.empty()) {
      --name_threads;
      return false;
    }
    host = std::move(waiting.front());
    waiting.pop_front();
    at = hosts.find(host);
    at->second.has_turn = true;
    for (const Search& each : at->second.searches)
      begin(each);
  }
  search = std::move(at->second.searches.front());
  at->second.searches.pop_front();
  return true;
}

// Returns false if stop() came first; nothing but `this` may be touched then.
bool Searches::State::go_on(Search& search) {
  {
    const std::lock_guard lock(mutex);
    if (stopped)
      return false;
    ++going_on;
  }
  search.then();
  search.then = nullptr;
  const std::lock_guard lock(mutex);
  --going_on;
  ended.notify_all();
  return !stopped;
}

}  // namespace rrdk::runtime
