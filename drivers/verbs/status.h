// What the fabric interface calls the outcomes of verbs.
#pragma once

#include <infiniband/verbs.h>

#include "fabric/work.h"

namespace rrdk::verbs {

constexpr fabric::WcStatus status_of(ibv_wc_status status) noexcept {
  using fabric::WcStatus;
  switch (status) {
    case IBV_WC_SUCCESS:
      return WcStatus::kSuccess;
    case IBV_WC_WR_FLUSH_ERR:
      return WcStatus::kFlushed;
    case IBV_WC_LOC_LEN_ERR:
      return WcStatus::kLocalLength;
    case IBV_WC_LOC_QP_OP_ERR:
    case IBV_WC_LOC_EEC_OP_ERR:
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
    case IBV_WC_MW_BIND_ERR:
      return WcStatus::kLocalProtection;
    case IBV_WC_REM_INV_REQ_ERR:
      return WcStatus::kRemoteInvalid;
    case IBV_WC_REM_ACCESS_ERR:
      return WcStatus::kRemoteAccess;
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_BAD_RESP_ERR:
      return WcStatus::kRemoteOperation;
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return WcStatus::kRnrExceeded;
    default:  // retries exceeded, aborted, fatal
      return WcStatus::kPeerLost;
  }
}

// Of a request of ours that no device should have looked at further than its memory.
constexpr fabric::WcStatus status_of_refused(ibv_wc_status status) noexcept {
  return status == IBV_WC_WR_FLUSH_ERR ? fabric::WcStatus::kFlushed
                                       : fabric::WcStatus::kLocalProtection;
}

}  // namespace rrdk::verbs
