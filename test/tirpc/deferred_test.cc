// Calls that are answered after their dispatch routines have returned: rrdk_svc_defer().
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "rrdk/tirpc.h"
#include "rrdk/tirpc_items.h"
#include "sites.h"

namespace {

// What kOddLater is called with: odd.bind names the text.
struct OddText {
  int number;
  struct {
    u_int text_len;
    char* text_val;
  } text;
};

bool_t xdr_odd_text(XDR* xdrs, OddText* line) {
  return xdr_int(xdrs, &line->number) &&
         xdr_bytes(xdrs, (&line->text.text_val), &line->text.text_len, 1u << 20);
}

struct Kept {
  SVCXPRT* transport;
  OddText args;
};
std::vector<Kept> later;                 // of the serving thread
std::vector<std::thread> answers_later;  // those that have begun by themselves

// True if it was sent.
bool answer(Kept& one) {
  const char* text = one.args.text.text_val;
  const bool whole =
      std::all_of(text, text + one.args.text.text_len, [&](char byte) { return byte == text[0]; });
  int number = whole ? one.args.number * 2 : -1;
  const bool sent = svc_sendreply(one.transport, routine(xdr_int), &number) != FALSE;
  svc_freeargs(one.transport, routine(xdr_odd_text), &one.args);
  rrdk_svc_release(one.transport);
  return sent;
}

bool end(Kept& one, int how) {
  switch (how) {
    case kLaterByThread: {
      bool sent = false;
      std::thread([&] { sent = answer(one); }).join();
      return sent;
    }
    case kLaterWeak:
      svcerr_weakauth(one.transport);
      break;
    case kLaterNever:
      break;
    default:
      return answer(one);
  }
  svc_freeargs(one.transport, routine(xdr_odd_text), &one.args);
  rrdk_svc_release(one.transport);
  return false;
}

}  // namespace

void defer_call(SVCXPRT* transport) {
  Kept call = {};
  if (!svc_getargs(transport, routine(xdr_odd_text), &call.args))
    return svcerr_decode(transport);
  call.transport = rrdk_svc_defer(transport);
  EXPECT_NE(call.transport, nullptr) << rrdk_tirpc_error();
  if (call.args.number >= 0) {
    later.push_back(call);
  } else {
    answers_later.emplace_back([call]() mutable { answer(call); });
    EXPECT_TRUE(std::all_of(call.args.text.text_val,
                            call.args.text.text_val + call.args.text.text_len,
                            [](char byte) { return byte == 'x'; }));
  }
}

void answer_deferred(SVCXPRT* transport) {
  int how = 0, sent = 0;
  if (!svc_getargs(transport, routine(xdr_int), &how))
    return svcerr_decode(transport);
  for (Kept& one : later)
    sent += end(one, how);
  later.clear();
  for (std::thread& each : answers_later)
    each.join();
  answers_later.clear();
  svc_sendreply(transport, routine(xdr_int), &sent);
}

namespace {

// A client whose call waits to be answered.
class LaterCall {
 public:
  LaterCall(CLIENT* client, int number, size_t size) : client_(client), text_(size, 'x') {
    thread_ = std::thread([this, number] {
      OddText args = {number, {static_cast<u_int>(text_.size()), text_.data()}};
      status_ = clnt_call(client_.get(), kOddLater, routine(xdr_odd_text), &args, routine(xdr_int),
                          &result_, kPatience);
    });
  }
  ~LaterCall() {
    if (thread_.joinable())
      thread_.join();
  }
  clnt_stat status() {
    thread_.join();
    return status_;
  }
  int result() const { return result_; }

