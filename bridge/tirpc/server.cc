// SVCXPRT: a Server each, whose calls the process's Service dispatches.
#include "rrdk/server.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "address.h"
#include "exchange.h"
#include "failure.h"
#include "reactor.h"
#include "rrdk/gss.h"
#include "rrdk/rpcbind.h"
#include "rrdk/tirpc.h"
#include "service.h"
#include "sizes.h"

namespace rrdk::tirpc {

namespace {

constexpr uint32_t kSendTimeoutMs = 10'000;

}  // namespace

class Transport : public Exchange {
 public:
  // `keys` may be null: RPCSEC_GSS is refused.
  static Result<Transport*> listen(const std::string& uri, std::unique_ptr<GssAcceptor> keys);
  ~Transport();
  static Transport& of(const SVCXPRT* handle) {
    return static_cast<Transport&>(Exchange::of(handle));
  }
  static bool is_one(const SVCXPRT* handle) { return handle->xp_ops == &kOps; }

  const std::string& uri() const noexcept { return uri_; }
  Result<void> add(uint32_t program, uint32_t version, void (*routine)(svc_req*, SVCXPRT*),
                   unsigned flags);
  // From now on its calls are refused.
  void retire(const Binding& binding);
  void dispatch(Waiting waiting);
  // The handle of the call whose dispatch routine runs; null if no such call waits for an answer.
  SVCXPRT* defer();

 private:
  Transport() : Exchange(kOps) {}
  // The data of a call for its dispatch routine.
  struct Request {
    std::array<char, kMaxAuthBody> credential;
    AuthSys identity;
    std::array<char, AuthSys::kMaxMachineName + 1> machine;
    std::array<gid_t, AuthSys::kMaxGids> groups;
    authunix_parms unix_credential;
    std::string principal;
    rrdk_svc_gss_caller gss_caller;
  };

  static const Ops kOps;
  static void destroy(SVCXPRT* handle);
  bool identify(svc_req& request);
  bool identify_by_gss(svc_req& request);

