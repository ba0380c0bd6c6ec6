#include "gss/contexts.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <string>
#include <system_error>
#include <utility>

#include "base/log.h"
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
  const uint64_t now = now_s();
  {
    const std::shared_lock lock(table_mutex_);
    const auto found = complete_.find(handle);
    if (found == complete_.end())
      return nullptr;
    if (found->second->context.ends_at() > now) [[likely]] {
      found->second->used_at.store(now, std::memory_order_relaxed);
      return found->second;
    }
  }
  const std::lock_guard lock(table_mutex_);
  expired_ += complete_.erase(handle);
  return nullptr;
}

void Contexts::destroy(const Handle& handle) {
  const std::lock_guard lock(table_mutex_);
  destroyed_ += complete_.erase(handle);
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

// Those who wait when it ends are answered: their calls are in progress until then.
void Contexts::run() {
  std::unique_lock lock(queue_mutex_);
  for (;;) {
    queued_.wait(lock, [this] { return ends_ || !queue_.empty(); });
    if (queue_.empty())
      return;
    // Its owner is `done`, which may free it on another thread.
    Establishment* const next = queue_.front().release();
    queue_.pop_front();
    lock.unlock();
    establish_now(*next);
    next->done(*next);
    lock.lock();
  }
}

// The context to which the token belongs; null: there is no such one.
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
  if (const auto left_out = complaints_.allow(now_s() * 1'000'000'000))
    base::log_info("RPCSEC_GSS: the token of a new context was refused: %s%s", step.error.c_str(),
                   base::and_more(*left_out).text);
}

void Contexts::keep(ContextRef context) {
  const uint64_t now = now_s();
  context->used_at = now;
  ++established_;
  const std::lock_guard lock(table_mutex_);
  if (complete_.size() >= options_.max_contexts)
    make_space(now);
  const Handle handle = context->handle;
  complete_.emplace(handle, std::move(context));
}

// Forgets those whose time is over; if there are none, the one that was not used for longest.
void Contexts::make_space(uint64_t now) {
  const auto is_over = [now](const auto& entry) { return entry.second->context.ends_at() <= now; };
  const size_t over = std::erase_if(complete_, is_over);
  expired_ += over;
  if (over != 0)
    return;
  const auto oldest = std::ranges::min_element(
      complete_, {}, [](const auto& entry) { return entry.second->used_at.load(); });
  complete_.erase(oldest);
  ++evicted_;
}

}  // namespace rrdk::gss

namespace rrdk {

GssAcceptor::GssAcceptor(std::unique_ptr<gss::Contexts> contexts)
    : contexts_(std::move(contexts)) {}

GssAcceptor::~GssAcceptor() = default;

Result<std::unique_ptr<GssAcceptor>> GssAcceptor::create(const GssAcceptorOptions& options) {
  if (options.max_contexts == 0 || options.max_unfinished == 0)
    return fail(Errc::kInvalidArgument,
                "GssAcceptorOptions: max_contexts and max_unfinished must not be 0");
  auto identity = gss::Identity::acceptor(options.service, options.key_table);
  if (!identity)
    return tl::unexpected(identity.error());
  try {
    return std::unique_ptr<GssAcceptor>(
        new GssAcceptor(std::make_unique<gss::Contexts>(std::move(*identity), options)));
  } catch (const std::system_error& error) {
    return fail(Errc::kSystem,
                std::string("a GssAcceptor cannot start its thread: ") + error.what());
  }
}

GssAcceptorStats GssAcceptor::stats() const {
  return contexts_->stats();
}

}  // namespace rrdk
