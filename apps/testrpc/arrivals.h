// When the calls of an open loop are due.
#pragma once

#include <cstdint>
#include <string>

#include "rrdk/error.h"

namespace rrdk::testrpc {

struct ArrivalPattern {
  enum class Kind : uint8_t {
    kEven,     // one every 1/rate seconds
    kPoisson,  // exponentially distributed gaps, as from many independent callers
    kBurst,    // `burst` at a time, every burst/rate seconds
  };
  Kind kind = Kind::kEven;
  uint32_t burst = 1;

  bool operator==(const ArrivalPattern&) const = default;
};

// "even", "poisson", "burst:8"
std::string to_string(const ArrivalPattern& pattern);
Result<ArrivalPattern> parse_arrivals(const std::string& text);

// A schedule of calls, one after the other. Times are nanoseconds since its start.
class Arrivals {
 public:
  Arrivals() = default;
  // `rate` is the average number of calls per second. The same seed gives the same schedule. A
  // schedule that is not random begins `lead` of its intervals after the start, so that several
  // schedules with the same interval can alternate.
  Arrivals(const ArrivalPattern& pattern, double rate, uint64_t seed, double lead = 0);

  // When the next call is due.
  double next_ns() const { return next_ns_; }
  // Proceeds from the next call to the one after it.
  void take();
  // Returns how many calls are due before `end_ns`, including those already taken. For a Poisson
  // process the calls after the next one are not drawn for this, and count with their mean.
  uint64_t due_before(double end_ns) const;

 private:
  double exponential_gap();
  double time_of_burst(uint64_t number) const;

  ArrivalPattern pattern_;
  double gap_ns_ = 0;  // on average
  double rate_ = 0;
  double lead_ = 0;
  uint64_t random_ = 0;
  uint64_t taken_ = 0;
  double next_ns_ = 0;
};

}  // namespace rrdk::testrpc
