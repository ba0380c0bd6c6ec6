#include "drivers/verbs/cm.h"

#include <fcntl.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/system.h"

namespace rrdk::verbs {

namespace {

// Limited, so that a storm of events does not delay the other sockets.
constexpr int kEventsAtOnce = 64;

CmEvent copy_of(const rdma_cm_event& event) {
  CmEvent copy{.type = event.event,
               .status = event.status,
               .id = event.id,
               .responder_resources = event.param.conn.responder_resources,
               .initiator_depth = event.param.conn.initiator_depth,
               .private_data_length = 0,
               .private_data = {}};
  if (event.param.conn.private_data != nullptr) {
    copy.private_data_length = static_cast<uint8_t>(
        std::min<size_t>(event.param.conn.private_data_len, copy.private_data.size()));
    std::memcpy(copy.private_data.data(), event.param.conn.private_data, copy.private_data_length);
  }
  return copy;
}

Error no_rdma(int error) {
  if (error == EACCES || error == EPERM)
    return {Errc::kPermission,
            "/dev/infiniband/rdma_cm may not be opened: run as root, or be given the device"};
  return {Errc::kUnsupported,
          std::string("this machine has no RDMA connection manager (") + std::strerror(error) +
              "): load the device's driver and rdma_ucm, or use an address of shm: or iwarp:, "
              "which need no RDMA device"};
}

}  // namespace

CmChannel::~CmChannel() {
  if (channel_ == nullptr)
    return;
  control_->forget(*this);
  control_->unwatch(channel_->fd);
  rdma_destroy_event_channel(channel_);
}

Result<void> CmChannel::open(drivers::ControlLoop& control) {
  control_ = &control;
  channel_ = rdma_create_event_channel();
  if (channel_ == nullptr)
    return tl::unexpected(no_rdma(errno));
  const int flags = ::fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || ::fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0)
    return base::system_failure("fcntl");
  return control.watch(*this, channel_->fd, EPOLLIN);
}

Result<Id> CmChannel::create_id(CmHandler& handler) {
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(channel_, &id, &handler, RDMA_PS_TCP) != 0)
    return base::system_failure("rdma_create_id");
  return Id(id);
}

void CmChannel::on_ready() {
  for (int i = 0; i < kEventsAtOnce; ++i) {
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(channel_, &event) != 0)
      return;
    const CmEvent copy = copy_of(*event);
    auto* handler = static_cast<CmHandler*>(event->id->context);
    rdma_ack_cm_event(event);
    if (handler != nullptr)
      handler->on_cm_event(copy);
    if (control_->over_budget())
      return;
  }
}

drivers::Endpoint4Or6 local_end(rdma_cm_id& id) {
  return drivers::endpoint_of(rdma_get_local_addr(&id));
}

drivers::Endpoint4Or6 far_end(rdma_cm_id& id) {
  return drivers::endpoint_of(rdma_get_peer_addr(&id));
}

}  // namespace rrdk::verbs
