#include "drivers/verbs/listener.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "drivers/verbs/address.h"
#include "drivers/verbs/device.h"
#include "drivers/verbs/queue_pair.h"

namespace rrdk::verbs {

namespace {

constexpr int kBacklog = 1024;

tl::unexpected<Error> listen_error(const char* call, int error) {
  switch (error) {
    case EADDRINUSE:
      return fail(Errc::kAddressInUse, "another server listens there");
    case EADDRNOTAVAIL:
      return fail(Errc::kNotFound, "this host does not have the address");
    case ENODEV:
    case ENOENT:
      return fail(Errc::kNotFound, "no RDMA device of this host has the address");
    case EACCES:
      return fail(Errc::kPermission, "ports below 1024 are for root");
    default:
      return fail(Errc::kSystem, std::string(call) + ": " + std::strerror(error));
  }
}

}  // namespace

Result<std::unique_ptr<Listener>> Listener::create(Device& device, const Address& address) {
  const std::lock_guard lock(device.control().mutex());
  std::unique_ptr<Listener> listener(new Listener(device));
  if (Result<void> opened = listener->open(address); !opened)
    return tl::unexpected(opened.error());
  return listener;
}

// An address that is not the device's is left out, if another one of the name belongs to the
// device.
Result<void> Listener::open(const Address& address) {
  if (Result<void> fits = device_.check_device(address); !fits)
    return fits;
  const bool alone = address.endpoints.size() == 1;
  Error none;
  for (drivers::Endpoint4Or6 at : address.endpoints) {
    if (!ids_.empty())
      base::set_port(at, ntohs(rdma_get_src_port(ids_.front().get())));
    Result<Id> id = listen_at(at);
    if (id) {
      ids_.push_back(std::move(*id));
      continue;
    }
    none = {id.error().code, (alone ? "" : drivers::to_text(at) + ": ") + id.error().message};
    if (none.code != Errc::kNotFound && none.code != Errc::kUnsupported)
      return tl::unexpected(none);
    if (!alone)
      base::log_info("verbs: nothing listens at %s", none.message.c_str());
  }
  if (ids_.empty())
    return tl::unexpected(none);
  const drivers::Endpoint4Or6 first = local_end(*ids_.front());
  uri_ = "verbs://" + (ids_.size() == 1
                           ? drivers::to_text(first)
                           : address.host + ":" + std::to_string(drivers::address_of(first).port));
  if (!address.device.empty())
    uri_ += "?device=" + address.device;
  return {};
}

Result<Id> Listener::listen_at(drivers::Endpoint4Or6 at) {
  Result<Id> id = device_.channel().create_id(*this);
  if (!id)
    return id;
  int on = 1;  // so that connections of an earlier server do not block its port
  (void)rdma_set_option(id->get(), RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on));
  if (rdma_bind_addr(id->get(), at.get()) != 0)
    return listen_error("rdma_bind_addr", errno);
  const ibv_context* verbs = (*id)->verbs;
  if (verbs != nullptr && device_.name() != ibv_get_device_name(verbs->device))
    return fail(Errc::kUnsupported, std::string("it belongs to ") +
                                        ibv_get_device_name(verbs->device) +
                                        ", and this process uses " + device_.name());
  if (rdma_listen(id->get(), kBacklog) != 0)
    return listen_error("rdma_listen", errno);
  return id;
}

Listener::~Listener() {
  const std::lock_guard lock(device_.control().mutex());
  device_.control().forget(*this);
  ids_.clear();
}

void Listener::on_cm_event(const CmEvent& event) {
  if (event.type == RDMA_CM_EVENT_DEVICE_REMOVAL) {
    base::log_error("verbs: %s no longer listens", uri_.c_str());
    return device_.lose();
  }
  if (event.type != RDMA_CM_EVENT_CONNECT_REQUEST)
    return;
  Id id(event.id);
  if (id->verbs == nullptr || device_.name() != ibv_get_device_name(id->verbs->device)) {
    Counters::count(device_.counts().requests_refused);
    rdma_reject(id.get(), nullptr, 0);  // a wildcard address listens on every device
    return;
  }
  fabric::Event asked;
  asked.type = fabric::EventType::kConnectRequest;
  asked.listener = this;
  asked.request = std::make_unique<ConnectRequest>(device_, std::move(id), event);
  device_.control().emit(*this, std::move(asked));
}

ConnectRequest::ConnectRequest(Device& device, Id id, const CmEvent& asked)
    : device_(device),
      asked_(asked),
      near_(local_end(*id)),
      far_(far_end(*id)),
      id_(std::move(id)) {
  id_->context = static_cast<CmHandler*>(this);
}

Peer ConnectRequest::peer() const {
  return drivers::peer_between(kScheme, near_, far_);
}

ConnectRequest::~ConnectRequest() {
  const std::lock_guard lock(device_.control().mutex());
  id_.reset();
}

void ConnectRequest::on_cm_event(const CmEvent& /*event*/) {
  gone_ = true;  // whatever the event is, before an answer it means the end
}

bool ConnectRequest::has_hung_up() const {
  const std::lock_guard lock(device_.control().mutex());
  return gone_;
}

Result<std::unique_ptr<fabric::QueuePair>> ConnectRequest::create_queue_pair(
    const fabric::QueuePairOptions& options) {
  return device_.create_queue_pair(options);
}

Result<void> ConnectRequest::accept(fabric::QueuePair& qp,
                                    std::span<const std::byte> private_data) {
  const std::lock_guard lock(device_.control().mutex());
  if (!id_)
    return fail(Errc::kInvalidArgument, "the request was answered already");
  if (auto checked = drivers::check_private_data(private_data); !checked)
    return checked;
  if (gone_) {
    Counters::count(device_.counts().requests_refused);
    return fail(Errc::kConnectionLost, "the peer went away during the handshake");
  }
  return static_cast<QueuePair&>(qp).accept(std::move(id_), asked_, private_data);
}

void ConnectRequest::reject(std::span<const std::byte> private_data) {
  const std::lock_guard lock(device_.control().mutex());
  if (!id_)
    return;
  rdma_reject(id_.get(), private_data.data(),
              static_cast<uint8_t>(std::min<size_t>(private_data.size(), fabric::kMaxPrivateData)));
  id_.reset();
}

}  // namespace rrdk::verbs
