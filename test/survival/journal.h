// The counter that calls add to, and which calls did: in a file that servers share, one after the
// other, each of which may be killed at any instruction.
//
// Execution number i writes record i % kRecords, which is not in use yet, and then stores i + 1
// into the count. That store is the effect and its record in one: a record is valid if its
// number is below the count. So a call has been executed and recorded, or neither.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "rrdk/error.h"

namespace rrdk::survival {

// A call, as its server knows it: its connection's XID, and the index of that client connection.
// `serial` never repeats; it is kept to see whether an XID was used for two calls.
struct CallId {
  uint32_t connection;
  uint32_t xid;
  uint64_t serial;
};

class Journal {
 public:
  // More than the number of calls that can come between a call and its repetition.
  static constexpr uint64_t kRecords = 1u << 16;

  static Result<std::unique_ptr<Journal>> open(const std::string& path);
  ~Journal();

  // Adds one, unless this call has done so. Returns the counter after the call that did.
  uint64_t add(const CallId& call);
  // Adds one, for any call.
  uint64_t add_again(const CallId& call);

  uint64_t count() const { return file_->count.load(std::memory_order_acquire); }
  // Calls that were answered from the record; and XIDs that came with another call than before.
  uint64_t answered_from_record() const { return file_->answered.load(); }
  uint64_t clashes() const { return file_->clashes.load(); }

 private:
  struct File {
    std::atomic<uint64_t> count;
    std::atomic<uint64_t> answered;
    std::atomic<uint64_t> clashes;
    CallId records[kRecords];
  };
  static_assert(std::atomic<uint64_t>::is_always_lock_free);

  explicit Journal(File* file) : file_(file) {}
  static uint64_t key_of(const CallId& call) { return uint64_t{call.connection} << 32 | call.xid; }

  File* file_;
  std::unordered_map<uint64_t, uint64_t> numbers_;  // the number of executions that have a record
};

}  // namespace rrdk::survival
