// SVCXPRT: a Server each, on one core that rrdk_svc_run() polls (reactor.h). Handlers only queue
// their calls: dispatch routines run between the core's passes, where they may block and call
// others. Meanwhile the core's keeper polls, so that clients can connect.
#include "rrdk/server.h"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "address.h"
#include "failure.h"
#include "memory.h"
#include "reactor.h"
#include "rrdk/rpcbind.h"
#include "rrdk/tirpc.h"
#include "sizes.h"
#include "stream.h"

namespace rrdk::tirpc {

namespace {

using Dispatch = void (*)(svc_req*, SVCXPRT*);
using Ops = std::remove_cvref_t<decltype(*SVCXPRT::xp_ops)>;
using MoreOps = std::remove_cvref_t<decltype(*SVCXPRT::xp_ops2)>;
constexpr uint32_t kSendTimeoutMs = 10'000;
const std::vector<Item> kNoItems;

class Transport;

// A program and version at one transport.
struct Registration {
  Transport* transport;
  std::shared_ptr<const ProgramItems> items;
  Dispatch dispatch;
  std::unique_ptr<RpcbindListing> in_rpcbind;  // null: not there
};

// The data of a call for its dispatch routine.
struct Request {
  std::array<char, kMaxAuthBody> credential;
  AuthSys identity;
  std::array<char, AuthSys::kMaxMachineName + 1> machine;
  std::array<gid_t, AuthSys::kMaxGids> groups;
  authunix_parms unix_credential;
};

struct Waiting {
  ServerCall call;
  Registration* registration;
};

// The object behind an SVCXPRT's xp_p1.
class Transport {
 public:
  static Result<Transport*> listen(const std::string& uri);
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  static Transport& of(const SVCXPRT* transport) {
    return *static_cast<Transport*>(transport->xp_p1);
  }

  SVCXPRT* handle() noexcept { return &handle_; }
  const std::string& uri() const noexcept { return uri_; }
  Result<void> add(uint32_t program, uint32_t version, Dispatch routine, bool with_rpcbind);
  // From now on its calls are refused.
  void retire(const Binding& binding);
  // Runs the dispatch routine, and ensures that the call is answered.
  void dispatch(Waiting waiting);

 private:
  Transport() = default;
  static const Ops kOps;
  static const MoreOps kMoreOps;
  static bool_t receive(SVCXPRT*, rpc_msg*) { return FALSE; }
  static xprt_stat status(SVCXPRT*) { return XPRT_IDLE; }
  static bool_t get_args(SVCXPRT* transport, xdrproc_t routine, void* args);
  static bool_t free_args(SVCXPRT*, xdrproc_t routine, void* args);
  static bool_t reply(SVCXPRT* transport, rpc_msg* message);
  static void destroy(SVCXPRT* transport);
  static bool_t control(SVCXPRT* transport, u_int request, void* info);

  static void take(ServerCall call, void* registration);
  void reject(AcceptStat status);
  void reject_versions(uint32_t low, uint32_t high);
  void deny(AuthStat reason);
  bool identify(svc_req& request);
  void show_caller();
  bool send_results(xdrproc_t routine, void* results);

  SVCXPRT handle_ = {};
  // Keeps the bindings that the Server knows, including those of the retired ones.
  std::vector<std::unique_ptr<Registration>> registrations_, retired_;
  std::unique_ptr<Server> server_;
  std::string uri_;
  Request request_ = {};
  ServerCall current_;  // empty if the call was answered, or no call is being dispatched
  const ProcedureItems* items_ = nullptr;
  bool dispatching_ = false, ends_ = false;
  uint32_t max_decoded_ = kUsualDecoded;
  uint64_t caller_id_ = 0;  // the connection that the handle shows
  sockaddr_storage caller_ = {};
};

// Process-wide, as libtirpc's own transports are.
struct Service {
  Reactor* reactor = nullptr;
  std::deque<Waiting> waiting;     // for the thread that leads
  std::deque<Waiting> taken;       // the call that the serving thread dispatches now
  std::atomic<bool> away = false;  // in dispatch routines
  std::atomic<bool> ends = false;
  bool attended = false;  // a thread will look at `waiting` again; changed by one that leads
  int wake = -1;          // written to by ring() and rrdk_svc_exit()
  int fd = -1;            // rrdk_svc_fd()
  uint32_t passes = 0;
  std::vector<pollfd> sockets;  // of libtirpc's own transports, as of the last look
  int ready = 0;                // how many have something

