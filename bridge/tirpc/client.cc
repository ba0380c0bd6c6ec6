// CLIENT: a ClientConnection of the one Client that all CLIENTs share. The calling thread polls its
// core until its call has ended (reactor.h).
#include "rrdk/client.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "address.h"
#include "failure.h"
#include "gss.h"
#include "memory.h"
#include "reactor.h"
#include "rrdk/gss_context.h"
#include "rrdk/rpcbind.h"
#include "rrdk/tirpc.h"
#include "sizes.h"
#include "stream.h"
#include "timeout.h"

namespace rrdk::tirpc {

namespace {

// One call is waited for; the others were given up or batched, and are not answered yet.
constexpr uint32_t kCredits = 16;
constexpr uint32_t kMostPosted = 12;
constexpr timeval kUsualTimeout = {25, 0};
constexpr uint32_t kEstablishMs = 25'000;  // of each call that makes a security context
// The overhead of a call that goes inline: the headers of RPC and RPC-over-RDMA, and a credential.
constexpr uint32_t kMostHeaders = 1024;

// Functions of different types are compared as if both had this type.
using AnyFunction = void (*)();
bool is_void(xdrproc_t routine) {
  return reinterpret_cast<AnyFunction>(routine) == reinterpret_cast<AnyFunction>(xdr_void);
}

// A connection that is up when connect() returns. Waits in connect() and in its destructor only.
class Line {
 public:
  static Result<std::unique_ptr<Line>> connect(Reactor& reactor, Client& client,
                                               const std::string& uri);
  ~Line();
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  Reactor& reactor() noexcept { return reactor_; }
  ClientConnection& connection() noexcept { return *connection_; }

 private:
  explicit Line(Reactor& reactor) noexcept : reactor_(reactor) {}
  static void on_state(ClientConnection&, ConnectionState state, const Error* reason, void* line);

  Reactor& reactor_;
  std::unique_ptr<ClientConnection> connection_;
  Wait decided_, closed_;
  std::optional<Error> error_;  // why it has closed
};

Result<std::unique_ptr<Line>> Line::connect(Reactor& reactor, Client& client,
                                            const std::string& uri) {
  std::unique_ptr<Line> line(new Line(reactor));
  reactor.run(line->decided_, [&] {
    auto begun = client.connect_start(
        uri,
        {.core = static_cast<int>(reactor.core()), .on_state = on_state, .argument = line.get()});
    if (begun) {
      line->connection_ = std::move(*begun);
      return;
    }
    line->error_ = begun.error();
    line->decided_.finish();
  });
  if (line->error_)
    return tl::unexpected(*line->error_);
  return line;
}

void Line::on_state(ClientConnection&, ConnectionState state, const Error* reason, void* line) {
  Line& self = *static_cast<Line*>(line);
  if (state == ConnectionState::kUp)
    self.decided_.finish();
  if (state != ConnectionState::kClosed)
    return;
  if (!self.decided_.over())
    self.error_ = *reason;
  self.closed_.finish();  // first: the thread that waits for the other one then destroys us
  self.decided_.finish();
}

Line::~Line() {
  if (connection_ == nullptr)
    return;
  reactor_.run(closed_, [this] { connection_->close_start(); });
  Lead lead(reactor_);  // so the pass that has told us is over
  connection_.reset();
}

// A call for which its caller does not wait.
struct Posted {
  Posted(Reactor& reactor_in, ClientConnection& connection)
      : reactor(reactor_in), call(connection) {
    ended.finish();  // not submitted yet
  }

