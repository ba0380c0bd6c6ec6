// What serves the process's SVCXPRTs: one core that rrdk_svc_run() or rrdk_svc_poll() polls
// (reactor.h). Handlers only queue their calls: dispatch routines run between the core's passes,
// where they may block and call others. Meanwhile the core's keeper polls, so that clients can
// connect.
#pragma once

#include <poll.h>
#include <rpc/rpc.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "bindings.h"
#include "reactor.h"
#include "rrdk/rpcbind.h"
#include "rrdk/server.h"

namespace rrdk::tirpc {

class Transport;

// A program and version at one transport.
struct Registration {
  Transport* transport;
  std::shared_ptr<const ProgramItems> items;
  void (*dispatch)(svc_req*, SVCXPRT*);
  bool as_loopback;                            // see RRDK_SVC_LOOPBACK
  std::unique_ptr<RpcbindListing> in_rpcbind;  // null: not there
};

struct Waiting {
  ServerCall call;
  Registration* registration;
};

// Runs the dispatch routine, and ensures that the call is answered or deferred.
void dispatch(Waiting waiting);

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
  // Whether the program does something else than look at `waiting`. The caller leads.
  bool is_busy() const noexcept;
  // A core's pass: the call is for a dispatch routine.
  void take(ServerCall call, Registration& registration);
  // Calls that no routine will answer. The caller leads.
  void refuse_waiting(const Registration& registration);

 private:
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

// A connection's context is the number of its waiting calls. The caller leads.
void count_waiting(const ServerCall& call, std::ptrdiff_t more);

}  // namespace rrdk::tirpc
