// Servers for the tests of the bridge: one with rpcgen's stubs over every transport, in its own
// thread, and one of RRDK's that answers as a test wants.
#pragma once

#include <rpc/rpc.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rrdk/client.h"
#include "rrdk/server.h"

// A program beside kv.x, with its own dispatch routine.
constexpr rpcprog_t kOddProgram = 0x20004b57;
constexpr rpcvers_t kOddVersion = 3;
constexpr rpcprog_t kOddLoopback = 0x20004b59;  // the same, registered with RRDK_SVC_LOOPBACK
enum OddProcedure : rpcproc_t {
  kOddBlock = 1,         // waits for StubServer::unblock()
  kOddSilent = 2,        // returns without an answer
  kOddCaller = 3,        // answers with its caller's identity: a string
  kOddWeak = 4,          // svcerr_weakauth()
  kOddPositions = 5,     // reads its two words by xdr_setpos(), and answers their sum
  kOddUnencodable = 6,   // its results cannot be encoded
  kOddCallsAnother = 7,  // calls KV_LIST of the server whose URI is its argument: a string
  kOddLog = 8,           // keeps the number that it is given with an opaque, and does not answer
  // How many came since the last question; -1 if not numbered 0, 1, 2 and so on.
  kOddLogged = 9,
  kOddEcho = 10,         // answers the number that it is given
  kOddVersions = 11,     // svcerr_progvers() with 3 and 7
  kOddWords = 12,        // the number of elements in an array of words
  kOddWide = 13,         // the same, where each takes 60,000 bytes when it is decoded
  kOddList = 14,         // the length of a linked list of words
  kOddLeaveEvents = 15,  // writes events into svc_pollfd that did not happen
  kOddLater = 16,        // answered by kOddAnswerLater; a negative number: by a thread, at once
  kOddAnswerLater = 17,  // ends them as its argument says, and answers how many were sent
  kOddServe = 18,        // listens once more, and answers the URI
  kOddEndServing = 19,   // no longer does
  kOddOther = 1000,      // answers its own number, as all procedures from here on
};

enum Later : int { kLaterNow, kLaterByThread, kLaterWeak, kLaterNever };

// In deferred_test.cc: the routines of kOddLater and kOddAnswerLater.
void defer_call(SVCXPRT* transport);
void answer_deferred(SVCXPRT* transport);

// kv.x as a program of RRDK.
constexpr rrdk::ProcedureBinding kKvProcedures[] = {
    {.procedure = 1, .name = "PUT", .eligible_args = 1, .fixed_results = 4},
    {.procedure = 2, .name = "GET", .eligible_results = 1, .fixed_results = 12}};
constexpr rrdk::Binding kKv = {
    .program = 0x20004b56, .version = 1, .name = "kv", .procedures = kKvProcedures};

// Whether the StubServer is served from a loop of its own, by rrdk_svc_poll(), and not by
// rrdk_svc_run(): as the environment variable RRDK_TIRPC_OWN_LOOP says.
bool has_own_loop();

class StubServer {
 public:
  StubServer();
  ~StubServer();
  void unblock();
  void wait_until_blocked();  // once for each time
  // Runs `during` while the keeper of the Reactor for servers, which has slept on the core, cannot
  // find out that the serving thread leads again. The serving thread does not sleep meanwhile.
  void without_keeper(const std::function<void()>& during);
  void spin();  // returns when the serving thread has done so for a millisecond, and no call came
  // "shm", "iwarp", "tcp"; in a Kerberos realm (test/gss/realm.py) also "gss".
  CLIENT* connect(const std::string& transport, rpcprog_t program, rpcvers_t version) const;
  const std::string& uri(const std::string& transport) const { return uris_.at(transport); }

 private:
  std::map<std::string, std::string> uris_;
  uint16_t tcp_port_ = 0;
  std::thread thread_;
};

// All transports of the program's one StubServer.
StubServer& stub_server();

using Answer = std::function<void(rrdk::ServerCall)>;

// Answers procedures of one program as a test says, on its own thread.
class RawServer {
 public:
  RawServer(const rrdk::Binding& binding, std::map<uint32_t, Answer> answers);
  ~RawServer();
  const std::string& uri() const { return uri_; }
  rrdk::Stats stats() const { return server_->stats(); }

 private:
  std::map<uint32_t, Answer> answers_;
  std::unique_ptr<rrdk::Runtime> runtime_;
  std::unique_ptr<rrdk::Server> server_;
  std::string uri_;
};

// A client of RRDK's, which may send messages that no stub would.
class RawClient {
 public:
  explicit RawClient(const std::string& uri);
  ~RawClient();
  rrdk::ClientConnection& connection() { return *connection_; }

 private:
  std::unique_ptr<rrdk::Runtime> runtime_;
  std::unique_ptr<rrdk::Client> client_;
  std::unique_ptr<rrdk::ClientConnection> connection_;
};

// Destroys it at the end.
struct ClientDeleter {
  void operator()(CLIENT* client) const { clnt_destroy(client); }
};
using ClientPointer = std::unique_ptr<CLIENT, ClientDeleter>;

// The arguments of kOddLog.
struct OddLine {
  int number;
  char* text;
  u_int length;
};
bool_t xdr_odd_line(XDR* xdrs, OddLine* line);

// As the stubs' own.
constexpr timeval kPatience = {25, 0};
// An XDR routine in the type that clnt_call() wants.
template <typename Function>
xdrproc_t routine(Function* function) {
  return reinterpret_cast<xdrproc_t>(reinterpret_cast<void (*)()>(function));
}
// clnt_call() asks for another type than that of libtirpc's xdr_void().
inline bool_t nothing(XDR*, ...) {
  return TRUE;
}