  Reactor& reactor;
  Call call;
  Wait ended;
};

// A call, with the arguments of clnt_call().
struct Wanted {
  const ProcedureItems& items;
  uint32_t procedure;
  xdrproc_t encode;
  void* args;
  bool has_results;
  timeval limit;
};

// Begins the call, and waits until it has ended.
void submit_and_wait(Reactor& reactor, Call& call, Wait& ended) {
  ended.restart();
  reactor.run(ended, [&] {
    call.submit([](Call&, void* wait) { static_cast<Wait*>(wait)->finish(); }, &ended);
  });
  while (call.in_flight())  // its callback has told us, and has yet to return
    std::this_thread::yield();
}

// The object behind a CLIENT's cl_private.
class Handle {
 public:
  Handle(std::unique_ptr<Line> line, std::string uri);
  ~Handle();
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  CLIENT* client() noexcept { return &client_; }
  // From now on calls are for this program and version.
  Result<void> use(rpcprog_t program, rpcvers_t version);
  // Returns null if the CLIENT is not one of rrdk_clnt_create().
  static Handle* of(CLIENT* client) noexcept {
    return client != nullptr && client->cl_ops == &kOps ? &self(client) : nullptr;
  }
  Result<SharedCredential> establish(const GssContextOptions& options);

 private:
  static const CLIENT::clnt_ops kOps;
  static Handle& self(CLIENT* client) { return *static_cast<Handle*>(client->cl_private); }
  static clnt_stat call(CLIENT* client, rpcproc_t procedure, xdrproc_t encode, void* args,
                        xdrproc_t decode, void* results, timeval timeout);
  static void abort(CLIENT*) {}
  static void get_error(CLIENT* client, rpc_err* to);
  static bool_t free_results(CLIENT*, xdrproc_t routine, void* results);
  static void destroy(CLIENT* client);
  static bool_t control(CLIENT* client, u_int request, void* info);

  clnt_stat call_and_wait(const Wanted& wanted, xdrproc_t decode, void* results);
  clnt_stat post(const Wanted& wanted);
  Posted* next_posted();
  Posted& oldest_posted();
  bool settle_posted();
  static void submit(Posted& posted);
  static bool has_left(const Posted& posted);
  static bool settle(Posted& posted);
  bool encode(Call& call, const Wanted& wanted);
  bool set_credential();
  void refuse(auth_stat why, const std::string& what);
  clnt_stat outcome(const Call& call);
  clnt_stat fail_with(clnt_stat status, int error, const std::string& what);
  bool get_or_set(u_int request, void* info);

