#include "gss/contexts.h"

#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <ctime>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/lifetime.h"
#include "base/log.h"
#include "gss/tcp_calls.h"
#include "rrdk/xdr.h"

namespace rrdk::gss {

using State = AcceptedContext::State;

namespace {

// A longer name would not tell callers apart in the cache of repeated calls.
bool is_name(const std::string& peer) {
  return !peer.empty() && peer.size() <= kMaxAuthBody;
}

uint64_t now_s() noexcept {
  return static_cast<uint64_t>(std::time(nullptr));
}

}  // namespace

size_t Contexts::HashOfHandle::operator()(const Handle& handle) const noexcept {
  size_t hash;
  std::memcpy(&hash, handle.data(), sizeof hash);
  return hash;
}

Contexts::Contexts(std::shared_ptr<const Identity> identity, const GssAcceptorOptions& options)
    : identity_(std::move(identity)), options_(options), thread_([this] { run(); }) {}

Contexts::~Contexts() {
  {
    const std::lock_guard lock(queue_mutex_);
    ends_ = true;
  }
  queued_.notify_one();
  thread_.join();
}

ContextRef Contexts::find(const Handle& handle) {
  {
    const std::shared_lock lock(table_mutex_);
    const auto found = complete_.find(handle);
    if (found == complete_.end())
      return nullptr;
    if (found->second->context.ends_at() > now_s()) [[likely]]
      return found->second;
  }
  if (take(handle) != nullptr)
    ++expired_;
  return nullptr;
}

void Contexts::note_use(AcceptedContext& context) noexcept {
  context.used_at.store(now_s(), std::memory_order_relaxed);
  auto unused = State::kUnused;
  if (context.state.load(std::memory_order_relaxed) == State::kUnused) [[unlikely]]
    used_ += context.state.compare_exchange_strong(unused, State::kUsed);
}

// Removes a context. What it has is freed by its last user, not under the lock.
ContextRef Contexts::take(const Handle& handle) {
  const std::lock_guard lock(table_mutex_);
  const auto found = complete_.find(handle);
  if (found == complete_.end())
    return nullptr;
  ContextRef context = std::move(found->second);
  complete_.erase(found);
  used_ -= context->state.exchange(State::kGone) == State::kUsed;
  return context;
}

void Contexts::destroy(const Handle& handle) {
  if (take(handle) != nullptr)
    ++destroyed_;
}

bool Contexts::establish(std::unique_ptr<Establishment> establishment) {
  {
    const std::lock_guard lock(queue_mutex_);
    if (queue_.size() >= options_.max_unfinished) {
      ++refused_;
      return false;
    }
    queue_.push_back(std::move(establishment));
  }
  queued_.notify_one();
  return true;
}

GssAcceptorStats Contexts::stats() const {
  const std::shared_lock lock(table_mutex_);
  return {.contexts = complete_.size(),
          .established = established_,
          .refused = refused_,
          .expired = expired_,
          .evicted = evicted_,
          .destroyed = destroyed_};
}

// Tokens that still wait at the end are answered, too: their calls are in progress until then.
void Contexts::run() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are for the program's threads
  std::unique_lock lock(queue_mutex_);
  for (;;) {
    queued_.wait(lock, [this] { return ends_ || !queue_.empty(); });
    if (queue_.empty())
      return;
    // Its owner is `done`, which may free it on another thread.
    Establishment* const next = queue_.front().release();
    queue_.pop_front();
    lock.unlock();
    try {
      establish_now(*next);
    } catch (const std::bad_alloc&) {
      next->major = GSS_S_FAILURE;
    }
    next->done(*next);
    lock.lock();
  }
}

// Returns the context to which the token belongs; null if it does not exist.
ContextRef Contexts::begin(const Establishment& establishment) {
  if (establishment.control == Control::kInit) {
    auto context = std::make_shared<AcceptedContext>();
    for (size_t i = 0; i != context->handle.size(); i += sizeof(uint32_t))
      xdr::store_u32(&context->handle[i], random_.next());
    return context;
  }
  const auto found = std::ranges::find(unfinished_, establishment.handle, &AcceptedContext::handle);
  if (found == unfinished_.end())
    return nullptr;
  ContextRef context = std::move(*found);
  unfinished_.erase(found);
  return context;
}

