#include "rrdk/client.h"

#include <string>
#include <utility>

#include "base/internals.h"
#include "base/lifetime.h"
#include "base/uri.h"
#include "client/client_impl.h"
#include "engine/option_checks.h"

namespace rrdk {

namespace {

Result<void> check_survival(const ClientOptions& options) {
  const ReconnectOptions& r = options.reconnect;
  if (r.first_delay_ms == 0 || r.first_delay_ms > r.max_delay_ms)
    return fail(Errc::kInvalidArgument,
                "reconnect.first_delay_ms is at least 1 and at most reconnect.max_delay_ms");
  if (options.retransmit && !r.enabled)
    return fail(Errc::kInvalidArgument,
                "retransmit needs reconnect: calls are sent again on another connection only");
  if (options.keepalive_patience == 0)
    return fail(Errc::kInvalidArgument, "keepalive_patience is at least 1");
  if (options.keepalive_binding == nullptr)
    return {};
  if (auto checked = check(*options.keepalive_binding); !checked)
    return fail(checked.error().code, "keepalive_binding: " + checked.error().message);
  return {};
}

}  // namespace

Client::Client(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() {
  if (base::forked)
    base::keep_for_good(std::move(impl_));
}

Result<std::unique_ptr<Client>> Client::create(Runtime& runtime, const ClientOptions& options) {
  if (auto common = engine::check_common(options); !common)
    return tl::unexpected(common.error());
  if (options.backward_credits == 0)
    return fail(Errc::kInvalidArgument, "backward_credits is at least 1");
  if (options.pad_write_chunks && options.one_segment)
    return fail(Errc::kInvalidArgument, "pad_write_chunks needs a second segment: not one_segment");
  if (options.version2.backward_chunks && !options.version2.properties)
    return fail(Errc::kInvalidArgument,
                "version2.backward_chunks needs version2.properties, which tell the server");
  if (options.version2.max_backward_chunk_bytes == 0)
    return fail(Errc::kInvalidArgument, "version2.max_backward_chunk_bytes is at least 1");
  if (options.rfc5666.enabled && options.version != RpcRdmaVersion::kOne)
    return fail(Errc::kInvalidArgument, "rfc5666 is about version 1: version must be kOne");
  if (auto checked = check_survival(options); !checked)
    return tl::unexpected(checked.error());
  return std::unique_ptr<Client>(
      new Client(std::make_shared<Impl>(Internals::of(runtime), options)));
}

Result<void> Client::add_service(const Service& service) {
  if (impl_->connected.load(std::memory_order_relaxed))
    return fail(Errc::kInvalidArgument, "services are added before the first connect()");
  if (impl_->options.rfc5666.enabled)
    return fail(Errc::kInvalidArgument, "rfc5666 has no calls of servers to their clients");
  return impl_->services.add(service);
}

void Client::set_auth_sys(const AuthSys& identity) {
  const SharedCredential made(identity);
  impl_->set_credential(Internals::of(made));
}

void Client::set_credential(const SharedCredential& credential) {
  impl_->set_credential(Internals::of(credential));
}

Result<void> Client::set_auth(AuthFlavor flavor, std::span<const std::byte> body) {
  Result<SharedCredential> made = SharedCredential::make(flavor, body);
  if (!made)
    return tl::unexpected(made.error());
  impl_->set_credential(Internals::of(*made));
  return {};
}

Result<std::unique_ptr<ClientConnection>> Client::connect_start(const std::string& uri,
                                                                const ConnectOptions& options) {
  if (base::forked)
    return fail(Errc::kSystem, std::string("the Client ") + base::kOfParent);
  Runtime::Impl& runtime = impl_->runtime;
  const int core = options.core;
  if (core >= static_cast<int>(runtime.cores.size()))
    return fail(Errc::kInvalidArgument, "there is no core " + std::to_string(core));
  auto driver = fabric::find_driver(uri);
  if (!driver)
    return tl::unexpected(base::about(uri, driver.error()));
  if (auto place = (*driver)->find(uri, fabric::Names::kRefused); !place)
    return tl::unexpected(base::about(uri, place.error()));
  runtime::PollCore& at =
      core < 0 ? runtime.pick_core() : *runtime.cores[static_cast<size_t>(core)];
  impl_->connected.store(true, std::memory_order_relaxed);
  auto impl = std::make_shared<ClientConnection::Impl>(impl_, at, **driver, uri, options);
  std::unique_ptr<ClientConnection> connection(new ClientConnection(impl));
  impl->begin(*connection);
  return connection;
}

Result<std::unique_ptr<ClientConnection>> Client::connect(const std::string& uri, int core) {
  return connect(uri, ConnectOptions{.core = core});
}

Result<std::unique_ptr<ClientConnection>> Client::connect(const std::string& uri,
                                                          const ConnectOptions& options) {
  if (Runtime::Impl::in_any_pass())
    return fail(Errc::kInvalidArgument,
                "connect() to " + uri +
                    " in a callback or handler on a poll core would wait for itself: use "
                    "connect_start()");
  auto connection = connect_start(uri, options);
  if (!connection)
    return connection;
  if (auto made = (*connection)->impl().wait_for_connection(); !made)
    return tl::unexpected(made.error());
  return connection;
}

}  // namespace rrdk
