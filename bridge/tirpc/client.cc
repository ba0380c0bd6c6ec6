// CLIENT: a ClientConnection with a reactor of its own, which the calling thread polls until its
// call has ended.
#include "rrdk/client.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
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

// A call at a time; the others are for those that were given up and are not answered yet.
constexpr uint32_t kCredits = 16;
constexpr timeval kUsualTimeout = {25, 0};

// Functions of unlike types are compared as if both were of this one.
using AnyFunction = void (*)();
bool is_void(xdrproc_t routine) {
  return reinterpret_cast<AnyFunction>(routine) == reinterpret_cast<AnyFunction>(xdr_void);
}

struct Session {
  std::unique_ptr<Reactor> reactor;
  std::unique_ptr<Client> client;
  std::unique_ptr<ClientConnection> connection;
};

// What a CLIENT's cl_private is.
class Handle {
 public:
  Handle(Session session, std::string uri);
  ~Handle();
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  CLIENT* client() noexcept { return &client_; }
  // Calls are of this program and version from now on.
  Result<void> use(rpcprog_t program, rpcvers_t version);

 private:
  static const CLIENT::clnt_ops kOps;
  static Handle& self(CLIENT* client) { return *static_cast<Handle*>(client->cl_private); }
  static clnt_stat call(CLIENT* client, rpcproc_t procedure, xdrproc_t encode, void* args,
                        xdrproc_t decode, void* results, timeval timeout);
  static void abort(CLIENT*) {}
  static void get_error(CLIENT* client, rpc_err* to) { *to = self(client).error_; }
  static bool_t free_results(CLIENT*, xdrproc_t routine, void* results);
  static void destroy(CLIENT* client) { delete &self(client); }
  static bool_t control(CLIENT* client, u_int request, void* info);

  bool send(const ProcedureItems& items, uint32_t procedure, xdrproc_t encode, void* args,
            bool has_results);
  void wait(const timeval& timeout);
  bool set_credential();
  clnt_stat outcome();
  clnt_stat fail_with(clnt_stat status, int error, const std::string& what);
  bool get_or_set(u_int request, void* info);

  CLIENT client_ = {};
  // Bindings outlive the connection, so those that were used before stay. The last one is used.
  std::vector<std::shared_ptr<const ProgramItems>> programs_;
  Session session_;
  Call call_;
  std::atomic<bool> ended_ = false;
  std::string uri_;
  timeval timeout_ = kUsualTimeout;
  bool timeout_is_set_ = false;  // by CLSET_TIMEOUT, which counts for more than clnt_call()'s
  uint32_t max_reply_ = kUsualReply;
  rpc_err error_ = {};
  sockaddr_storage address_ = {};
  netbuf address_view_ = {};
  // The credential that the connection has.
  AuthFlavor flavor_ = AuthFlavor::kNone;
  std::string credential_;
};

const CLIENT::clnt_ops Handle::kOps = {call, abort, get_error, free_results, destroy, control};

Handle::Handle(Session session, std::string uri)
    : session_(std::move(session)), call_(*session_.connection), uri_(std::move(uri)) {
  static char netid[] = "rdma", device[] = "";
  client_.cl_auth = authnone_create();
  client_.cl_ops = const_cast<CLIENT::clnt_ops*>(&kOps);  // nobody writes to it
  client_.cl_private = this;
  client_.cl_netid = netid;
  client_.cl_tp = device;
  const socklen_t length = to_socket_address(session_.connection->info().peer.remote, address_);
  address_view_ = {.maxlen = sizeof address_, .len = length, .buf = &address_};
}

// Members are destroyed in the order that the library asks for: call_, connection, client, Runtime.
// Their destructors wait by polling only in the thread that polled last, hence the poll() here.
Handle::~Handle() {
  session_.reactor->poll();
}

Result<void> Handle::use(rpcprog_t program, rpcvers_t version) {
  auto items = items_of(static_cast<uint32_t>(program), static_cast<uint32_t>(version));
  if (!items)
    return tl::unexpected(items.error());
  std::erase(programs_, *items);
  programs_.push_back(std::move(*items));
  return {};
}

clnt_stat Handle::fail_with(clnt_stat status, int error, const std::string& what) {
  error_ = {};
  error_.re_status = status;
  error_.re_errno = error;
  note_failure(uri_ + ": " + what);
  return status;
}

clnt_stat Handle::call(CLIENT* client, rpcproc_t procedure, xdrproc_t encode, void* args,
                       xdrproc_t decode, void* results, timeval timeout) {
  static const ProcedureItems no_items = {};
  Handle& handle = self(client);
  handle.error_ = {};
  const auto number = static_cast<uint32_t>(procedure);
  const ProcedureItems* found = handle.programs_.back()->find(number);
  const ProcedureItems& items = found != nullptr ? *found : no_items;
  const bool has_results = decode != nullptr && !is_void(decode);
  if (!handle.send(items, number, encode, args, has_results))
    return handle.error_.re_status;
  handle.wait(handle.timeout_is_set_ ? handle.timeout_ : timeout);
  // A call that does not wait is for a procedure whose answer nobody wants.
  if (handle.call_.status() == CallStatus::kCancelled && decode == nullptr)
    return RPC_SUCCESS;
  if (handle.call_.status() != CallStatus::kOk)
    return handle.outcome();
  Stream answer(handle.call_.results(), items.results, &handle.call_);
  if (has_results && !answer.run(decode, results))
    return handle.fail_with(RPC_CANTDECODERES, EBADMSG, "the results can not be decoded");
  return RPC_SUCCESS;
}

