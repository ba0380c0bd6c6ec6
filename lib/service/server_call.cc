// The rarely used parts of ServerCall and of its connection, which is the Dispatcher itself.
#include <memory>

#include "base/assert.h"
#include "base/lifetime.h"
#include "base/log.h"
#include "rrdk/service.h"
#include "rrdk/version2.h"
#include "runtime/poll_core.h"
#include "service/dispatcher.h"

namespace rrdk {

Result<std::shared_ptr<BackwardClient>> ServerCall::backward_client() {
  return call_->dispatcher->backward_client();
}

void request_receive_size(ServerCall& call, uint32_t bytes) {
  service::CallAccess::of(call).dispatcher->request_receive_size(bytes);
}
void raise_receive_size(ServerCall& call, uint32_t bytes) {
  service::CallAccess::of(call).dispatcher->raise_receive_size(bytes);
}
ReceiveSizes receive_sizes(const ServerCall& call) {
  return service::CallAccess::of(call).dispatcher->receive_size_report();
}

namespace {

const service::Dispatcher& behind(const ServerConnection& connection) noexcept {
  return static_cast<const service::Dispatcher&>(connection);
}

}  // namespace

uint64_t ServerConnection::id() const noexcept {
  return behind(*this).link().id();
}

const Peer& ServerConnection::peer() const noexcept {
  return behind(*this).link().peer();
}

ConnectionInfo ServerConnection::info() const {
  const service::Dispatcher& dispatcher = behind(*this);
  ConnectionInfo info = dispatcher.link().info();
  info.calls_rejected = dispatcher.rejected();
  return info;
}

namespace service {

void note_second_end(const char* function) noexcept {
  base::log_error(
      "ServerCall::%s() of a call that has been answered, or of a ServerCall that was moved from: "
      "nothing is done",
      function);
}

void note_foreign_end() noexcept {
  static base::LogOnce once;
  if (once.first())
    base::log_error("a ServerCall is not answered: it %s", base::kOfParent);
}

// Without a procedure the answer is our own.
void Dispatcher::note(Mistake mistake, const ServedCall& call, uint32_t item) noexcept {
  if (call.procedure == nullptr)
    return;
  ++counts_.mistakes[static_cast<size_t>(mistake)];
  services_.note(mistake, *call.service, call.header.procedure, item);
}

void Dispatcher::add_to(Stats& sum) const {
  link_.counters().add_to(sum);
#define RRDK_DISPATCHER_COUNTER(id, enumerator, name, text) \
  sum.add(Counter::k##enumerator, counts_.name);
#define RRDK_MISTAKE(id, mistake, name, text) \
  sum.add(Counter::kMistake##mistake, counts_.mistakes[static_cast<size_t>(Mistake::k##mistake)]);
#include "rrdk/counter_table.h"
}

Result<std::shared_ptr<BackwardClient>> Dispatcher::backward_client() {
  return fail(Errc::kUnsupported,
              link_.peer_name() +
                  ": here this call is one of a server's to its client, which calls the "
                  "server on its ClientConnection");
}

// Either we see that it was entered, or it sees that we wait: both publish first, then check.
bool Dispatcher::all_entered() noexcept {
  RRDK_ON_CORE(link_.core());
  if (entries_ == nullptr)
    return true;
  entries_->awaited.store(true, std::memory_order_seq_cst);
  return entries_->entered.load(std::memory_order_seq_cst) == entries_->given;
}

void Dispatcher::tell_entered() noexcept {
  link_.core().post([&core = link_.core(), id = link_.id()] {
    if (runtime::Link* link = core.find(id))
      core.mark_dirty(*link);
  });
}

}  // namespace service

}  // namespace rrdk