  // Keeps the bindings that the Server knows, including those of the retired ones.
  std::vector<std::unique_ptr<Registration>> registrations_, retired_;
  std::unique_ptr<GssAcceptor> keys_;  // or null
  std::unique_ptr<Server> server_;
  std::string uri_;
  Request request_ = {};
  std::shared_ptr<Deferred> deferred_;  // by the dispatch routine, which holds its mutex
  bool dispatching_ = false, ends_ = false;
};

const Ops Transport::kOps = {
    [](SVCXPRT*, rpc_msg*) -> bool_t { return FALSE; },
    [](SVCXPRT*) { return XPRT_IDLE; },
    [](SVCXPRT* handle, xdrproc_t routine, void* args) -> bool_t {
      return of(handle).decode_args(routine, args);
    },
    [](SVCXPRT* handle, rpc_msg* message) -> bool_t { return of(handle).answer(*message); },
    free_args,
    destroy};

Result<Transport*> Transport::listen(const std::string& uri, std::unique_ptr<GssAcceptor> keys) {
  Service& service = Service::get();
  if (auto started = service.start(); !started)
    return tl::unexpected(started.error());
  std::unique_ptr<Transport> made(new Transport);
  Turn turn;
  service.reactor->poll();  // listen() then polls while it waits
  auto server = Server::create(service.reactor->runtime(), {.inline_size = kInlineSize,
                                                            .max_call = kMostBytes,
                                                            .max_reply = kMostBytes,
                                                            .first_call_timeout_ms = 0,
                                                            .send_timeout_ms = kSendTimeoutMs,
                                                            .gss = keys.get()});
  if (!server)
    return tl::unexpected(server.error());
  made->keys_ = std::move(keys);
  made->server_ = std::move(*server);
  auto where = made->server_->listen(uri);
  if (!where)
    return tl::unexpected(where.error());
  made->uri_ = *where;
  return made.release();
}

Transport::~Transport() {
  Deferred::end_all(this);
  while (!registrations_.empty())
    retire(registrations_.front()->items->binding());
  Turn turn;
  Service::get().reactor->poll();  // ~Server() then polls while it waits
  server_.reset();
}

Result<void> Transport::add(uint32_t program, uint32_t version, void (*routine)(svc_req*, SVCXPRT*),
                            unsigned flags) {
  auto items = items_of(program, version);
  if (!items)
    return tl::unexpected(items.error());
  // The dispatch routine knows which procedures there are.
  constexpr auto kTake = [](ServerCall call, void* registration) {
    Service::get().take(std::move(call), *static_cast<Registration*>(registration));
  };
  constexpr Procedure kAll[] = {{.number = NULLPROC, .handler = kTake},
                                {.number = kOtherProcedures, .handler = kTake}};
  auto made = std::make_unique<Registration>(
      Registration{this, std::move(*items), routine, (flags & RRDK_SVC_LOOPBACK) != 0, nullptr});
  const Binding& binding = made->items->binding();
  if (auto added =
          server_->add_service({.binding = &binding, .procedures = kAll, .context = made.get()});
      !added)
    return added;
  registrations_.push_back(std::move(made));
  if ((flags & RRDK_SVC_RPCBIND) == 0)
    return {};
  auto address = host_and_port(uri_);
  Result<std::unique_ptr<RpcbindListing>> listed =
      fail(Errc::kUnsupported, uri_ + " has no port for rpcbind to tell");
  if (address)
    listed = RpcbindListing::enter({program, version}, address->host, address->port);
  if (!listed) {
    retire(binding);
    return tl::unexpected(listed.error());
  }
  registrations_.back()->in_rpcbind = std::move(*listed);
  return {};
}

// The binding stays, because the Server refers to it by its address.
void Transport::retire(const Binding& binding) {
  auto found = std::ranges::find_if(registrations_, [&](const auto& registration) {
    const Binding& other = registration->items->binding();
    return other.program == binding.program && other.version == binding.version;
  });
  if (found == registrations_.end())
    return;
  std::unique_ptr<Registration> gone = std::move(*found);
  registrations_.erase(found);
  gone->in_rpcbind.reset();
  Service& service = Service::get();
  Turn turn;
  service.reactor->poll();
  (void)server_->remove_service(binding.program, binding.version);
  service.refuse_waiting(*gone);
  retired_.push_back(std::move(gone));
}

void dispatch(Waiting waiting) {
  waiting.registration->transport->dispatch(std::move(waiting));
}

void Transport::dispatch(Waiting waiting) {
  const Registration& registration = *waiting.registration;
  {
    Turn turn;
    count_waiting(waiting.call, -1);
  }
  begin(std::move(waiting.call), registration.items, registration.as_loopback);
  svc_req request = {};
  request.rq_prog = call_.program();
  request.rq_vers = call_.version();
  request.rq_proc = call_.procedure();
  request.rq_xprt = handle();
  if (identify(request)) {
    dispatching_ = true;
    registration.dispatch(&request, handle());
    dispatching_ = false;
  }
  if (call_)
    reject(AcceptStat::kSystemErr);
  if (std::shared_ptr<Deferred> deferred = std::move(deferred_))
    deferred->mutex().unlock();
  if (ends_)
    delete this;
}

SVCXPRT* Transport::defer() {
  if (!dispatching_ || !call_)
    return nullptr;
  deferred_ = Deferred::make(*this, this);
  deferred_->mutex().lock();
  return deferred_->handle();
}

// Returns false if the call has been denied.
bool Transport::identify(svc_req& request) {
  const Credential& credential = call_.credential();
  Request& kept = request_;
  if (credential.body.size() > kept.credential.size()) {
    deny(AuthStat::kBadCred);
    return false;
  }
  credential.body.copy_to(reinterpret_cast<std::byte*>(kept.credential.data()));
  request.rq_cred = {.oa_flavor = static_cast<enum_t>(credential.flavor),
                     .oa_base = kept.credential.data(),
                     .oa_length = credential.body.size()};
  if (credential.flavor == AuthFlavor::kNone)
    return true;
  if (credential.flavor == AuthFlavor::kRpcsecGss && keys_ != nullptr)
    return identify_by_gss(request);
  if (credential.flavor != AuthFlavor::kSys) {
    deny(AuthStat::kRejectedCred);
    return false;
  }
  if (!decode(credential, kept.identity)) {
    deny(AuthStat::kBadCred);
    return false;
  }
  const AuthSys& identity = kept.identity;
  const std::string_view name = identity.machine_name();
  *std::ranges::copy(name, kept.machine.begin()).out = '\0';
  std::ranges::copy(identity.gids(), kept.groups.begin());
  kept.unix_credential = {.aup_time = identity.stamp,
                          .aup_machname = kept.machine.data(),
                          .aup_uid = identity.uid,
                          .aup_gid = identity.gid,
                          .aup_len = static_cast<u_int>(identity.gids().size()),
                          .aup_gids = kept.groups.data()};
  request.rq_clntcred = &kept.unix_credential;
  return true;
}

// The library has verified it.
bool Transport::identify_by_gss(svc_req& request) {
  const CallSecurity security = call_.security();
  request_.principal = security.principal;
  request_.gss_caller = {.principal = request_.principal.c_str(),
                         .service = static_cast<unsigned>(security.protection)};
  request.rq_clntcred = &request_.gss_caller;
  return true;
}

// The largest arguments and results are taken with every protection.
Result<std::unique_ptr<GssAcceptor>> take_keys(const char* service, const char* key_table) {
  if (auto allowed = check_process(); !allowed)
    return tl::unexpected(allowed.error());
  GssAcceptorOptions options;
  options.service = service != nullptr ? service : "";
  options.key_table = key_table != nullptr ? key_table : "";
  options.max_protected_bytes = kMostBytes;
  return GssAcceptor::create(options);
}

void Transport::destroy(SVCXPRT* handle) {
  Transport* transport = &of(handle);
  if (!check_process())
    return;  // it is the parent's
  if (transport->dispatching_)
    transport->ends_ = true;
  else
    delete transport;
}

}  // namespace rrdk::tirpc

