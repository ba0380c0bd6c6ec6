// Messages of version 2, both drafts, as a hostile peer sends them.
#pragma once

#include "message.h"
#include "proto/header.h"

namespace rrdk::hostile {

using proto::Wire;

constexpr Wire k00 = Wire::kDraft00, k04 = Wire::kDraft04;
constexpr uint32_t kOptional = 5, kConnProp = 6, kReqProp = 7, kRespProp = 8, kUpdProp = 9;
constexpr uint32_t kForward = 0, kBackward = 1;  // rdma_direction: CALL, REPLY
// Draft-04's errors; draft-00 has BAD_HEADER with BAD_XDR's number, and 3 for INVAL_OPTION.
constexpr uint32_t kBadXdr = 2, kInvalProc = 3, kInvalOption00 = 3, kReadChunks = 4,
                   kWriteChunks = 5, kSegments = 6, kWriteResource = 7, kReplyResource = 8,
                   kInvalOption = 9, kSystem = 10;

// All words before the lists of a message.
inline Part start2(Wire wire, Part xid, uint32_t type, uint32_t direction, Part handle = 0) {
  return wire == k04 ? times(1, {std::move(xid), 2, kCredits, type, direction, std::move(handle)})
                     : times(1, {std::move(xid), 2, kCredits, type});
}
// A call with these lists and the data behind them.
inline Message call2(Wire wire, uint32_t xid, std::initializer_list<Part> rest,
                     uint32_t type = kMsg) {
  return {start2(wire, xid, type, kForward), times(1, rest)};
}
inline Message null_call2(Wire wire, uint32_t xid) {
  return call2(wire, xid, {0, 0, 0, call(xid, 0)});
}
inline Message echo_call2(Wire wire, uint32_t xid) {
  return call2(wire, xid, {0, 0, 0, call(xid, 1), 4, 5});
}
inline Message reply2(Wire wire, const Part& xid, std::initializer_list<Part> lists,
                      std::initializer_list<Part> results = {}) {
  return {start2(wire, xid, kMsg, kBackward), times(1, lists), success(xid), times(1, results)};
}
inline Message null_reply2(Wire wire, const Part& xid) {
  return reply2(wire, xid, {0, 0, 0});
}
inline Message echo_reply2(Wire wire, const Part& xid) {
  return reply2(wire, xid, {0, 0, 0}, {4, 5});
}
// An error, its code and arguments.
inline Message error2(Part xid, std::initializer_list<Part> words) {
  return {std::move(xid), 2, kCredits, kError, times(1, words)};
}

}  // namespace rrdk::hostile