  CLIENT client_ = {};
  // Bindings outlive the connection, so earlier ones stay. The last one is in use.
  std::vector<std::shared_ptr<const ProgramItems>> programs_;
  std::mutex mutex_;  // protects all members below: threads may share a CLIENT
  std::unique_ptr<Line> line_;
  Call call_;
  Wait ended_;
  std::array<std::unique_ptr<Posted>, kMostPosted> posted_;  // made when they are needed
  size_t next_posted_ = 0;
  // The last encoded call has data that the server fetches, which takes longer.
  bool is_long_ = false;
  bool long_posted_ = false;  // one that short calls would overtake
  std::string uri_;
  // CLSET_TIMEOUT's, or that of the last call that was waited for
  timeval timeout_ = kUsualTimeout;
  // Set by CLSET_TIMEOUT, which takes precedence over clnt_call()'s.
  bool timeout_is_set_ = false;
  uint32_t max_reply_ = kUsualReply;
  uint32_t max_decoded_ = kUsualDecoded;
  rpc_err error_ = {};
  sockaddr_storage address_ = {};
  netbuf address_view_ = {};
  // The credential of the connection: of a GssAuth with that number, or if it is 0 the others.
  uint64_t context_ = 0;
  AuthFlavor flavor_ = AuthFlavor::kNone;
  std::string credential_;
};

const CLIENT::clnt_ops Handle::kOps = {call, abort, get_error, free_results, destroy, control};

Handle::Handle(std::unique_ptr<Line> line, std::string uri)
    : line_(std::move(line)), call_(line_->connection()), uri_(std::move(uri)) {
  static char netid[] = "rdma", device[] = "";
  client_.cl_auth = authnone_create();
  client_.cl_ops = const_cast<CLIENT::clnt_ops*>(&kOps);  // it is never written to
  client_.cl_private = this;
  client_.cl_netid = netid;
  client_.cl_tp = device;
  const socklen_t length = to_socket_address(line_->connection().info().peer.remote, address_);
  address_view_ = {.maxlen = sizeof address_, .len = length, .buf = &address_};
}

// Calls end before the connection does, and are destroyed before it.
Handle::~Handle() {
  (void)settle_posted();
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
  if (auto allowed = check_process(); !allowed)  // another thread may have had the lock in fork()
    return handle.fail_with(RPC_CANTSEND, EINVAL, allowed.error().message);
  std::lock_guard lock(handle.mutex_);
  handle.error_ = {};
  const auto number = static_cast<uint32_t>(procedure);
  const ProcedureItems* found = handle.programs_.back()->find(number);
  const bool has_results = decode != nullptr && !is_void(decode);
  if (!handle.timeout_is_set_ && is_time(timeout) && !is_zero(timeout))
    handle.timeout_ = timeout;
  const Wanted wanted = {found != nullptr ? *found : no_items,
                         number,
                         encode,
                         args,
                         has_results,
                         is_zero(timeout) && !handle.timeout_is_set_ ? timeout : handle.timeout_};
  if (!is_zero(wanted.limit))
    return handle.call_and_wait(wanted, decode, results);
  const clnt_stat posted = handle.post(wanted);
  if (posted == RPC_SUCCESS && decode != nullptr)
    return handle.fail_with(RPC_TIMEDOUT, ETIMEDOUT, "the call is sent, and is not waited for");
  return posted;
}

clnt_stat Handle::call_and_wait(const Wanted& wanted, xdrproc_t decode, void* results) {
  if (long_posted_ && !settle_posted())
    return fail_with(RPC_TIMEDOUT, ETIMEDOUT, "batched calls are not answered");
  if (!encode(call_, wanted))
    return error_.re_status;
  call_.set_timeout_ms(milliseconds(wanted.limit));
  submit_and_wait(line_->reactor(), call_, ended_);
  if (call_.status() != CallStatus::kOk)
    return outcome(call_);
  Stream answer(call_.results(), wanted.items.results, &call_, max_decoded_);
  if (wanted.has_results && !answer.run(decode, results))
    return fail_with(RPC_CANTDECODERES, EBADMSG, "the results cannot be decoded");
  return RPC_SUCCESS;
}

// Sends, and does not wait for the answer: a "batched" call. If it cannot be sent, because other
// calls have all credits, it waits for the oldest of these.
clnt_stat Handle::post(const Wanted& wanted) {
  const std::string no_room = "earlier calls are not answered, and there is no room for this one";
  Posted* const posted = next_posted();
  if (posted == nullptr || (long_posted_ && !settle_posted()))
    return fail_with(RPC_CANTSEND, ETIMEDOUT, no_room);
  if (!encode(posted->call, wanted))
    return error_.re_status;
  const timeval& patience = is_zero(timeout_) ? kUsualTimeout : timeout_;
  posted->call.set_timeout_ms(milliseconds(patience));
  long_posted_ = is_long_;
  Reactor& reactor = line_->reactor();
  if (auto kept = reactor.need(); !kept)
    return fail_with(RPC_CANTSEND, EAGAIN, kept.error().message);
  submit(*posted);
  while (!has_left(*posted))
    settle(oldest_posted());
  if (!posted->ended.over() || posted->call.sent())
    return RPC_SUCCESS;
  if (posted->call.status() == CallStatus::kTimeout)
    return fail_with(RPC_CANTSEND, ETIMEDOUT, no_room);
  const clnt_stat status = outcome(posted->call);
  return error_.re_status = status == RPC_CANTRECV ? RPC_CANTSEND : status;
}

void Handle::submit(Posted& posted) {
  Lead lead(posted.reactor);
  posted.ended.restart();
  posted.call.submit(
      [](Call&, void* argument) {
        Posted& ended = *static_cast<Posted*>(argument);
        ended.reactor.unneed();
        ended.ended.finish();
      },
      &posted);
  posted.reactor.poll();
  posted.reactor.poll();  // this wakes a peer that has fallen asleep meanwhile
}

bool Handle::has_left(const Posted& posted) {
  Lead lead(posted.reactor);
  return posted.ended.over() || posted.call.sent();
}

// Returns false if it has not been answered in time.
bool Handle::settle(Posted& posted) {
  posted.reactor.run(posted.ended, [] {});
  while (posted.call.in_flight())
    std::this_thread::yield();
  return posted.call.status() != CallStatus::kTimeout;
}

// The first call that has not ended, or the last one.
Posted& Handle::oldest_posted() {
  for (size_t i = 0; i + 1 < posted_.size(); ++i) {
    const auto& posted = posted_[(next_posted_ + i) % posted_.size()];
    if (posted != nullptr && !posted->ended.over())
      return *posted;
  }
  return *posted_[(next_posted_ + posted_.size() - 1) % posted_.size()];
}

// Returns false if some have not been answered in time.
bool Handle::settle_posted() {
  bool answered = true;
  for (size_t i = 0; i < posted_.size(); ++i) {
    const auto& posted = posted_[(next_posted_ + i) % posted_.size()];
    if (posted != nullptr && !posted->ended.over())
      answered &= settle(*posted);
  }
  long_posted_ = false;
  return answered;
}

// Returns null if it has not been answered in time.
Posted* Handle::next_posted() {
  auto& posted = posted_[next_posted_];
  if (posted == nullptr)
    posted = std::make_unique<Posted>(line_->reactor(), line_->connection());
  else if (const bool answered = posted->ended.over(); !settle(*posted) && !answered)
    return nullptr;
  next_posted_ = (next_posted_ + 1) % posted_.size();
  return posted.get();
}

// Returns false on failure; error_ has the reason.
bool Handle::encode(Call& call, const Wanted& wanted) {
  if (!set_credential())
    return false;
  ClientConnection& connection = line_->connection();
  if (!connection.alive()) {
    auto reason = connection.error();
    fail_with(RPC_CANTSEND, ENOTCONN, reason ? reason->message : "the connection is lost");
    return false;
  }
  Encoder& out = call.begin(programs_.back()->binding(), wanted.procedure);
  Stream arguments(out, wanted.items.args, kInlineSize);
  if (!arguments.run(wanted.encode, wanted.args)) {
    const bool too_long = out.fault() == EncoderFault::kLimit;
    fail_with(RPC_CANTENCODEARGS, too_long ? EMSGSIZE : EINVAL,
              too_long ? "the arguments are longer than 8 MiB" : "the arguments cannot be encoded");
    return false;
  }
  is_long_ = out.position() > kInlineSize - kMostHeaders;
  if (wanted.has_results && !is_zero(wanted.limit)) {
    for (const Item& item : wanted.items.results)
      call.offer(line_->reactor().runtime().memory().get(item.largest), item.largest);
    call.expect_reply(wanted.items.reply.value_or(max_reply_));
  }
  return true;
}

// The connection takes the credential of cl_auth, which the program may set at any time.
bool Handle::set_credential() {
  static const opaque_auth none = {};
  const AUTH* const auth = client_.cl_auth;
  if (const GssAuth* gss = GssAuth::of(auth)) {
    if (gss->number() != context_)
      line_->connection().set_credential(gss->context());
    context_ = gss->number();
    return true;
  }
  if (is_unfinished(auth)) {
    refuse(AUTH_FAILED, "authgss_create() cannot be used here: use rrdk_authgss_create()");
    rpc_createerr.cf_stat = RPC_AUTHERROR;  // authgss_create() itself leaves RPC_SUCCESS there
    return false;
  }
  const opaque_auth& wanted = auth != nullptr ? auth->ah_cred : none;
  const auto flavor = static_cast<AuthFlavor>(wanted.oa_flavor);
  const std::string_view body(wanted.oa_base, wanted.oa_length);
  if (flavor == flavor_ && body == credential_ && context_ == 0) [[likely]]
    return true;
  if (flavor != AuthFlavor::kNone && flavor != AuthFlavor::kSys) {
    refuse(AUTH_FAILED, "authentication flavour " + std::to_string(wanted.oa_flavor) +
                            " is not supported: use AUTH_NONE, AUTH_SYS or rrdk_authgss_create()");
    return false;
  }
  if (auto set = line_->connection().set_auth(flavor, std::as_bytes(std::span(body))); !set) {
    refuse(AUTH_BADCRED, set.error().message);
    return false;
  }
  context_ = 0;
  flavor_ = flavor;
  credential_ = body;
  return true;
}

void Handle::refuse(auth_stat why, const std::string& what) {
  fail_with(RPC_AUTHERROR, 0, what);
  error_.re_why = why;
}

// Leads while it waits, since the library then polls the core by itself.
Result<SharedCredential> Handle::establish(const GssContextOptions& options) {
  if (auto allowed = check_process(); !allowed)
    return tl::unexpected(allowed.error());
  std::lock_guard lock(mutex_);
  Lead lead(line_->reactor());
  line_->reactor().poll();  // the core is this thread's from here on, and the library polls it
  return establish_context(line_->connection(), programs_.back()->binding(), options);
}

clnt_stat Handle::outcome(const Call& call) {
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
  const CallStatus status = call.status();
  const auto* known = std::ranges::find(kMeanings, status, &Meaning::status);
  const bool is_known = known != std::end(kMeanings);
  fail_with(is_known ? known->as : RPC_FAILED, is_known ? known->error : EIO, to_string(status));
  if (error_.re_status == RPC_PROGVERSMISMATCH || error_.re_status == RPC_VERSMISMATCH)
    error_.re_vers = {call.mismatch_low(), call.mismatch_high()};
  if (error_.re_status == RPC_AUTHERROR)
    error_.re_why = static_cast<auth_stat>(call.auth_stat());
  return error_.re_status;
}

void Handle::get_error(CLIENT* client, rpc_err* to) {
  std::lock_guard lock(self(client).mutex_);
  *to = self(client).error_;
}

// A forked process leaves the connection to its parent.
void Handle::destroy(CLIENT* client) {
  if (check_process())
    delete &self(client);
}

bool_t Handle::free_results(CLIENT*, xdrproc_t routine, void* results) {
  free_decoded(routine, results);
  return TRUE;
}

bool_t Handle::control(CLIENT* client, u_int request, void* info) {
  if (request == CLSET_FD_CLOSE || request == CLSET_FD_NCLOSE)
    return TRUE;
  if (info == nullptr)
    return FALSE;
  std::lock_guard lock(self(client).mutex_);
  return self(client).get_or_set(request, info);
}

bool Handle::get_or_set(u_int request, void* info) {
  const Binding& current = programs_.back()->binding();
  switch (request) {
    case CLSET_TIMEOUT:
      if (!is_time(*static_cast<timeval*>(info)))
        return false;
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
    case RRDK_CLGET_MAX_DECODED:
      *static_cast<uint32_t*>(info) = max_decoded_;
      return true;
    case RRDK_CLSET_MAX_DECODED:
      max_decoded_ = *static_cast<uint32_t*>(info);
      return true;
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

// The Client of all CLIENTs. Like their Runtime, it lives until the process ends.
Result<Client*> shared_client(Runtime& runtime) {
  static std::mutex& mutex = *new std::mutex;
  static std::unique_ptr<Client>& client = *new std::unique_ptr<Client>;
  std::lock_guard lock(mutex);
  if (client == nullptr) {
    auto made = Client::create(runtime, {.credits = kCredits,
                                         .inline_size = kInlineSize,
                                         .max_call = kMostBytes,
                                         .max_reply = kMostBytes,
                                         .call_timeout_ms = kEstablishMs,
                                         .chunk_threshold = kInlineSize});
    if (!made)
      return tl::unexpected(made.error());
    client = std::move(*made);
  }
  return client.get();
}

// Why a CLIENT could not be made, in libtirpc's error codes.
struct NotMade {
  Error error;
  clnt_stat status;
};
template <typename T>
using Made = tl::expected<T, NotMade>;

tl::unexpected<NotMade> not_made(Error error) {
  const clnt_stat status = error.code == Errc::kBadUri    ? RPC_UNKNOWNPROTO
                           : error.code == Errc::kTimeout ? RPC_TIMEDOUT
                                                          : RPC_SYSTEMERROR;
  return tl::unexpected(NotMade{std::move(error), status});
}

// The URI with the port that the host's rpcbind lists, if the URI has port 0. The address may be
// another one of the host than the one at which its rpcbind was asked.
Made<std::string> located(const std::string& uri, uint32_t program, uint32_t version) {
  auto address = host_and_port(uri);
  if (!address || address->port != 0)
    return uri;
  auto listed = rpcbind_locate({program, version}, {.host = address->host});
  if (listed)
    return std::string(uri).replace(address->at, address->length, listed->to_string());
  if (!is_known(address->host))
    return tl::unexpected(NotMade{listed.error(), RPC_UNKNOWNHOST});
  const bool asked = listed.error().code == Errc::kNotFound;
  return tl::unexpected(NotMade{listed.error(), asked ? RPC_PROGNOTREGISTERED : RPC_RPCBFAILURE});
}

Made<std::unique_ptr<Handle>> connect(const std::string& uri, rpcprog_t program,
                                      rpcvers_t version) {
  auto reactor = Reactor::of_clients();
  if (!reactor)
    return not_made(reactor.error());
  auto client = shared_client((*reactor)->runtime());
  if (!client)
    return not_made(client.error());
  auto address = located(uri, static_cast<uint32_t>(program), static_cast<uint32_t>(version));
  if (!address)
    return tl::unexpected(address.error());
  auto line = Line::connect(**reactor, **client, *address);
  if (!line) {
    auto where = host_and_port(*address);
    if (line.error().code == Errc::kNotFound && where && !is_known(where->host))
      return tl::unexpected(NotMade{line.error(), RPC_UNKNOWNHOST});
    return not_made(line.error());
  }
  auto handle = std::make_unique<Handle>(std::move(*line), *address);
  if (auto used = handle->use(program, version); !used)
    return not_made(used.error());
  return handle;
}

// A context that was not made, in libtirpc's error codes.
void note_in_createerr(const Error& error) {
  const clnt_stat status = error.code == Errc::kTimeout          ? RPC_TIMEDOUT
                           : error.code == Errc::kConnectionLost ? RPC_CANTRECV
                                                                 : RPC_AUTHERROR;
  rpc_createerr = {};
  rpc_createerr.cf_stat = status;
  rpc_createerr.cf_error.re_status = status;
  if (status == RPC_AUTHERROR)
    rpc_createerr.cf_error.re_why = AUTH_FAILED;
  else
    rpc_createerr.cf_error.re_errno = rrdk::errno_of(error.code);
  note_failure(error.message);
}

Result<AUTH*> make_context(CLIENT* client, const char* target, unsigned service,
                           const char* principal) {
  Handle* const handle = Handle::of(client);
  if (handle == nullptr)
    return fail(Errc::kInvalidArgument,
                "the CLIENT is not one of rrdk_clnt_create(): libtirpc's authgss_create() makes "
                "contexts for it");
  if (target == nullptr)
    return fail(Errc::kInvalidArgument, "the service is NULL: it is as nfs@server.example.org");
  GssContextOptions options;
  options.target = target;
  options.protection = static_cast<GssProtection>(service);
  options.principal = principal != nullptr ? principal : "";
  return handle->establish(options).map(
      [](SharedCredential made) { return (new GssAuth(std::move(made)))->auth(); });
}

// The system's error, if the message ends with it.
int errno_of(const Error& error) {
  for (const int system : {EMFILE, ENFILE, EAGAIN}) {
    if (error.message.find(std::generic_category().message(system)) != std::string::npos)
      return system;
  }
  return rrdk::errno_of(error.code);
}

}  // namespace

}  // namespace rrdk::tirpc

AUTH* rrdk_authgss_create(CLIENT* client, const char* target, unsigned service,
                          const char* principal) {
  auto made = rrdk::tirpc::make_context(client, target, service, principal);
  if (made)
    return *made;
  rrdk::tirpc::note_in_createerr(made.error());
  return nullptr;
}

CLIENT* rrdk_clnt_create(const char* uri, rpcprog_t program, rpcvers_t version) {
  auto handle = rrdk::tirpc::connect(uri, program, version);
  if (handle)
    return handle->release()->client();
  const auto& [error, status] = handle.error();
  rpc_createerr.cf_stat = status;
  rpc_createerr.cf_error = {};
  rpc_createerr.cf_error.re_status = status;
  rpc_createerr.cf_error.re_errno = rrdk::tirpc::errno_of(error);
  rrdk::tirpc::note_failure(error.message);
  return nullptr;
}
