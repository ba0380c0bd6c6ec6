// Calls from C, from begin to the completion; they are made in clients.cc.
#include "c/handles.h"

using namespace rrdk;
using c::of;

bool rrdk_caller_alive(const rrdk_caller* caller) {
  return of(caller).alive();
}

uint32_t rrdk_caller_core(const rrdk_caller* caller) {
  return of(caller).core();
}

rrdk_encoder* rrdk_call_begin(rrdk_call* call, const rrdk_program* program, uint32_t procedure) {
  return c::handle_of(&call->call.begin(*program, procedure));
}

void rrdk_call_offer(rrdk_call* call, const rrdk_span* segments, size_t num_segments) {
  call->call.offer({reinterpret_cast<const MemorySpan*>(segments), num_segments});
}

void rrdk_call_offer_buffer(rrdk_call* call, rrdk_buffer* buffer, uint32_t length) {
  call->call.offer(buffer != nullptr ? Buffer(&of(buffer)) : Buffer(), length);
}

void rrdk_call_expect_reply(rrdk_call* call, uint64_t bytes) {
  call->call.expect_reply(bytes);
}

void rrdk_call_forbid_ddp(rrdk_call* call, uint32_t growth) {
  call->call.forbid_ddp(growth);
}

void rrdk_call_set_timeout_ms(rrdk_call* call, uint32_t timeout) {
  call->call.set_timeout_ms(timeout);
}

void rrdk_call_set_retransmit(rrdk_call* call, bool retransmit) {
  call->call.set_retransmit(retransmit);
}

void rrdk_call_on_released(rrdk_call* call, void (*released)(void* argument), void* argument) {
  call->call.on_released(released, argument);
}

bool rrdk_call_submit(rrdk_call* call, rrdk_completion completion, void* argument) {
  if (completion == nullptr)
    return call->call.submit(nullptr, nullptr);
  const uint32_t before = call->current;
  call->current = 1 - before;
  rrdk_call::Told& told = call->told[call->current];
  told.completion = completion;
  told.argument = argument;
  const bool accepted = call->call.submit(
      [](Call&, void* place) {
        const rrdk_call::Told ended = *static_cast<rrdk_call::Told*>(place);
        ended.completion(ended.call, ended.argument);
      },
      &told);
  if (!accepted)
    call->current = before;
  return accepted;
}

void rrdk_call_cancel(rrdk_call* call) {
  call->call.cancel();
}

void rrdk_call_abandon(rrdk_call* call) {
  call->call.abandon();
}

bool rrdk_call_in_flight(const rrdk_call* call) {
  return call->call.in_flight();
}

rrdk_call_status rrdk_call_status_of(const rrdk_call* call) {
  return static_cast<rrdk_call_status>(call->call.status());
}

rrdk_decoder* rrdk_call_results(rrdk_call* call) {
  return c::handle_of(&call->call.results());
}

rrdk_buffer* rrdk_call_take_offered(rrdk_call* call, uint32_t k) {
  return c::handle_of(call->call.take_offered(k).release());
}

uint32_t rrdk_call_mismatch_low(const rrdk_call* call) {
  return call->call.mismatch_low();
}

uint32_t rrdk_call_mismatch_high(const rrdk_call* call) {
  return call->call.mismatch_high();
}

uint32_t rrdk_call_auth_stat(const rrdk_call* call) {
  return static_cast<uint32_t>(call->call.auth_stat());
}

bool rrdk_call_transport_error(const rrdk_call* call, rrdk_transport_error* error) {
  const TransportError e = call->call.transport_error();
  return c::copy_out({.size = sizeof *error,
                      .version = e.version,
                      .code = e.code,
                      .low = e.low,
                      .high = e.high,
                      .maximum = e.maximum,
                      .write_chunk = e.write_chunk,
                      .length = e.length},
                     error);
}
