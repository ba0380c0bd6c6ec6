// A call as a program of libtirpc sees it: an SVCXPRT that decodes its arguments and answers it.
// Each transport has one (server.cc), for the call that it dispatches; a deferred call has its own.
#pragma once

#include <rpc/rpc.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

#include "bindings.h"
#include "rrdk/service.h"
#include "sizes.h"

namespace rrdk::tirpc {

class Deferred;
class Transport;
using Ops = std::remove_cvref_t<decltype(*SVCXPRT::xp_ops)>;
using MoreOps = std::remove_cvref_t<decltype(*SVCXPRT::xp_ops2)>;

// The object behind an SVCXPRT's xp_p1.
class Exchange {
 public:
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  static Exchange& of(const SVCXPRT* handle) { return *static_cast<Exchange*>(handle->xp_p1); }
  SVCXPRT* handle() noexcept { return &handle_; }

  // What the operations of an SVCXPRT do. They return false if no call waits for an answer; or, of
  // answer(), the results cannot be encoded.
  bool decode_args(xdrproc_t routine, void* args);
  bool answer(const rpc_msg& message);
  static bool_t free_args(SVCXPRT* handle, xdrproc_t routine, void* args);
  static bool_t control(SVCXPRT* handle, u_int request, void* info);
  static const MoreOps kMoreOps;

 protected:
  explicit Exchange(const Ops& ops) noexcept;
  ~Exchange() = default;

  // `as_loopback`: see RRDK_SVC_LOOPBACK.
  void begin(ServerCall call, std::shared_ptr<const ProgramItems> program, bool as_loopback);
  void take_over(Exchange& from);
  void reject(AcceptStat status);
  void deny(AuthStat reason);

  ServerCall call_;  // empty if no call waits for an answer
  // Whether arguments in place are given back when the call is answered, at the latest. Otherwise
  // they are when the program frees them, while no other call is dispatched.
  bool takes_arguments_back_ = false;

 private:
  bool send_results(xdrproc_t routine, void* results);
  void show_caller();
  template <typename End>
  void end(End&& end);
  void take_arguments_back();

  SVCXPRT handle_ = {};
  std::shared_ptr<const ProgramItems> program_;
  const ProcedureItems* items_ = nullptr;
  std::vector<const void*> in_place_;  // arguments that were decoded so
  uint32_t max_decoded_ = kUsualDecoded;
  uint64_t caller_id_ = 0;  // the connection that the handle shows
  bool as_loopback_ = false;
  sockaddr_storage caller_ = {};
};

// A call that is answered after its dispatch routine has returned: rrdk_svc_defer(). Until then
// other threads that want to answer it wait, because the routine may still use its arguments.
class Deferred : public Exchange {
 public:
  // From a dispatch routine of `transport`, whose call it takes.
  static std::shared_ptr<Deferred> make(Exchange& from, const Transport* transport);
  // The calls of a transport that ends are answered with an error; the handles stay.
  static void end_all(const Transport* transport);
  // The program has no more use for it. If it is not answered, it is now, with an error.
  static void release(SVCXPRT* handle);
  static bool is_one(const SVCXPRT* handle) { return handle->xp_ops == &kOps; }
  static bool exist() noexcept;

  std::recursive_mutex& mutex() noexcept { return mutex_; }

 private:
  explicit Deferred(const Transport* transport) : Exchange(kOps), transport_(transport) {}
  static Deferred& of(const SVCXPRT* handle) {
    return static_cast<Deferred&>(Exchange::of(handle));
  }
  static const Ops kOps;

  std::recursive_mutex mutex_;
  const Transport* const transport_;
  std::shared_ptr<Deferred> self_;  // until it is released
};

}  // namespace rrdk::tirpc
