// What a ServerCall has beside the way of a call.
#include <memory>

#include "rrdk/service.h"
#include "service/call_context.h"
#include "service/dispatcher.h"

namespace rrdk {

Result<std::shared_ptr<BackwardClient>> ServerCall::backward_client() {
  return context_->dispatcher->backward_client();
}

void ServerCall::request_receive_size(uint32_t bytes) {
  context_->dispatcher->request_receive_size(bytes);
}
void ServerCall::raise_receive_size(uint32_t bytes) {
  context_->dispatcher->raise_receive_size(bytes);
}
ReceiveSizes ServerCall::receive_sizes() const {
  return context_->dispatcher->receive_size_report();
}

namespace service {

Result<std::shared_ptr<BackwardClient>> Dispatcher::backward_client() {
  return fail(Errc::kUnsupported,
              link_.peer() +
                  ": here this call is one of a server's to its client, which calls the "
                  "server on its ClientConnection");
}

}  // namespace service

}  // namespace rrdk