using rrdk::tirpc::Deferred;
using rrdk::tirpc::Service;
using rrdk::tirpc::Transport;

SVCXPRT* rrdk_svc_create(const char* uri) {
  auto transport = Transport::listen(uri, nullptr);
  if (transport)
    return (*transport)->handle();
  rrdk::tirpc::note_failure(transport.error().message);
  return nullptr;
}

SVCXPRT* rrdk_svc_create_gss(const char* uri, const char* service, const char* key_table) {
  auto transport = rrdk::tirpc::take_keys(service, key_table).and_then([uri](auto keys) {
    return Transport::listen(uri, std::move(keys));
  });
  if (transport)
    return (*transport)->handle();
  rrdk::tirpc::note_failure(transport.error().message);
  return nullptr;
}

const char* rrdk_svc_uri(const SVCXPRT* transport) {
  return Transport::of(transport).uri().c_str();
}

bool_t rrdk_svc_reg(SVCXPRT* transport, rpcprog_t program, rpcvers_t version,
                    void (*dispatch)(svc_req*, SVCXPRT*), unsigned flags) {
  auto added = Transport::of(transport).add(static_cast<uint32_t>(program),
                                            static_cast<uint32_t>(version), dispatch, flags);
  if (!added)
    rrdk::tirpc::note_failure(added.error().message);
  return added.has_value();
}

void rrdk_svc_unreg(SVCXPRT* transport, rpcprog_t program, rpcvers_t version) {
  Transport::of(transport).retire({.program = static_cast<uint32_t>(program),
                                   .version = static_cast<uint32_t>(version),
                                   .name = "",
                                   .procedures = {}});
}

void rrdk_svc_run(void) {
  Service& service = Service::get();
  if (auto started = service.start(); !started)
    return rrdk::tirpc::note_failure(started.error().message);
  service.run();
}

SVCXPRT* rrdk_svc_defer(SVCXPRT* transport) {
  if (Deferred::is_one(transport) || !Transport::is_one(transport))
    return transport;  // libtirpc's answers later as it is
  SVCXPRT* const deferred = Transport::of(transport).defer();
  if (deferred == nullptr)
    rrdk::tirpc::note_failure("no dispatch routine runs that has a call to answer");
  return deferred;
}

void rrdk_svc_release(SVCXPRT* deferred) {
  if (Deferred::is_one(deferred))
    Deferred::release(deferred);
}

int rrdk_svc_fd(void) {
  const auto fd = Service::get().open_fd();
  if (!fd)
    rrdk::tirpc::note_failure(fd.error().message);
  return fd.value_or(-1);
}

int rrdk_svc_poll(void) {
  Service& service = Service::get();
  if (auto started = service.start(); !started) {
    rrdk::tirpc::note_failure(started.error().message);
    return -1;
  }
  if (service.away.load(std::memory_order_relaxed)) {
    rrdk::tirpc::note_failure("rrdk_svc_poll() was called in a dispatch routine");
    return -1;
  }
  const int served = service.poll();
  if (served < 0)
    rrdk::tirpc::note_failure("rrdk_svc_exit() was called");
  return served;
}

void rrdk_svc_exit(void) {
  const int error = errno;  // that of the code which the signal has interrupted
  Service& service = Service::get();
  service.ends.store(true, std::memory_order_release);
  service.ring();
  errno = error;
}
