#include "drivers/verbs/shared_receive_queue.h"

#include <cerrno>
#include <cstring>
#include <numeric>
#include <string>

namespace rrdk::verbs {

Result<std::unique_ptr<SharedReceiveQueue>> SharedReceiveQueue::create(ibv_pd* pd,
                                                                       const Regions& regions,
                                                                       uint32_t entries) {
  ibv_srq_init_attr init{};
  init.attr.max_wr = entries;
  init.attr.max_sge = 1;
  ibv_srq* srq = ibv_create_srq(pd, &init);
  if (srq == nullptr)
    return fail(errno == ENOMEM ? Errc::kNoMemory : Errc::kSystem,
                "a shared receive queue of " + std::to_string(entries) +
                    " entries could not be made: " + std::strerror(errno));
  return std::unique_ptr<SharedReceiveQueue>(new SharedReceiveQueue(srq, regions, entries));
}

SharedReceiveQueue::SharedReceiveQueue(ibv_srq* srq, const Regions& regions, uint32_t entries)
    : srq_(srq),
      regions_(regions),
      wr_ids_(entries),
      free_(entries),
      num_free_(entries),
      uncounted_(entries) {
  std::iota(free_.begin(), free_.end(), 0u);
}

SharedReceiveQueue::~SharedReceiveQueue() {
  ibv_destroy_srq(srq_);
}

}  // namespace rrdk::verbs
