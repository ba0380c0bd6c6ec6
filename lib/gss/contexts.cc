#include "gss/contexts.h"

#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <ctime>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/lifetime.h"
#include "base/log.h"
#include "gss/tcp_calls.h"
#include "rrdk/xdr.h"

namespace rrdk::gss {

namespace {

// A longer name would not tell callers apart in the cache of repeated calls.
bool is_name(const std::string& peer) {
  return !peer.empty() && peer.size() <= kMaxAuthBody;
}

uint64_t now_s() noexcept {
  return static_cast<uint64_t>(std::time(nullptr));
}

// Contexts whose tickets have ended that are forgotten at a time: calls wait meanwhile.
constexpr size_t kMostAtATime = 16;

template <typename Number>
std::string bytes_of(const Number& number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

}  // namespace

Owner owner_of(const fabric::Identity& origin, uint64_t connection) {
  return {.name = bytes_of(origin.words), .part = bytes_of(connection)};
}

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
    ends_now_ = true;
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

// The order in which they were used is exact to a second, and needs the lock once in each.
void Contexts::note_use(const ContextRef& context) {
  const uint64_t now = now_s();
  if (context->used_at.load(std::memory_order_relaxed) == now) [[likely]]
    return;
  ContextRef surplus;  // freed when the lock is
  const std::lock_guard lock(table_mutex_);
  if (context->state == State::kUnused) {
    const uint64_t number = used_.add(context.get(), {.name = context->context.peer()});
    unused_.take(std::exchange(context->number, number));
    context->state = State::kUsed;
  } else if (context->state == State::kUsed) {
    context->number = used_.renew(context->number);
  }
  context->used_at.store(now, std::memory_order_relaxed);
  if (used_.size() <= options_.max_contexts)
    return;
  surplus = take_locked(complete_.find(used_.surplus()->handle));
  ++evicted_;
}

// What a context has is freed by its last user, not under the lock.
ContextRef Contexts::take(const Handle& handle) {
  const std::lock_guard lock(table_mutex_);
  const auto found = complete_.find(handle);
  return found != complete_.end() ? take_locked(found) : nullptr;
}

ContextRef Contexts::take_locked(Table::iterator at) {
  ContextRef context = std::move(at->second);
  complete_.erase(at);
  (context->state == State::kUsed ? used_ : unused_).take(context->number);
  ends_.erase({context->context.ends_at(), context.get()});
  context->state = State::kGone;
  return context;
}

void Contexts::destroy(const Handle& handle) {
  if (take(handle) != nullptr)
    ++destroyed_;
}

bool Contexts::establish(std::unique_ptr<Establishment> establishment) {
  const Establishment* const given = establishment.get();
  std::unique_ptr<Establishment> surplus;
  {
    const std::lock_guard lock(queue_mutex_);
    queue_.add(std::move(establishment), given->from);
    if (queue_.size() > options_.max_unfinished)
      surplus = queue_.take_surplus();
  }
  queued_.notify_one();
  if (surplus == nullptr)
    return true;
  ++refused_;
  if (surplus.get() == given)
    return false;
  surplus->made_way = true;
  Establishment* const other = surplus.release();  // its owner is `done`
  other->done(*other);
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
    queued_.wait(lock, [this] { return ends_now_ || queue_.size() != 0; });
    if (queue_.size() == 0)
      return;
    // Its owner is `done`, which may free it on another thread.
    Establishment* const next = queue_.take_oldest().release();
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
  const auto found = unfinished_.find(establishment.handle);
  if (found == unfinished_.end())
    return nullptr;
  ContextRef context = std::move(found->second);
  unfinished_.erase(found);
  unfinished_of_.take(context->number);
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
    const auto kept = unfinished_.emplace(context->handle, context).first;
    try {
      context->number = unfinished_of_.add(context.get(), establishment.from);
    } catch (const std::bad_alloc&) {
      unfinished_.erase(kept);
      throw;
    }
    if (unfinished_.size() > options_.max_unfinished)
      unfinished_.erase(unfinished_of_.take_surplus()->handle);
    return;
  }
  std::byte window[4];
  xdr::store_u32(window, SequenceWindow::kTold);
  if (step.complete() && is_name(context->context.peer()) &&
      context->context.sign(window, establishment.checksum))
    return keep(context, establishment.from);
  ++refused_;
  establishment.major = GSS_ERROR(step.major) ? step.major : GSS_S_FAILURE;
  if (const auto left_out = complaints_.allow(base::Tsc::now_ns()))
    base::log_info("RPCSEC_GSS: the token of a new context was refused: %s%s", step.error.c_str(),
                   base::and_more(*left_out).text);
}

void Contexts::keep(const ContextRef& context, const Owner& from) {
  forget_ended();
  ++established_;
  ContextRef surplus;  // freed when the lock is
  const std::lock_guard lock(table_mutex_);
  const auto kept = complete_.emplace(context->handle, context).first;
  try {
    ends_.emplace(context->context.ends_at(), context.get());
    context->number = unused_.add(context.get(), from);
    context->state = State::kUnused;
  } catch (const std::bad_alloc&) {
    ends_.erase({context->context.ends_at(), context.get()});
    complete_.erase(kept);
    throw;
  }
  if (unused_.size() <= options_.max_unfinished)
    return;
  surplus = take_locked(complete_.find(unused_.surplus()->handle));
  ++evicted_;
}

// Those whose tickets have ended make space without being asked for.
void Contexts::forget_ended() {
  const uint64_t now = now_s();
  std::vector<ContextRef> ended;  // freed when the lock is
  ended.reserve(kMostAtATime);
  const std::lock_guard lock(table_mutex_);
  while (!ends_.empty() && ends_.begin()->first <= now && ended.size() != kMostAtATime) {
    ended.push_back(take_locked(complete_.find(ends_.begin()->second->handle)));
    ++expired_;
  }
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