 private:
  ClientPointer client_;
  std::string text_;
  std::thread thread_;
  clnt_stat status_ = RPC_FAILED;
  int result_ = 0;
};

class Deferred : public testing::TestWithParam<const char*> {
 protected:
  CLIENT* connect() { return stub_server().connect(GetParam(), kOddProgram, kOddVersion); }
  int ask(rpcproc_t procedure, int number) {
    ClientPointer client(connect());
    int result = -1;
    EXPECT_EQ(clnt_call(client.get(), procedure, routine(xdr_int), &number, routine(xdr_int),
                        &result, kPatience),
              RPC_SUCCESS);
    return result;
  }
};

// Until then others are served. The larger argument is read in place.
TEST_P(Deferred, CallsAreAnsweredAfterTheirRoutines) {
  for (int how : {kLaterNow, kLaterByThread}) {
    LaterCall one(connect(), 1, 10), two(connect(), 2, 200'000);
    stub_server().wait_until_blocked();
    stub_server().wait_until_blocked();
    EXPECT_EQ(ask(kOddEcho, 42), 42);
    EXPECT_EQ(ask(kOddAnswerLater, how), 2);
    EXPECT_EQ(one.status(), RPC_SUCCESS);
    EXPECT_EQ(two.status(), RPC_SUCCESS);
    EXPECT_EQ(one.result(), 2);
    EXPECT_EQ(two.result(), 4);
  }
}

TEST_P(Deferred, CallsMayEndWithErrors) {
  LaterCall call(connect(), 1, 10);
  stub_server().wait_until_blocked();
  EXPECT_EQ(ask(kOddAnswerLater, kLaterWeak), 0);
  EXPECT_EQ(call.status(), RPC_AUTHERROR);
}

INSTANTIATE_TEST_SUITE_P(Over, Deferred, testing::Values("shm", "iwarp", "tcp"),
                         [](const auto& which) { return std::string(which.param); });

using DeferredOverRdma = Deferred;

// Over TCP the client would wait for its timeout.
TEST_P(DeferredOverRdma, CallsThatAreReleasedFail) {
  LaterCall call(connect(), 1, 10);
  stub_server().wait_until_blocked();
  EXPECT_EQ(ask(kOddAnswerLater, kLaterNever), 0);
  EXPECT_EQ(call.status(), RPC_SYSTEMERROR);
}

// A thread that is done before the routine waits for it, which may still use its arguments.
TEST_P(DeferredOverRdma, CallsAreAnsweredWhenTheirRoutinesHaveReturned) {
  LaterCall call(connect(), -7, 200'000);
  stub_server().wait_until_blocked();
  EXPECT_EQ(ask(kOddAnswerLater, kLaterNow), 0);
  EXPECT_EQ(call.status(), RPC_SUCCESS);
  EXPECT_EQ(call.result(), -14);
}

TEST_P(DeferredOverRdma, CallsOutliveTheirConnections) {
  ClientPointer client(connect());
  std::string text(200'000, 'x');
  OddText args = {1, {static_cast<u_int>(text.size()), text.data()}};
  // By then even a busy machine has brought the call to its routine, for which the test waits.
  constexpr timeval kSoon = {2, 0};
  std::thread gives_up([&] {
    EXPECT_EQ(clnt_call(client.get(), kOddLater, routine(xdr_odd_text), &args, routine(xdr_int),
                        nullptr, kSoon),
              RPC_TIMEDOUT);
    client.reset();
  });
  stub_server().wait_until_blocked();
  gives_up.join();
  ask(kOddAnswerLater, kLaterByThread);
}

TEST_P(DeferredOverRdma, CallsEndWithTheirTransport) {
  ClientPointer client(connect());
  char* uri = nullptr;
  ASSERT_EQ(clnt_call(client.get(), kOddServe, nothing, nullptr, routine(xdr_wrapstring), &uri,
                      kPatience),
            RPC_SUCCESS);
  LaterCall call(rrdk_clnt_create(uri, kOddProgram, kOddVersion), 1, 200'000);
  free(uri);
  stub_server().wait_until_blocked();
  EXPECT_EQ(clnt_call(client.get(), kOddEndServing, nothing, nullptr, nothing, nullptr, kPatience),
            RPC_SUCCESS);
  EXPECT_NE(call.status(), RPC_SUCCESS);
  EXPECT_EQ(ask(kOddAnswerLater, kLaterNow), 0) << "answered twice";
}

INSTANTIATE_TEST_SUITE_P(Over, DeferredOverRdma, testing::Values("shm", "iwarp"),
                         [](const auto& which) { return std::string(which.param); });

}  // namespace
