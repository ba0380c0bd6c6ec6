// What a credential of RPCSEC_GSS stands for (SharedCredential): its present context, and what it
// takes to establish another one once the server has forgotten that.
//
// Calls on many connections may find out at the same time that it was forgotten. The first one asks
// its connection to establish another context, and the others wait for that one, too.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/log.h"
#include "gss/session.h"
#include "gss/wire.h"
#include "rrdk/binding.h"

namespace rrdk::gss {

// How a call whose context was forgotten goes on.
enum class Renewal : uint8_t {
  kHere,   // there is another context
  kBegin,  // the asker is the first: it tries to establish one, and reports the outcome
  kWait,   // another asker does
  kFailed  // it could not be established, a moment ago
};

class Initiator {
 public:
  // Told by any thread, with a lock held: it must not call back.
  class Waiter {
   public:
    virtual void on_renewed() noexcept = 0;

   protected:
    ~Waiter() = default;
  };

  Initiator(std::string target_in, std::string principal_in, Protection protection_in,
            const Binding& binding)
      : target(std::move(target_in)),
        principal(std::move(principal_in)),
        protection(protection_in),
        program_name(binding.name != nullptr ? binding.name : ""),
        null_calls{.program = binding.program,
                   .version = binding.version,
                   .name = program_name.c_str(),
                   .procedures = {}} {}
  Initiator(const Initiator&) = delete;
  Initiator& operator=(const Initiator&) = delete;

  // Any thread may call these functions. There is a session once it was established for the first
  // time.
  std::shared_ptr<Session> session() const;
  // The context of `forgotten` is of no use any more. With kBegin and kWait, `waiter` is told once
  // there is an outcome, and until then must not end without withdraw().
  Renewal renew(const Session& forgotten, Waiter& waiter);
  // The outcomes, which the asker reports.
  void renewed(std::shared_ptr<Session> made);
  // When the asker may begin. A server that forgets each context at once waits longer each time.
  uint64_t begins_at_ns() const;
  void refused();   // by Kerberos or the server: it is not tried again for kPauseNs
  void given_up();  // its connection is at fault: those that wait may ask on theirs
  void withdraw(Waiter& waiter);

  const std::string target;  // the service, as "nfs@host"
  std::string principal;     // empty: the default one, until the first session is established
  const Protection protection;
  const std::string program_name;
  const Binding null_calls;      // which establish a context
  base::LogLimit renewals_said;  // for the asker

 private:
  static constexpr uint64_t kPauseNs = 1'000'000'000;
  static constexpr uint64_t kFirstDelayNs = 10'000'000;
  static constexpr uint32_t kMostDoublings = 6;

  void tell();

  mutable std::mutex mutex_;  // for all below
  std::shared_ptr<Session> session_;
  bool renewing_ = false;
  uint64_t failed_until_ns_ = 0;
  uint64_t begins_at_ns_ = 0;
  uint32_t doublings_ = 0;  // of the delay
  std::vector<Waiter*> waiters_;
};

}  // namespace rrdk::gss
