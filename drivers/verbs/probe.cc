#include "drivers/verbs/probe.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>

namespace rrdk::verbs {

namespace {

constexpr int kEntries = 16;

template <typename T>
using Owner = std::unique_ptr<T, int (*)(T*)>;

tl::unexpected<Error> probe_error(const std::string& device, const char* call, int error) {
  return fail(error == ENOMEM ? Errc::kNoMemory : Errc::kSystem,
              device + ": " + call + ": " + std::strerror(error));
}

// Returns null, with errno, if no queue pair with these sizes is possible.
Owner<ibv_qp> make_queue_pair(ibv_pd* pd, ibv_cq* cq, const ibv_qp_cap& cap) {
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = cap;
  return {ibv_create_qp(pd, &init), ibv_destroy_qp};
}

// Through INIT: InfiniBand and RoCE have no transition from RESET (InfiniBand's specification,
// section 10.3.1). Devices that need no INIT may refuse it.
bool move_to_error(ibv_qp* qp) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  attr.qp_state = IBV_QPS_ERR;
  return ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0;
}

bool takes(ibv_qp* qp, ibv_send_wr& wr) {
  ibv_send_wr* bad = nullptr;
  wr.send_flags = IBV_SEND_SIGNALED;
  return ibv_post_send(qp, &wr, &bad) == 0;
}

}  // namespace

Requests probe_requests(ibv_qp* qp, ibv_mr* mr) {
  Requests found;
  ibv_send_wr send{};
  send.opcode = IBV_WR_SEND_WITH_INV;
  found.sends_invalidations = takes(qp, send);
  if (mr == nullptr)
    return found;
  ibv_mw* mw = ibv_alloc_mw(qp->pd, IBV_MW_TYPE_2);
  if (mw == nullptr)
    return found;
  ibv_send_wr bind{};
  bind.opcode = IBV_WR_BIND_MW;
  bind.bind_mw.mw = mw;
  bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  bind.bind_mw.bind_info = {.mr = mr,
                            .addr = reinterpret_cast<uintptr_t>(mr->addr),
                            .length = mr->length,
                            .mw_access_flags = IBV_ACCESS_REMOTE_READ};
  ibv_send_wr invalidate{};
  invalidate.opcode = IBV_WR_LOCAL_INV;
  invalidate.invalidate_rkey = bind.bind_mw.rkey;
  found.windows = takes(qp, bind) && takes(qp, invalidate);
  ibv_dealloc_mw(mw);
  return found;
}

Result<Abilities> probe(ibv_pd* pd, const std::string& device, uint32_t sges) {
  Abilities found;
  const Owner<ibv_cq> cq(ibv_create_cq(pd->context, kEntries, nullptr, nullptr, 0), ibv_destroy_cq);
  if (!cq)
    return probe_error(device, "ibv_create_cq", errno);
  found.resizes_completion_queues =
      ibv_resize_cq(cq.get(), 4 * kEntries) == 0 && cq->cqe >= 4 * kEntries;
  alignas(64) std::array<std::byte, 64> memory{};
  const Owner<ibv_mr> mr(ibv_reg_mr(pd, memory.data(), memory.size(),
                                    unsigned{IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND}),
                         ibv_dereg_mr);
  for (const uint32_t inline_size : {256u, 128u, 64u, 0u}) {
    found.caps = {.max_send_wr = kEntries,
                  .max_recv_wr = kEntries,
                  .max_send_sge = sges,
                  .max_recv_sge = 1,
                  .max_inline_data = inline_size};
    const Owner<ibv_qp> qp = make_queue_pair(pd, cq.get(), found.caps);
    if (!qp)
      continue;
    if (move_to_error(qp.get()))
      found.requests = probe_requests(qp.get(), mr.get());
    return found;
  }
  return probe_error(device, "ibv_create_qp", errno);
}

}  // namespace rrdk::verbs
