// Calls over TCP that make security contexts (GssAcceptorOptions::tcp), for callers which make them
// there and use them over RDMA. A thread of its own serves them; their tokens are queued
// with all others.
//
// The peers are strangers. Each connection has one call at a time, of at most kLongestCall bytes,
// and kMostMs for all of its calls together. When there are kMostConnections, the oldest of the
// host that has the most gives way to another.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/system.h"
#include "gss/contexts.h"

namespace rrdk::gss {

class TcpCalls {
 public:
  static constexpr uint32_t kMostConnections = 64;
  static constexpr std::chrono::milliseconds kMostMs{10'000};
  // A token, and a header with two bodies of 400 bytes.
  static constexpr uint32_t kLongestCall = kLongestToken + 1024;

  // `where` is a numeric address and a port; `most` is a connection's time. Errors:
  // kInvalidArgument, kAddressInUse, kPermission, kSystem.
  static Result<std::unique_ptr<TcpCalls>> start(Contexts& contexts, const std::string& where,
                                                 std::chrono::milliseconds most = kMostMs);
  // Waits for tokens that are being checked.
  ~TcpCalls();
  TcpCalls(const TcpCalls&) = delete;
  TcpCalls& operator=(const TcpCalls&) = delete;

  uint16_t port() const noexcept { return port_; }
  // Calls that were denied or could not be read, and connections closed before their time.
  uint64_t refused() const noexcept { return refused_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection;

  TcpCalls(Contexts& contexts, base::Fd listener, base::Fd wake, uint16_t port,
           std::chrono::milliseconds most);
  void run();
  void pass();
  void accept_one();
  bool make_space();
  bool serve(Connection& connection);
  bool read(Connection& connection);
  bool write(Connection& connection);
  bool answer(Connection& connection);
  bool take_token(Connection& connection, const CredentialBody& credential, Decoder& in);
  void take_answers();
  void give_results(Connection& connection, const Establishment& work);
  void close_old();
  void wake() noexcept;

  Contexts& contexts_;
  const base::Fd listener_;
  const base::Fd wake_;
  const uint16_t port_;
  const std::chrono::milliseconds most_;
  std::atomic<uint64_t> refused_ = 0;
  std::atomic<bool> ends_ = false;

  // The thread's own, in the order in which they were made.
  std::vector<std::unique_ptr<Connection>> connections_;
  uint64_t accepted_ = 0;  // connections since the start
  bool accepts_ = true;    // false for one pass when the system lets no connection in

  std::mutex mutex_;  // of the connections' `checked`
  std::thread thread_;
};

}  // namespace rrdk::gss
