// Shared by the benchmarks that compare two things in one process: a service of two procedures, an
// end that calls it in slices of a millisecond, and error handling.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rrdk/client.h"
#include "rrdk/error.h"
#include "rrdk/memory.h"
#include "rrdk/runtime.h"
#include "rrdk/server.h"

namespace rrdk::perf {

constexpr uint64_t kSliceNs = 1'000'000;
constexpr uint32_t kEchoBytes = 2000;

enum : uint32_t { kNull = 0, kEcho = 1 };

struct Load {
  const char* name;
  uint32_t procedure;
  uint32_t window;
};

// Reports the error and ends the program.
[[noreturn]] void die(const std::string& message);

// A server of both procedures.
std::unique_ptr<Server> serve(Runtime& runtime);

// One calling end, polled here, whose calls are begun again and again.
class Requester {
 public:
  Requester(const std::string& uri, const Load& load, const ClientOptions& options = {});

  // Nanoseconds per call in a slice.
  double slice();
  Runtime& runtime() noexcept { return *runtime_; }

 private:
  void round();

  const Load load_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<Runtime> runtime_;
  RegisteredMemory bytes_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<ClientConnection> connection_;
  std::vector<std::unique_ptr<Call>> calls_;
};

double quantile(std::vector<double> values, double q);

// Two things in turns, a slice of each.
struct InTurns {
  double first, second;         // medians, ns per call
  double lower, median, upper;  // quartiles of the second's rate over the first's, of neighbours
};
InTurns in_turns(uint32_t slices, const std::function<double()>& first,
                 const std::function<double()>& second);

}  // namespace rrdk::perf
