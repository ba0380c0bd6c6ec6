// Establishes a security context (RFC 2203 section 5.2): a token from Kerberos, exchanged for one
// of the server by NULL calls, until both ends have what they need.
//
//   ask_kdc()                     may take seconds: not on a poll core
//   until is_open():
//     begin_call(), take_reply()  before and after the call
//     check_answer()              Kerberos again: not on a poll core
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "gss/initiator.h"
#include "gss/session.h"
#include "rrdk/binding.h"
#include "rrdk/call.h"
#include "rrdk/error.h"

namespace rrdk::calls {

// Each function leaves errors to be told; then it is over.
class NewContext {
 public:
  // Errors: as establish_context().
  Result<void> ask_kdc(const gss::Initiator& initiator);
  // Writes the next call. `binding` is its program.
  Result<void> begin_call(Call& call, const Binding& binding);
  // Errors: kRefused and kNotAPeer if the server says no; otherwise the call has not been answered.
  Result<void> take_reply(Call& call);
  Result<void> check_answer();
  bool is_open() const noexcept { return !session_->blank().empty(); }
  std::shared_ptr<gss::Session> take_session() noexcept { return std::move(session_); }

 private:
  std::shared_ptr<gss::Session> session_;
  gss::Token token_;  // the next one for the server
  gss::Step step_;
  uint32_t calls_ = 0;
  std::vector<std::byte> handle_;
  // From the last reply.
  bool is_last_ = false;
  uint32_t window_ = 0;
  std::vector<std::byte> answer_, verifier_;
};

}  // namespace rrdk::calls