void Contexts::establish_now(Establishment& establishment) {
  ContextRef context = begin(establishment);
  establishment.known = context != nullptr;
  if (context == nullptr)
    return;
  const Step step = context->context.accept(*identity_, establishment.token, establishment.answer);
  establishment.major = step.major;
  establishment.minor = step.minor;
  establishment.handle = context->handle;
  if (step.goes_on()) {
    if (unfinished_.size() >= options_.max_unfinished)
      unfinished_.pop_front();
    return unfinished_.push_back(std::move(context));
  }
  std::byte window[4];
  xdr::store_u32(window, SequenceWindow::kTold);
  if (step.complete() && is_name(context->context.peer()) &&
      context->context.sign(window, establishment.checksum))
    return keep(std::move(context));
  ++refused_;
  establishment.major = GSS_ERROR(step.major) ? step.major : GSS_S_FAILURE;
  if (const auto left_out = complaints_.allow(base::Tsc::now_ns()))
    base::log_info("RPCSEC_GSS: the token of a new context was refused: %s%s", step.error.c_str(),
                   base::and_more(*left_out).text);
}

void Contexts::keep(ContextRef context) {
  ++established_;
  const Handle handle = context->handle;
  unused_.push_back(handle);
  {
    const std::lock_guard lock(table_mutex_);
    complete_.emplace(handle, std::move(context));
  }
  if (unused_.size() > options_.max_unfinished) {
    const Handle oldest = unused_.front();
    unused_.pop_front();
    const ContextRef found = find(oldest);
    if (found != nullptr && found->state == State::kUnused && take(oldest) != nullptr)
      ++evicted_;
  }
  if (used_ > options_.max_contexts)
    make_space();
}

// Forgets the contexts whose tickets have ended. If no ticket has, it forgets the context that was
// used least recently.
void Contexts::make_space() {
  const uint64_t now = now_s();
  std::vector<Handle> over;
  std::optional<Handle> oldest;
  {
    const std::shared_lock lock(table_mutex_);
    uint64_t oldest_use = UINT64_MAX;
    for (const auto& [handle, context] : complete_) {
      if (context->context.ends_at() <= now)
        over.push_back(handle);
      const uint64_t use = context->used_at;
      if (context->state == State::kUsed && use < oldest_use) {
        oldest_use = use;
        oldest = handle;
      }
    }
  }
  for (const Handle& handle : over)
    expired_ += take(handle) != nullptr;
  if (over.empty() && oldest && take(*oldest) != nullptr)
    ++evicted_;
}

}  // namespace rrdk::gss

namespace rrdk {

GssAcceptor::GssAcceptor(std::shared_ptr<gss::Contexts> contexts)
    : contexts_(std::move(contexts)) {}

GssAcceptor::~GssAcceptor() {
  if (!base::forked)
    return;
  // The threads are the parent's.
  base::keep_for_good(std::shared_ptr<gss::TcpCalls>(std::move(tcp_)));
  base::keep_for_good(std::move(contexts_));
}

Result<std::unique_ptr<GssAcceptor>> GssAcceptor::create(const GssAcceptorOptions& options) {
  if (options.max_contexts == 0 || options.max_unfinished == 0 ||
      options.max_protected_bytes < 1024)
    return fail(Errc::kInvalidArgument,
                "GssAcceptorOptions: max_contexts and max_unfinished must be at least 1, and "
                "max_protected_bytes at least 1024");
  auto identity = gss::Identity::acceptor(options.service, options.key_table);
  if (!identity)
    return tl::unexpected(identity.error());
  try {
    std::unique_ptr<GssAcceptor> acceptor(
        new GssAcceptor(std::make_shared<gss::Contexts>(std::move(*identity), options)));
    if (options.tcp.empty())
      return acceptor;
    auto tcp = gss::TcpCalls::start(*acceptor->contexts_, options.tcp);
    if (!tcp)
      return tl::unexpected(tcp.error());
    acceptor->tcp_ = std::move(*tcp);
    return acceptor;
  } catch (const std::system_error& error) {
    return fail(Errc::kSystem,
                std::string("a GssAcceptor cannot start its thread: ") + error.what());
  }
}

GssAcceptorStats GssAcceptor::stats() const {
  GssAcceptorStats stats = contexts_->stats();
  if (tcp_ != nullptr)
    stats.tcp_refused = tcp_->refused();
  return stats;
}

uint16_t GssAcceptor::tcp_port() const noexcept {
  return tcp_ != nullptr ? tcp_->port() : 0;
}

}  // namespace rrdk