// False: error_ has the reason.
bool Handle::send(const ProcedureItems& items, uint32_t procedure, xdrproc_t encode, void* args,
                  bool has_results) {
  if (!set_credential())
    return false;
  if (!session_.connection->alive()) {
    auto reason = session_.connection->error();
    fail_with(RPC_CANTSEND, ENOTCONN, reason ? reason->message : "the connection is lost");
    return false;
  }
  Encoder& out = call_.begin(programs_.back()->binding(), procedure);
  Stream arguments(out, items.args, kInlineSize);
  if (!arguments.run(encode, args)) {
    const bool too_long = out.fault() == EncoderFault::kLimit;
    fail_with(
        RPC_CANTENCODEARGS, too_long ? EMSGSIZE : EINVAL,
        too_long ? "the arguments are longer than 8 MiB" : "the arguments can not be encoded");
    return false;
  }
  if (has_results) {
    for (const Item& item : items.results)
      call_.offer(session_.reactor->runtime().memory().get(item.largest), item.largest);
    call_.expect_reply(items.reply.value_or(max_reply_));
  }
  return true;
}

void Handle::wait(const timeval& timeout) {
  const bool sane = timeout.tv_sec >= 0 && timeout.tv_sec < 1'000'000 && timeout.tv_usec >= 0 &&
                    timeout.tv_usec < 1'000'000;
  const timeval& limit = sane ? timeout : kUsualTimeout;
  const bool waits = limit.tv_sec != 0 || limit.tv_usec != 0;
  call_.set_timeout_ms(static_cast<uint32_t>(limit.tv_sec * 1000 + (limit.tv_usec + 999) / 1000));
  ended_.store(false, std::memory_order_relaxed);
  call_.submit(
      [](Call&, void* ended) {
        static_cast<std::atomic<bool>*>(ended)->store(true, std::memory_order_release);
      },
      &ended_);
  if (!waits) {
    session_.reactor->poll();  // it is on its way then, if there is a credit for it
    call_.cancel();
  }
  session_.reactor->wait_until([this] { return ended_.load(std::memory_order_acquire); });
}

// The connection's becomes that of cl_auth, which the program sets whenever it likes.
bool Handle::set_credential() {
  static const opaque_auth none = {};
  const opaque_auth& wanted = client_.cl_auth != nullptr ? client_.cl_auth->ah_cred : none;
  const auto flavor = static_cast<AuthFlavor>(wanted.oa_flavor);
  const std::string_view body(wanted.oa_base, wanted.oa_length);
  if (flavor == flavor_ && body == credential_) [[likely]]
    return true;
  if (flavor != AuthFlavor::kNone && flavor != AuthFlavor::kSys) {
    fail_with(RPC_AUTHERROR, 0,
              "authentication flavour " + std::to_string(wanted.oa_flavor) +
                  " is not supported: use AUTH_NONE or AUTH_SYS");
    error_.re_why = AUTH_FAILED;
    return false;
  }
  if (auto set = session_.connection->set_auth(flavor, std::as_bytes(std::span(body))); !set) {
    fail_with(RPC_AUTHERROR, 0, set.error().message);
    error_.re_why = AUTH_BADCRED;
    return false;
  }
  flavor_ = flavor;
  credential_ = body;
  return true;
}

clnt_stat Handle::outcome() {
  struct Meaning {
    CallStatus status;
    clnt_stat as;
    int error;
  };
  static constexpr Meaning kMeanings[] = {
      {CallStatus::kTimeout, RPC_TIMEDOUT, ETIMEDOUT},
      {CallStatus::kConnectionLost, RPC_CANTRECV, ECONNRESET},
      {CallStatus::kCancelled, RPC_TIMEDOUT, 0},
      {CallStatus::kProgUnavail, RPC_PROGUNAVAIL, 0},
      {CallStatus::kProgMismatch, RPC_PROGVERSMISMATCH, 0},
      {CallStatus::kProcUnavail, RPC_PROCUNAVAIL, 0},
      {CallStatus::kGarbageArgs, RPC_CANTDECODEARGS, 0},
      {CallStatus::kSystemErr, RPC_SYSTEMERROR, EREMOTEIO},
      {CallStatus::kRpcMismatch, RPC_VERSMISMATCH, 0},
      {CallStatus::kAuthError, RPC_AUTHERROR, 0},
      {CallStatus::kChunkError, RPC_CANTRECV, EMSGSIZE},
      {CallStatus::kVersionError, RPC_CANTSEND, EPROTONOSUPPORT},
      {CallStatus::kMalformedReply, RPC_CANTDECODERES, EBADMSG},
      {CallStatus::kTooLarge, RPC_CANTSEND, EMSGSIZE},
      {CallStatus::kNoMemory, RPC_CANTSEND, ENOMEM},
  };
  const CallStatus status = call_.status();
  const auto* known = std::ranges::find(kMeanings, status, &Meaning::status);
  const bool is_known = known != std::end(kMeanings);
  fail_with(is_known ? known->as : RPC_FAILED, is_known ? known->error : EIO, to_string(status));
  if (error_.re_status == RPC_PROGVERSMISMATCH || error_.re_status == RPC_VERSMISMATCH)
    error_.re_vers = {call_.mismatch_low(), call_.mismatch_high()};
  if (error_.re_status == RPC_AUTHERROR)
    error_.re_why = static_cast<auth_stat>(call_.auth_stat());
  return error_.re_status;
}

