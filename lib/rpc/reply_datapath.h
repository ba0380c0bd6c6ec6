// The header of an RPC reply (RFC 5531 section 9): everything before the results.
#pragma once

#include <cstdint>

#include "rpc/call_datapath.h"
#include "rrdk/call_status.h"
#include "rrdk/rpc.h"
#include "rrdk/xdr.h"

namespace rrdk::rpc {

// Which fields mean something follows from the three statuses, as on the wire.
struct ReplyHeader {
  uint32_t xid = 0;
  ReplyStat reply_stat = ReplyStat::kAccepted;
  AcceptStat accept_stat = AcceptStat::kSuccess;      // accepted
  Credential verifier;                                // accepted
  RejectStat reject_stat = RejectStat::kRpcMismatch;  // denied
  AuthStat auth_stat = AuthStat::kOk;                 // denied, AUTH_ERROR
  uint32_t mismatch_low = 0;                          // PROG_MISMATCH or RPC_MISMATCH
  uint32_t mismatch_high = 0;
};

// From the message's first byte; with SUCCESS the decoder then stands at the results. False when it
// is no reply or not a whole one, or has a status that RFC 5531 does not define. An unknown
// auth_stat is taken as it is: security flavours add their own.
bool decode_reply(Decoder& in, ReplyHeader& header) noexcept;

// What a well-formed reply means to the caller.
CallStatus call_status(const ReplyHeader& header) noexcept;

// Each writes a whole reply header, with an AUTH_NONE verifier where there is one.
void encode_success(Encoder& out, uint32_t xid) noexcept;  // the results follow
// Any accept_stat; `low` and `high` are written with PROG_MISMATCH only.
void encode_accepted(Encoder& out, uint32_t xid, AcceptStat status, uint32_t low = 0,
                     uint32_t high = 0) noexcept;
void encode_rpc_mismatch(Encoder& out, uint32_t xid) noexcept;
void encode_auth_error(Encoder& out, uint32_t xid, AuthStat reason) noexcept;

// The answer to a call whose header was refused. False, and nothing is written, when it can not be
// answered (kNotACall) or was not refused.
bool encode_refusal(Encoder& out, uint32_t xid, CallVerdict verdict) noexcept;

}  // namespace rrdk::rpc
