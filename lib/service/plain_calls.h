// Plain calls over a driver that has a lane (fabric/lane.h). Each is examined in its slot, run and
// answered before the next one, without a Receive, a completion or a work request; or it is given
// to a worker. A plain call has the flavour AUTH_NONE or AUTH_SYS, and no chunk or one chunk of one
// segment; its procedure may run twice; and nothing of its connection waits.
// plain_calls_datapath.cc has its whole life, top to bottom. All other calls take the general path,
// and so does every plain call while open() is false.
#pragma once

#include <immintrin.h>

#include <array>
#include <cstdint>

#include "fabric/lane.h"
#include "service/dispatcher.h"

namespace rrdk::service {

// For one connection; on its core's thread.
class PlainCalls final : public fabric::LaneUser {
 public:
  PlainCalls(Dispatcher& dispatcher, runtime::Link& link) noexcept
      : dispatcher_(dispatcher), link_(link) {}

  void on_burst(fabric::Lane& lane, uint32_t most) noexcept override;

 private:
  engine::Responder& responder() const noexcept { return link_.engine().responder(); }
  // What one burst counts for a procedure.
  struct Tally {
    ProcedureCounters* counters = nullptr;
    uint64_t calls = 0, bytes_in = 0, bytes_out = 0;

    void count(ProcedureCounters* its, uint64_t in, uint64_t out) noexcept {
      if (counters != its) [[unlikely]] {
        flush();
        counters = its;
      }
      ++calls;
      bytes_in += in;
      bytes_out += out;
    }
    void flush() noexcept {
      if (counters != nullptr && calls != 0) {
        counters->calls += calls;
        counters->received_bytes += bytes_in;
        counters->sent_bytes += bytes_out;
      }
      calls = bytes_in = bytes_out = 0;
    }
  };
  struct Found {
    uint32_t number = 0;
    // The credentials that are served: those whose body has `least_body` bytes at least, and fewer
    // than `num_bodies` more. AUTH_NONE has no body.
    uint32_t least_body = 0;
    uint32_t num_bodies = 0;
    bool on_worker = false;
    bool may_read = false;                 // its calls may have a Read chunk,
    bool may_write = false;                // or a Write chunk
    const Procedure* procedure = nullptr;  // null: NULL, which has no handler
    ProcedureCounters* counters = nullptr;

    bool serves(uint32_t body) const noexcept { return body - least_body < num_bodies; }
  };

  struct Burst {
    ServedCall* record = nullptr;  // for its calls, one after the other; null: none was needed yet
    Tally tally;
    uint32_t served = 0;
  };
  enum class Outcome : uint8_t {
    kServed,
    kGiven,      // to a worker
    kLeft,       // taken, and continues like any other call
    kUntouched,  // left to the general path
  };

  bool open() noexcept;
  bool goes_on() const noexcept;
  void make_templates(uint32_t credits) noexcept;
  Found find(uint32_t number) const noexcept;
  Outcome serve(fabric::Lane& lane, Burst& burst) noexcept;
  bool matches(__m256i b) const noexcept;
  // Returns the length of the credential's body with its pad, from words 8 to 15 of a plain call's
  // header (words 14 to 21 if there is a chunk). Returns kNotPlain if the call must take the
  // general path.
  template <typename Load>
  static uint32_t credential_length(__m256i b, uint32_t length, Load&& load) noexcept;
  bool may_serve(uint32_t number, uint32_t body) noexcept;
  bool answer_null(fabric::Lane& lane, const fabric::LaneMessage& message, uint32_t xid) noexcept;
  ServedCall* take_record() noexcept;
  void fill(ServedCall& call, uint32_t xid, uint32_t number, uint32_t body) noexcept;
  Outcome run_or_hand_over(fabric::Lane& lane, ServedCall& call, Burst& burst) noexcept;
  bool run(fabric::Lane& lane, ServedCall& call) noexcept;
  bool reply(fabric::Lane& lane, ServedCall& call, uint32_t invalidate) noexcept;
  void leave(ServedCall& call) noexcept;
  void adopt(ServedCall& call) noexcept;
  // `received` is when the call arrived, if its data was read since then; 0: now.
  [[gnu::cold]] void sample(ServedCall& call, uint32_t xid, uint32_t number,
                            uint64_t received = 0) noexcept;
  [[gnu::cold]] void end_sample(ServedCall& call) noexcept;

  // chunk_calls_datapath.cc
  bool may_show_chunk(__m256i a) const noexcept;
  Outcome serve_with_chunk(fabric::Lane& lane, const fabric::LaneMessage& message, __m256i a,
                           Burst& burst) noexcept;
  bool reply_to_chunk(fabric::Lane& lane, ServedCall& call) noexcept;
  bool reply_with_result(fabric::Lane& lane, ServedCall& call) noexcept;

  // The header of a call, words 0 to 7 and 8 to 15, except what differs from call to call; and that
  // of its reply, words 0 to 7 and 5 to 12.
  alignas(32) std::array<uint32_t, 8> call_a_ = {};
  alignas(32) std::array<uint32_t, 8> call_b_ = {};
  alignas(32) std::array<uint32_t, 8> reply_a_ = {};
  alignas(32) std::array<uint32_t, 8> reply_b_ = {};
  Dispatcher& dispatcher_;
  runtime::Link& link_;
  // The edition of the service table for which the templates were made.
  uint64_t edition_ = UINT64_MAX;
  const ServiceEntry* service_ = nullptr;
  Found found_;  // the procedure of the last call
  // For this burst: the longest message, and which chunks the driver moves in the lane.
  uint32_t longest_ = 0;
  bool reads_ = false;
  bool writes_ = false;
  uint32_t asked_ = 0;    // credits that each call asks for, as they are in its header
  uint32_t credits_ = 0;  // credits that the replies grant
};

}  // namespace rrdk::service