bool_t Handle::free_results(CLIENT*, xdrproc_t routine, void* results) {
  free_decoded(routine, results);
  return TRUE;
}

bool_t Handle::control(CLIENT* client, u_int request, void* info) {
  if (request == CLSET_FD_CLOSE || request == CLSET_FD_NCLOSE)
    return TRUE;
  return info != nullptr && self(client).get_or_set(request, info);
}

bool Handle::get_or_set(u_int request, void* info) {
  const Binding& current = programs_.back()->binding();
  switch (request) {
    case CLSET_TIMEOUT:
      timeout_ = *static_cast<timeval*>(info);
      timeout_is_set_ = true;
      return true;
    case CLGET_TIMEOUT:
      *static_cast<timeval*>(info) = timeout_;
      return true;
    case CLGET_SERVER_ADDR:
      std::memcpy(info, &address_, address_view_.len);
      return true;
    case CLGET_SVC_ADDR:
      *static_cast<netbuf*>(info) = address_view_;
      return true;
    case CLGET_VERS:
      *static_cast<rpcvers_t*>(info) = current.version;
      return true;
    case CLSET_VERS:
      return use(current.program, *static_cast<rpcvers_t*>(info)).has_value();
    case CLGET_PROG:
      *static_cast<rpcprog_t*>(info) = current.program;
      return true;
    case CLSET_PROG:
      return use(*static_cast<rpcprog_t*>(info), current.version).has_value();
    case RRDK_CLGET_MAX_REPLY:
      *static_cast<uint32_t*>(info) = max_reply_;
      return true;
    case RRDK_CLSET_MAX_REPLY:
      if (*static_cast<uint32_t*>(info) > kMostBytes)
        return false;
      max_reply_ = *static_cast<uint32_t*>(info);
      return true;
    default:
      return false;
  }
}

// With the port that the host's rpcbind knows, where the URI has port 0.
Result<std::string> with_port(const std::string& uri, uint32_t program, uint32_t version) {
  auto address = host_and_port(uri);
  if (!address || address->port != 0)
    return uri;
  auto port = rpcbind_lookup({program, version}, {.host = address->host});
  if (!port)
    return tl::unexpected(port.error());
  return std::string(uri).replace(address->port_at, address->port_length, std::to_string(*port));
}

Result<std::unique_ptr<Handle>> connect(const std::string& uri, rpcprog_t program,
                                        rpcvers_t version) {
  auto reactor = Reactor::create();
  if (!reactor)
    return tl::unexpected(reactor.error());
  auto address = with_port(uri, static_cast<uint32_t>(program), static_cast<uint32_t>(version));
  if (!address)
    return tl::unexpected(address.error());
  auto client = Client::create((*reactor)->runtime(), {.credits = kCredits,
                                                       .inline_size = kInlineSize,
                                                       .max_call = kMostBytes,
                                                       .max_reply = kMostBytes,
                                                       .call_timeout_ms = 0,
                                                       .chunk_threshold = kInlineSize});
  if (!client)
    return tl::unexpected(client.error());
  auto connection = (*client)->connect(*address);
  if (!connection)
    return tl::unexpected(connection.error());
  auto handle = std::make_unique<Handle>(
      Session{std::move(*reactor), std::move(*client), std::move(*connection)}, *address);
  if (auto used = handle->use(program, version); !used)
    return tl::unexpected(used.error());
  return handle;
}

clnt_stat create_status(Errc code) {
  switch (code) {
    case Errc::kBadUri:
      return RPC_UNKNOWNPROTO;
    case Errc::kTimeout:
      return RPC_TIMEDOUT;
    default:
      return RPC_SYSTEMERROR;
  }
}

}  // namespace

}  // namespace rrdk::tirpc

CLIENT* rrdk_clnt_create(const char* uri, rpcprog_t program, rpcvers_t version) {
  auto handle = rrdk::tirpc::connect(uri, program, version);
  if (handle)
    return handle->release()->client();
  rpc_createerr.cf_stat = rrdk::tirpc::create_status(handle.error().code);
  rpc_createerr.cf_error = {};
  rpc_createerr.cf_error.re_status = rpc_createerr.cf_stat;
  rpc_createerr.cf_error.re_errno = rrdk::errno_of(handle.error().code);
  rrdk::tirpc::note_failure(handle.error().message);
  return nullptr;
}
