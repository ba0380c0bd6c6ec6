#include "exchange.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "address.h"
#include "memory.h"
#include "rrdk/eal.h"
#include "rrdk/tirpc.h"
#include "service.h"
#include "stream.h"

namespace rrdk::tirpc {

namespace {

const std::vector<Item> kNoItems;

// Those that are not released.
struct AllDeferred {
  std::mutex mutex;
  std::vector<Deferred*> all;
  std::atomic<size_t> count = 0;

  static AllDeferred& get() {
    static AllDeferred& instance = *new AllDeferred;
    return instance;
  }
  void add(Deferred* deferred) {
    std::lock_guard lock(mutex);
    all.push_back(deferred);
    count.store(all.size(), std::memory_order_relaxed);
  }
  void remove(Deferred* deferred) {
    std::lock_guard lock(mutex);
    std::erase(all, deferred);
    count.store(all.size(), std::memory_order_relaxed);
  }
};

}  // namespace

const MoreOps Exchange::kMoreOps = {control};

Exchange::Exchange(const Ops& ops) noexcept {
  static char netid[] = "rdma", device[] = "";
  handle_.xp_fd = -1;
  handle_.xp_ops = &ops;
  handle_.xp_ops2 = &kMoreOps;
  handle_.xp_tp = device;
  handle_.xp_netid = netid;
  handle_.xp_p1 = this;
}

void Exchange::begin(ServerCall call, std::shared_ptr<const ProgramItems> program,
                     bool as_loopback) {
  call_ = std::move(call);
  if (std::exchange(as_loopback_, as_loopback) != as_loopback)
    caller_id_ = 0;
  program_ = std::move(program);
  items_ = program_->find(call_.procedure());
  in_place_.clear();
  show_caller();
}

void Exchange::take_over(Exchange& from) {
  call_ = std::move(from.call_);
  program_ = from.program_;
  items_ = from.items_;
  in_place_ = std::exchange(from.in_place_, {});
  max_decoded_ = from.max_decoded_;
  as_loopback_ = from.as_loopback_;
  show_caller();
}

void Exchange::show_caller() {
  const ServerConnection& connection = call_.connection();
  if (connection.id() == caller_id_)
    return;
  caller_id_ = connection.id();
  static const NetworkAddress loopback = {.host = "127.0.0.1", .port = 65535};
  const Peer& peer = connection.peer();
  const bool as_loopback = as_loopback_ && peer.process.has_value();
  const socklen_t length = to_socket_address(as_loopback ? loopback : peer.remote, caller_);
  std::memcpy(&handle_.xp_raddr, &caller_, sizeof handle_.xp_raddr);
  handle_.xp_addrlen = static_cast<int>(length);
  handle_.xp_rtaddr = {.maxlen = sizeof caller_, .len = length, .buf = &caller_};
}

// The thread that leads ends the call.
template <typename End>
void Exchange::end(End&& end) {
  take_arguments_back();
  Turn turn;
  end(std::move(call_));
}

void Exchange::take_arguments_back() {
  if (!takes_arguments_back_)
    return;
  for (const void* memory : in_place_)
    give_back(const_cast<void*>(memory));
}

void Exchange::reject(AcceptStat status) {
  end([status](ServerCall&& call) { std::move(call).reject(status); });
}

void Exchange::deny(AuthStat reason) {
  end([reason](ServerCall&& call) { std::move(call).deny(reason); });
}

bool Exchange::decode_args(xdrproc_t routine, void* args) {
  if (!call_)
    return false;
  Stream stream(call_.args(), items_ != nullptr ? items_->args : kNoItems, nullptr, max_decoded_);
  if (!stream.run(routine, args))
    return false;
  in_place_.insert(in_place_.end(), stream.in_place().begin(), stream.in_place().end());
  return true;
}

bool_t Exchange::free_args(SVCXPRT* handle, xdrproc_t routine, void* args) {
  const Exchange& exchange = of(handle);
  if (!exchange.takes_arguments_back_ || exchange.call_) {
    free_decoded(routine, args);
    return TRUE;
  }
  AlreadyBack back(exchange.in_place_);
  free_decoded(routine, args);
  return TRUE;
}

bool Exchange::answer(const rpc_msg& message) {
  if (!call_)
    return false;
  if (message.rm_reply.rp_stat == MSG_DENIED) {
    // The RPC version was checked before.
    deny(static_cast<AuthStat>(message.rjcted_rply.rj_why));
    return true;
  }
  const accepted_reply& accepted = message.acpted_rply;
  if (accepted.ar_stat == SUCCESS)
    return send_results(accepted.ar_results.proc, accepted.ar_results.where);
  if (accepted.ar_stat != PROG_MISMATCH) {
    reject(static_cast<AcceptStat>(accepted.ar_stat));
    return true;
  }
  end([&accepted](ServerCall&& call) {
    std::move(call).reject_versions(static_cast<uint32_t>(accepted.ar_vers.low),
                                    static_cast<uint32_t>(accepted.ar_vers.high));
  });
  return true;
}

// Returns false if the call is not answered yet, and nothing was written.
bool Exchange::send_results(xdrproc_t routine, void* results) {
  Encoder& out = call_.results();
  const Encoder::Mark mark = out.mark();
  Stream stream(out, items_ != nullptr ? items_->results : kNoItems, 0);
  if (!stream.run(routine, results)) {
    out.rewind(mark);
    return false;
  }
  // Arguments of a deferred call may go while this reply is on its way.
  if (!stream.borrows() && !(stream.refers_to_arguments() && Deferred::exist())) {
    end([](ServerCall&& call) { std::move(call).reply(); });
    return true;
  }
  // The program may change its memory as soon as this returns.
  Wait released;
  call_.on_released([](void* wait) { static_cast<Wait*>(wait)->finish(); }, &released);
  take_arguments_back();
  Service::get().reactor->run(released, [this] { std::move(call_).reply(); });
  Turn turn;
  return true;
}

bool_t Exchange::control(SVCXPRT* handle, u_int request, void* info) {
  if (info == nullptr || (request != RRDK_CLSET_MAX_DECODED && request != RRDK_CLGET_MAX_DECODED))
    return FALSE;
  uint32_t& most = of(handle).max_decoded_;
  uint32_t& told = *static_cast<uint32_t*>(info);
  (request == RRDK_CLSET_MAX_DECODED ? most : told) =
      request == RRDK_CLSET_MAX_DECODED ? told : most;
  return TRUE;
}

const Ops Deferred::kOps = {[](SVCXPRT*, rpc_msg*) -> bool_t { return FALSE; },
                            [](SVCXPRT*) { return XPRT_IDLE; },
                            [](SVCXPRT* handle, xdrproc_t routine, void* args) -> bool_t {
                              std::lock_guard lock(of(handle).mutex_);
                              return of(handle).decode_args(routine, args);
                            },
                            [](SVCXPRT* handle, rpc_msg* message) -> bool_t {
                              if (!check_process())
                                return FALSE;  // it is the parent's
                              (void)register_thread();
                              std::lock_guard lock(of(handle).mutex_);
                              return of(handle).answer(*message);
                            },
                            [](SVCXPRT* handle, xdrproc_t routine, void* args) -> bool_t {
                              std::lock_guard lock(of(handle).mutex_);
                              return free_args(handle, routine, args);
                            },
                            release};

std::shared_ptr<Deferred> Deferred::make(Exchange& from, const Transport* transport) {
  std::shared_ptr<Deferred> made(new Deferred(transport));
  made->take_over(from);
  made->takes_arguments_back_ = true;
  made->self_ = made;
  AllDeferred::get().add(made.get());
  return made;
}

bool Deferred::exist() noexcept {
  return AllDeferred::get().count.load(std::memory_order_relaxed) != 0;
}

void Deferred::end_all(const Transport* transport) {
  AllDeferred& deferred = AllDeferred::get();
  std::lock_guard lock(deferred.mutex);  // so that none is freed meanwhile
  for (Deferred* each : deferred.all) {
    if (each->transport_ != transport)
      continue;
    std::lock_guard its_lock(each->mutex_);
    if (each->call_)
      each->reject(AcceptStat::kSystemErr);
  }
}

void Deferred::release(SVCXPRT* handle) {
  if (!check_process())
    return;
  Deferred& deferred = of(handle);
  const std::shared_ptr<Deferred> last = deferred.self_;
  {
    std::lock_guard lock(deferred.mutex_);
    if (deferred.call_)
      deferred.reject(AcceptStat::kSystemErr);
    deferred.self_.reset();
  }
  // Only now: until it is answered, the end of its transport must find it. Without its lock, which
  // end_all() takes after that of the list.
  AllDeferred::get().remove(&deferred);
}

}  // namespace rrdk::tirpc