  static Service& get() {
    static Service& instance = *new Service;
    return instance;
  }
  Result<void> start();
  Result<int> open_fd();
  void run();
  // Returns how many calls were dispatched, or -1 after rrdk_svc_exit().
  int poll();
  // The caller leads, and will attend no more. If the program has a loop of its own, that comes
  // back at the next work, or now if there is some.
  void leave_to_loop();
  void ring() const noexcept;
  // The thread that leads polls until there is a call, a socket has something or rrdk_svc_exit() is
  // called. Returns false if it no longer leads.
  bool look();
  void copy_sockets();
  void note_sockets();
  // Returns false if it sleeps no more, and does not lead.
  bool sleep();
  void serve_sockets();
  // Returns false if no call waits. The caller leads.
  bool take_waiting();
  int dispatch_taken();  // how many
  void refuse_waiting(const Registration& registration);
};

// Leads while it lives. Outside of what serves, work that is left is then the program's loop's.
class Turn {
 public:
  Turn() { service_.reactor->lead(); }
  ~Turn() {
    if (!service_.attended)
      service_.leave_to_loop();
    service_.reactor->resign();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Service& service_ = Service::get();
};

Result<void> Service::start() {
  if (auto allowed = check_process(); !allowed)
    return allowed;
  if (reactor != nullptr)
    return {};
  auto made = Reactor::of_servers();
  if (!made)
    return tl::unexpected(made.error());
  if (wake < 0) {
    const Result<int> made_wake = open_eventfd();
    if (!made_wake)
      return tl::unexpected(made_wake.error());
    wake = *made_wake;
  }
  if (auto kept = (*made)->need(); !kept)
    return kept;
  reactor = *made;
  return {};
}

// One descriptor for what wakes the core, and for what the program is to be told.
Result<int> Service::open_fd() {
  if (auto started = start(); !started)
    return tl::unexpected(started.error());
  if (fd >= 0)
    return fd;
  const int made = ::epoll_create1(EPOLL_CLOEXEC);
  for (int source : {reactor->wake_fd(), wake}) {
    epoll_event event = {.events = EPOLLIN, .data = {}};
    if (made >= 0 && ::epoll_ctl(made, EPOLL_CTL_ADD, source, &event) == 0)
      continue;
    auto failure = system_failure("epoll");
    if (made >= 0)
      ::close(made);
    return failure;
  }
  fd = made;
  reactor->share_wake_fd();
  ring();
  return fd;
}

void Service::ring() const noexcept {
  const uint64_t one = 1;
  // If the eventfd is full, the write fails, but who waits is woken anyway.
  [[maybe_unused]] auto written = ::write(wake, &one, sizeof one);
}

void Service::run() {
  while (!ends.load(std::memory_order_acquire)) {
    reactor->lead();
    attended = true;
    if (!look())
      continue;
    reactor->resign();
    dispatch_taken();
    serve_sockets();
  }
  ends.store(false, std::memory_order_relaxed);
  reactor->lead();
  leave_to_loop();
  reactor->resign();
}

int Service::poll() {
  constexpr uint32_t kMostRounds = 16;  // then the program sees to its other work
  int served = 0;
  uint64_t rings = 0;
  [[maybe_unused]] auto length = ::read(wake, &rings, sizeof rings);
  reactor->lead();
  attended = true;
  for (uint32_t round = 0; round < kMostRounds && !ends.load(std::memory_order_acquire); ++round) {
    const bool found = reactor->poll() != 0;
    if (!take_waiting()) {
      if (!found)
        break;
      continue;
    }
    reactor->resign();
    served += dispatch_taken();
    reactor->lead();
  }
  leave_to_loop();
  reactor->resign();
  return ends.exchange(false, std::memory_order_acq_rel) ? -1 : served;
}

void Service::leave_to_loop() {
  attended = false;
  if (fd >= 0 && (!waiting.empty() || !taken.empty() || !reactor->arm()))
    ring();
}

bool Service::take_waiting() {
  if (taken.empty())
    taken.swap(waiting);
  if (taken.empty())
    return false;
  reactor->poll();  // a routine may block, so peers that the last pass sent to are woken now
  return true;
}

bool Service::look() {
  constexpr uint32_t kPassesPerLook = 64;
  while (!ends.load(std::memory_order_acquire) && waiting.empty() && taken.empty() && ready == 0) {
    if (reactor->is_wanted()) {
      reactor->resign();
      return false;
    }
    if (reactor->poll() != 0)
      reactor->found_something();
    else if (reactor->is_tired() && !sleep())
      return false;
    if (++passes % kPassesPerLook == 0 && svc_max_pollfd > 0) {
      copy_sockets();
      ::poll(sockets.data(), sockets.size(), 0);
      note_sockets();
    }
  }
  reactor->found_something();
  if (!take_waiting())
    reactor->poll();  // for the routines of libtirpc's transports
  return true;
}

// Without events: poll() may be interrupted or not be reached, and in svc_pollfd libtirpc leaves
// them as realloc() gave them.
void Service::copy_sockets() {
  sockets.assign(svc_pollfd, svc_pollfd + std::max(svc_max_pollfd, 0));
  for (pollfd& source : sockets)
    source.revents = 0;
}

void Service::note_sockets() {
  ready = static_cast<int>(
      std::ranges::count_if(sockets, [](const pollfd& source) { return source.revents != 0; }));
}

bool Service::sleep() {
  copy_sockets();
  sockets.push_back({.fd = wake, .events = POLLIN, .revents = 0});
  const bool leads = reactor->sleep(sockets);
  uint64_t count = 0;
  if (sockets.back().revents != 0) [[maybe_unused]]
    auto length = ::read(wake, &count, sizeof count);
  sockets.pop_back();
  note_sockets();
  return leads;
}

void Service::serve_sockets() {
  if (ready == 0)
    return;
  away.store(true, std::memory_order_relaxed);
  svc_getreq_poll(sockets.data(), std::exchange(ready, 0));
  away.store(false, std::memory_order_relaxed);
}

int Service::dispatch_taken() {
  int served = 0;
  away.store(true, std::memory_order_relaxed);
  for (; !ends.load(std::memory_order_relaxed) && !taken.empty(); ++served) {
    Waiting next = std::move(taken.front());
    taken.pop_front();
    Transport& transport = *next.registration->transport;
    transport.dispatch(std::move(next));
  }
  away.store(false, std::memory_order_relaxed);
  return served;
}

// A connection's context is the number of its waiting calls. The caller leads.
void count_waiting(const ServerCall& call, std::ptrdiff_t more) {
  ServerConnection& connection = call.connection();
  connection.set_context(
      std::bit_cast<void*>(std::bit_cast<std::ptrdiff_t>(connection.context()) + more));
}

// Calls that no routine will answer. The caller leads.
void Service::refuse_waiting(const Registration& registration) {
  for (std::deque<Waiting>* calls : {&waiting, &taken}) {
    for (Waiting& entry : *calls) {
      if (entry.registration != &registration)
        continue;
      count_waiting(entry.call, -1);
      std::move(entry.call).reject(AcceptStat::kProgUnavail);
    }
    std::erase_if(*calls,
                  [&](const Waiting& entry) { return entry.registration == &registration; });
  }
}

const Ops Transport::kOps = {receive, status, get_args, reply, free_args, destroy};
const MoreOps Transport::kMoreOps = {control};

Result<Transport*> Transport::listen(const std::string& uri) {
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
                                                            .send_timeout_ms = kSendTimeoutMs});
  if (!server)
    return tl::unexpected(server.error());
  made->server_ = std::move(*server);
  auto where = made->server_->listen(uri);
  if (!where)
    return tl::unexpected(where.error());
  made->uri_ = *where;
  static char netid[] = "rdma", device[] = "";
  SVCXPRT& handle = made->handle_;
  handle.xp_fd = -1;
  handle.xp_ops = &kOps;
  handle.xp_ops2 = &kMoreOps;
  handle.xp_tp = device;
  handle.xp_netid = netid;
  handle.xp_p1 = made.get();
  return made.release();
}

Transport::~Transport() {
  while (!registrations_.empty())
    retire(registrations_.front()->items->binding());
  Turn turn;
  Service::get().reactor->poll();  // ~Server() then polls while it waits
  server_.reset();
}

Result<void> Transport::add(uint32_t program, uint32_t version, Dispatch routine,
                            bool with_rpcbind) {
  auto items = items_of(program, version);
  if (!items)
    return tl::unexpected(items.error());
  // The dispatch routine knows which procedures there are.
  constexpr Procedure kAll[] = {{.number = NULLPROC, .handler = take},
                                {.number = kOtherProcedures, .handler = take}};
  auto made =
      std::make_unique<Registration>(Registration{this, std::move(*items), routine, nullptr});
  const Binding& binding = made->items->binding();
  if (auto added =
          server_->add_service({.binding = &binding, .procedures = kAll, .context = made.get()});
      !added)
    return added;
  registrations_.push_back(std::move(made));
  if (!with_rpcbind)
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

// A core's pass. While the program is busy, a client that only asks whether the server is there is
// answered at once, unless earlier calls of this client wait.
void Transport::take(ServerCall call, void* registration) {
  Service& service = Service::get();
  const bool busy = service.away.load(std::memory_order_relaxed) ||
                    (service.fd >= 0 && !service.attended);  // in what its loop does besides
  if (call.procedure() == NULLPROC && busy && call.connection().context() == nullptr)
    return std::move(call).reply();
  count_waiting(call, 1);
  service.waiting.push_back({std::move(call), static_cast<Registration*>(registration)});
  if (service.fd >= 0 && !service.attended)
    service.ring();
}

// The thread that leads ends the call.
void Transport::reject(AcceptStat status) {
  Turn turn;
  std::move(current_).reject(status);
}

void Transport::reject_versions(uint32_t low, uint32_t high) {
  Turn turn;
  std::move(current_).reject_versions(low, high);
}

void Transport::deny(AuthStat reason) {
  Turn turn;
  std::move(current_).deny(reason);
}

void Transport::dispatch(Waiting waiting) {
  const Registration& registration = *waiting.registration;
  {
    Turn turn;
    count_waiting(waiting.call, -1);
  }
  current_ = std::move(waiting.call);
  items_ = registration.items->find(current_.procedure());
  svc_req request = {};
  request.rq_prog = current_.program();
  request.rq_vers = current_.version();
  request.rq_proc = current_.procedure();
  request.rq_xprt = &handle_;
  if (identify(request)) {
    show_caller();
    dispatching_ = true;
    registration.dispatch(&request, &handle_);
    dispatching_ = false;
  }
  if (current_)
    reject(AcceptStat::kSystemErr);
  if (ends_)
    delete this;
}

// Returns false if the call has been denied.
bool Transport::identify(svc_req& request) {
  const Credential& credential = current_.credential();
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

void Transport::show_caller() {
  const ServerConnection& connection = current_.connection();
  if (connection.id() == caller_id_)
    return;
  caller_id_ = connection.id();
  const socklen_t length = to_socket_address(connection.peer().remote, caller_);
  std::memcpy(&handle_.xp_raddr, &caller_, sizeof handle_.xp_raddr);
  handle_.xp_addrlen = static_cast<int>(length);
  handle_.xp_rtaddr = {.maxlen = sizeof caller_, .len = length, .buf = &caller_};
}

bool_t Transport::get_args(SVCXPRT* handle, xdrproc_t routine, void* args) {
  Transport& transport = of(handle);
  if (!transport.current_)
    return FALSE;
  const ProcedureItems* items = transport.items_;
  Stream stream(transport.current_.args(), items != nullptr ? items->args : kNoItems, nullptr,
                transport.max_decoded_);
  return stream.run(routine, args);
}

bool_t Transport::free_args(SVCXPRT*, xdrproc_t routine, void* args) {
  free_decoded(routine, args);
  return TRUE;
}

bool_t Transport::reply(SVCXPRT* handle, rpc_msg* message) {
  Transport& transport = of(handle);
  if (!transport.current_)
    return FALSE;
  if (message->rm_reply.rp_stat == MSG_DENIED) {
    // The RPC version was checked before.
    transport.deny(static_cast<AuthStat>(message->rjcted_rply.rj_why));
    return TRUE;
  }
  const accepted_reply& accepted = message->acpted_rply;
  if (accepted.ar_stat == SUCCESS)
    return transport.send_results(accepted.ar_results.proc, accepted.ar_results.where);
  if (accepted.ar_stat == PROG_MISMATCH)
    transport.reject_versions(static_cast<uint32_t>(accepted.ar_vers.low),
                              static_cast<uint32_t>(accepted.ar_vers.high));
  else
    transport.reject(static_cast<AcceptStat>(accepted.ar_stat));
  return TRUE;
}

// Returns false if the call is not answered yet, and nothing was written.
bool Transport::send_results(xdrproc_t routine, void* results) {
  Encoder& out = current_.results();
  const Encoder::Mark mark = out.mark();
  Stream stream(out, items_ != nullptr ? items_->results : kNoItems, 0);
  if (!stream.run(routine, results)) {
    out.rewind(mark);
    return false;
  }
  Reactor& reactor = *Service::get().reactor;
  if (!stream.borrows()) {
    Turn turn;
    std::move(current_).reply();
    return true;
  }
  // The program may change its memory as soon as this returns.
  Wait released;
  current_.on_released([](void* wait) { static_cast<Wait*>(wait)->finish(); }, &released);
  reactor.run(released, [this] { std::move(current_).reply(); });
  Turn turn;
  return true;
}

bool_t Transport::control(SVCXPRT* handle, u_int request, void* info) {
  if (info == nullptr || (request != RRDK_CLSET_MAX_DECODED && request != RRDK_CLGET_MAX_DECODED))
    return FALSE;
  uint32_t& most = of(handle).max_decoded_;
  uint32_t& told = *static_cast<uint32_t*>(info);
  (request == RRDK_CLSET_MAX_DECODED ? most : told) =
      request == RRDK_CLSET_MAX_DECODED ? told : most;
  return TRUE;
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

}  // namespace

}  // namespace rrdk::tirpc

using rrdk::tirpc::Service;
using rrdk::tirpc::Transport;

SVCXPRT* rrdk_svc_create(const char* uri) {
  auto transport = Transport::listen(uri);
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
  auto added =
      Transport::of(transport).add(static_cast<uint32_t>(program), static_cast<uint32_t>(version),
                                   dispatch, (flags & RRDK_SVC_RPCBIND) != 0);
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
