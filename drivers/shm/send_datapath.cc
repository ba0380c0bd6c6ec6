// The sending half: Sends and Writes go into our ring, from which the peer takes them; Reads copy
// directly from the peer's memory; and our remote keys.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/assert.h"
#include "base/clock.h"
#include "drivers/shm/queue_pair.h"

namespace rrdk::shm {

using fabric::Op;
using fabric::WcStatus;

namespace {

// What to find and begin one run of a list costs, in bytes copied: many short runs count against
// the budget of a pass, too.
constexpr uint64_t kRunCost = 256;

uint64_t length_of(std::span<const MemorySpan> spans) {
  uint64_t length = 0;
  for (const MemorySpan& span : spans)
    length += span.length;
  return length;
}

// 0: none.
uint32_t invalidates(const fabric::SendWr& wr) {
  return wr.op == Op::kSendInvalidate ? wr.invalidate_key : 0;
}

}  // namespace

// What the peer has consumed is read, and its cache line fetched, only if there is no space
// according to the last value.
bool QueuePair::send_now(std::span<const MemorySpan> spans, uint32_t invalidate_key) {
  if (refused_copy_ != 0 || claimed_ != Claimed::kNothing)
    return false;
  if (send_copy(spans, invalidate_key)) [[likely]]
    return true;
  return status_.load(std::memory_order_relaxed) == Status::kEstablished && read_consumed() &&
         send_copy(spans, invalidate_key);
}

bool QueuePair::bind_now(uint32_t key, const MemorySpan& span, fabric::Rights rights) {
  if (status_.load(std::memory_order_relaxed) != Status::kEstablished)
    return false;
  note_regions();
  return bind(key, span, rights);
}

inline void QueuePair::note_regions() noexcept {
  if (regions_seen_ != device_.region_generation()) [[unlikely]]
    sync_regions();
}

uint32_t QueuePair::post_send(std::span<const fabric::SendWr> wrs) {
  const Status status = status_.load(std::memory_order_acquire);
  if (status != Status::kEstablished && status != Status::kError)
    return 0;
  if (claimed_ != Claimed::kNothing) [[unlikely]]
    return 0;
  if (status == Status::kEstablished)
    note_regions();
  if (refused_copy_ != 0) [[unlikely]] {
    refused_copy_ = 0;
    open_sends();
  }
  if (!wrs.empty())
    read_put_off_ = false;
  uint32_t taken = 0;
  for (; taken < wrs.size(); ++taken) {
    const fabric::SendWr& wr = wrs[taken];
    if (wr.copied && send_copy(wr.spans(), invalidates(wr))) [[likely]]
      continue;
    if (sends_full() || (wr.copied && waits_for_copies(wr)))
      break;
    // The next pass goes on with it.
    if (wr.op == Op::kRead && cq_.known_over_budget()) [[unlikely]] {
      read_put_off_ = true;
      break;
    }
    SendRecord record{wr.wr_id,       0,           0,       wr.key, wr.op, WcStatus::kFlushed,
                      Wait::kNothing, wr.signaled, wr.quiet};
    const bool open = status_.load(std::memory_order_relaxed) == Status::kEstablished;
    if (open)
      record.status = execute(wr, record);
    const bool waits = record.wait != Wait::kNothing;
    if (wr.quiet ? waits || (open && record.status != WcStatus::kSuccess)
                 : record.status != WcStatus::kSuccess || waits || wr.signaled ||
                       send_head_ != send_tail_)
      record_send(record);
    if (open && record.status != WcStatus::kSuccess) [[unlikely]]
      fail_with(its_fault_or(end_of(record.status)));
  }
  if (sent_something_)
    tell_messages();
  return taken;
}

// Sends a message that is copied into its slot. Nothing has to wait for it, so it is not recorded.
// Its bytes are not looked up in a region, since their address is not given to the peer. Returns
// false if it must take the general path.
bool QueuePair::send_copy(std::span<const MemorySpan> spans, uint32_t invalidate_key) noexcept {
  if (half_full() || status_.load(std::memory_order_relaxed) != Status::kEstablished) [[unlikely]]
    return false;
  Slot& slot = mine_.slot(sent_);
  SlotWord word{};
  word.flags = kInline;
  uint32_t length = 0;
  for (const MemorySpan& span : spans) {
    if (span.length > Slot::kMaxInline - length)
      return send_long_copy(spans, invalidate_key);
    copy_short(slot.room + length, span.data, span.length);
    length += span.length;
  }
  if (invalidate_key != 0) {
    word.flags |= kInvalidate;
    std::memcpy(slot.room + length, &invalidate_key, sizeof invalidate_key);
  }
  word.length = static_cast<uint16_t>(length);
  publish(word);
  return true;
}

// The same for one that is too long for a slot.
bool QueuePair::send_long_copy(std::span<const MemorySpan> spans,
                               uint32_t invalidate_key) noexcept {
  const uint64_t length = length_of(spans);
  return length <= kMaxCopied && put_copy(spans, static_cast<uint32_t>(length), invalidate_key, 0);
}

// Whether such a Send has to wait for space in the copies. It is not taken before there is space:
// once it is taken, its memory must be free.
bool QueuePair::waits_for_copies(const fabric::SendWr& wr) noexcept {
  const uint64_t length = length_of(wr.spans());
  if (length <= Slot::kMaxInline || length > kMaxCopied ||
      status_.load(std::memory_order_relaxed) != Status::kEstablished)
    return false;
  refused_copy_ = static_cast<uint32_t>(length);
  if (!lacks_copies()) {
    refused_copy_ = 0;
    return false;
  }
  open_sends();
  cq_.activate(*this);  // so that it asks for a report of space before it rests
  return true;
}

// Whether what was refused would be refused again.
bool QueuePair::lacks_copies() noexcept {
  return refused_copy_ != 0 && read_consumed() && !copies_.fits(refused_copy_);
}

// Puts a message into the copies, and names it in a slot. Returns false if there is no space for
// it.
bool QueuePair::put_copy(std::span<const MemorySpan> spans, uint32_t length,
                         uint32_t invalidate_key, uint8_t flags) noexcept {
  RRDK_ASSERT(length <= kMaxCopied && length == length_of(spans), length);
  const std::optional<uint32_t> at = copies_.take(length, sent_ + 1);
  if (!at)
    return false;
  copy_spans(mine_.copies + *at, spans);
  name_copy(*at, length, invalidate_key, flags);
  return true;
}

// Sends what is in the copies.
void QueuePair::name_copy(uint32_t at, uint32_t length, uint32_t invalidate_key,
                          uint8_t flags) noexcept {
  Slot& slot = mine_.slot(sent_);
  slot.far.key = invalidate_key;
  slot.far.length = length;
  slot.far.address = at;
  SlotWord word{};
  word.flags = flags | kCopied;
  if (invalidate_key != 0)
    word.flags |= kInvalidate;
  if (!copies_.fits(kMaxCopied))
    word.flags |= kAckWanted;  // reports space to the next one that is refused
  publish(word);
  if (const std::optional<uint32_t> next = copies_.next(length)) [[likely]] {
    const std::byte* const bytes = mine_.copies + *next;
    base::prefetch_lines<base::Use::kWrite>(bytes, bytes + length);
  }
}

void QueuePair::record_send(const SendRecord& record) noexcept {
  RRDK_ASSERT(send_tail_ - send_head_ < send_limit_, send_head_, send_tail_);
  sends_[send_tail_++ & send_mask_] = record;
  cq_.activate(*this);
}

bool QueuePair::sends_full() noexcept {
  while (send_tail_ - send_head_ >= send_limit_) {
    RRDK_ASSERT(send_head_ != send_tail_);
    SendRecord& oldest = sends_[send_head_ & send_mask_];
    if (!done(oldest) || !oldest.silent())
      return true;
    ++send_head_;
  }
  return false;
}

WcStatus QueuePair::execute(const fabric::SendWr& wr, SendRecord& record) noexcept {
  RRDK_ASSERT(record.wait == Wait::kNothing && record.op == wr.op);
  switch (wr.op) {
    case Op::kSend:
    case Op::kSendInvalidate:
      return send(wr, record);
    case Op::kWrite:
      return write(wr, record);
    case Op::kRead:
      return read(wr, record);
    case Op::kBindKey:
      if (wr.num_sges == 1 && (wr.runs == 0 ? bind(wr.key, wr.sges[0], wr.rights) : bind_list(wr)))
        return WcStatus::kSuccess;
      break;
    case Op::kInvalidateKey:
      if (!keys_.kill(wr.key))
        break;
      if (peer_reads(wr.key))
        record.wait = Wait::kReader;
      return WcStatus::kSuccess;
    case Op::kReceive:
      break;
  }
  Counters::count(device_.counts().local_protection);
  return WcStatus::kLocalProtection;
}

// Returns the position of `span` in a region of ours, which the peer knows afterwards.
RegionTable::Place QueuePair::local_place(const MemorySpan& span) noexcept {
  const RegionTable::Place place = local_regions_.place_of(span);
  if (place.offset >= 0) [[likely]]
    return place;
  if (!learn_local_region(span))
    return {};
  return local_regions_.place_of(span);
}

bool QueuePair::check_local(std::span<const MemorySpan> spans, uint64_t length) noexcept {
  bool good = length <= device_.capabilities().max_message;
  for (const MemorySpan& span : spans)
    good = good && (span.length == 0 || local_place(span).offset >= 0);
  if (!good) [[unlikely]]
    Counters::count(device_.counts().local_protection);
  return good;
}

// We copy what is read, so the peer is not told of a region that it did not know.
bool QueuePair::may_read_into(std::span<const MemorySpan> spans, uint64_t length) noexcept {
  const bool good = length <= device_.capabilities().max_message &&
                    std::ranges::all_of(spans, [this](const MemorySpan& span) {
                      return span.length == 0 || local_regions_.holds(span) || device_.holds(span);
                    });
  if (!good) [[unlikely]]
    Counters::count(device_.counts().local_protection);
  return good;
}

// Names the spans to the peer. Returns false if they are not all in regions, or too many.
bool QueuePair::write_sges(Slot& slot, std::span<const MemorySpan> spans, uint64_t length,
                           SlotWord& word) noexcept {
  bool good = length <= device_.capabilities().max_message && spans.size() <= Slot::kMaxSges;
  uint8_t count = 0;
  for (size_t i = 0; good && i < spans.size(); ++i) {
    if (spans[i].length == 0)
      continue;
    const RegionTable::Place place = local_place(spans[i]);
    slot.far.sges[count++] = {static_cast<uint64_t>(place.offset), place.wire_id, spans[i].length};
    good = place.offset >= 0;
  }
  if (!good) [[unlikely]]
    Counters::count(device_.counts().local_protection);
  slot.far.length = static_cast<uint32_t>(length);
  word.num_sges = count;
  return good;
}

WcStatus QueuePair::send(const fabric::SendWr& wr, SendRecord& record) noexcept {
  const uint64_t length = length_of(wr.spans());
  // An inline Send is complete at once, unless the peer is half a ring behind: then it waits its
  // turn like the others, which limits what is in the ring.
  if (half_full() && !read_consumed())
    return WcStatus::kRemoteOperation;
  const bool in_slot = length <= Slot::kMaxInline;
  const bool copied = wr.copied && !in_slot && length <= kMaxCopied;
  const bool wait = half_full() || !(in_slot || copied);
  if (copied) {
    if (!put_copy(wr.spans(), static_cast<uint32_t>(length), invalidates(wr),
                  wait ? kAckWanted : 0))
      return WcStatus::kRemoteOperation;  // the peer took back what it had consumed
    if (wait) {
      record.wait = Wait::kConsumed;
      record.number = sent_;
    }
    return WcStatus::kSuccess;
  }

  Slot& slot = mine_.slot(sent_);
  const bool invalidates = wr.op == Op::kSendInvalidate;
  SlotWord word{};
  word.flags = static_cast<uint8_t>((in_slot ? kInline : 0) | (wait ? kAckWanted : 0) |
                                    (invalidates ? kInvalidate : 0));
  if (in_slot) {
    if (!check_local(wr.spans(), length))
      return WcStatus::kLocalProtection;
    copy_spans(slot.room, wr.spans());
    if (invalidates)
      std::memcpy(slot.room + length, &wr.invalidate_key, sizeof wr.invalidate_key);
    word.length = static_cast<uint16_t>(length);
  } else {
    slot.far.key = wr.invalidate_key;
    if (!write_sges(slot, wr.spans(), length, word))
      return WcStatus::kLocalProtection;
  }
  publish(word);
  if (wait) {
    record.wait = Wait::kConsumed;
    record.number = sent_;
  }
  return WcStatus::kSuccess;
}

// RDMA Write: the peer copies it to the place that its key denotes, before it takes what comes
// after it.
WcStatus QueuePair::write(const fabric::SendWr& wr, SendRecord& record) noexcept {
  const uint64_t length = length_of(wr.spans());
  if (length == 0)
    return WcStatus::kSuccess;
  Slot& slot = mine_.slot(sent_);
  slot.far.key = wr.key;
  slot.far.address = wr.remote_address;
  SlotWord word{};
  word.flags = kWrite | kAckWanted;
  if (!write_sges(slot, wr.spans(), length, word))
    return WcStatus::kLocalProtection;
  publish(word);
  record.wait = Wait::kConsumed;
  record.number = sent_;
  return WcStatus::kSuccess;
}

// The same for the lane, in as many slots as the spans need. There is one for the message after
// them, too. They are not recorded. Nothing is shown before all spans have been looked up.
bool QueuePair::write(std::span<const MemorySpan> spans, uint32_t key, uint64_t address) noexcept {
  constexpr size_t kMost = Slot::kMaxSges;
  if (claimed_ != Claimed::kNothing || refused_copy_ != 0 ||
      length_of(spans) > device_.capabilities().max_message ||
      status_.load(std::memory_order_acquire) != Status::kEstablished)
    return false;
  const uint64_t end = sent_ + (spans.size() + kMost - 1) / kMost + 1;
  if (end > send_end_ && (!read_consumed() || end > send_end_)) [[unlikely]]
    return false;
  note_regions();
  for (size_t i = 0; i != spans.size(); ++i) {
    const RegionTable::Place place = local_place(spans[i]);
    if (place.offset < 0 || spans[i].length == 0) [[unlikely]]
      return false;
    mine_.slot(sent_ + i / kMost).far.sges[i % kMost] = {static_cast<uint64_t>(place.offset),
                                                         place.wire_id, spans[i].length};
  }
  for (; !spans.empty(); spans = spans.subspan(std::min(spans.size(), kMost))) {
    const auto part = spans.first(std::min(spans.size(), kMost));
    const uint64_t length = length_of(part);
    Slot& slot = mine_.slot(sent_);
    slot.far.key = key;
    slot.far.length = static_cast<uint32_t>(length);
    slot.far.address = address;
    address += length;
    SlotWord word{};
    word.flags = kWrite;
    word.num_sges = static_cast<uint8_t>(part.size());
    publish(word);
  }
  written_until_ = sent_;
  return true;
}

fabric::Lane::Untaken QueuePair::untaken() noexcept {
  if (consumed_by_peer_ >= written_until_ ||
      status_.load(std::memory_order_relaxed) != Status::kEstablished)
    return {};
  if (!read_consumed()) [[unlikely]]
    fail_with(End::kProtocol);
  return {consumed_by_peer_ < written_until_, consumed_by_peer_};
}

// The peer says which message was at fault. It is checked that the Write is one of ours, and is
// after none that was overwritten. Other parts of the same Write may follow it.
const std::byte* QueuePair::behind_refused_write() const noexcept {
  if (written_until_ == 0)
    return nullptr;
  const auto reason =
      static_cast<CloseReason>(theirs_.state->closed.load(std::memory_order_acquire));
  uint64_t number = theirs_.state->closed_number.load(std::memory_order_relaxed);
  if (reason != CloseReason::kAccessRefused || number == 0 || number >= sent_ ||
      sent_ - number >= mine_.slot_mask)
    return nullptr;
  const auto flags_of = [this](uint64_t slot) {
    return mine_.slot(slot).word.load(std::memory_order_relaxed).flags;
  };
  if ((flags_of(number - 1) & kWrite) == 0)
    return nullptr;
  while (number != sent_ && (flags_of(number) & kWrite) != 0)
    ++number;
  return number != sent_ && (flags_of(number) & kInline) != 0 ? mine_.slot(number).room : nullptr;
}

void QueuePair::publish(SlotWord word) noexcept {
  RRDK_ASSERT(sent_ - consumed_by_peer_ <= mine_.slot_mask, sent_, consumed_by_peer_);
  RRDK_ASSERT(claimed_ == Claimed::kNothing, claimed_);
  Lane::publish(std::bit_cast<uint64_t>(word), word.length);
}

void QueuePair::copy_spans(std::byte* to, std::span<const MemorySpan> spans) noexcept {
  for (const MemorySpan& span : spans) {
    copy_short(to, span.data, span.length);
    to += span.length;
  }
}

// Wakes a peer that rests. A peer that begins to rest at this moment may have looked before it
// could see our messages, and we before we could see that it rests: make_sure_told() detects that
// later. A fence here would wait for the messages' cache lines, a tenth of a round trip.
void QueuePair::tell_messages() noexcept {
  sent_something_ = false;
  unsure_ = true;
  if (!active || peer_wants_messages()) [[unlikely]]
    make_sure_told();
}

// After this the peer has the messages, or knows that it must look for them. Called in the first
// poll that finds nothing, or when we rest ourselves, whichever comes first.
void QueuePair::make_sure_told() noexcept {
  unsure_ = false;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (peer_wants_messages()) [[unlikely]] {
    Counters::count(device_.counts().doorbells);
    ring(bell_);
  }
}

bool QueuePair::bind(uint32_t key, const MemorySpan& span, fabric::Rights rights) noexcept {
  const RegionTable::Place place = local_place(span);
  return place.offset >= 0 && keys_.bind(key, span, place, rights);
}

// The list becomes one of places that the peer can find.
bool QueuePair::bind_list(const fabric::SendWr& wr) noexcept {
  const MemorySpan& list = wr.sges[0];
  const RegionTable::Place at = local_place(list);
  if (at.offset < 0 || wr.rights != fabric::Rights::kRemoteRead || wr.runs > fabric::kMaxKeyRuns ||
      list.length != wr.runs * sizeof(MemorySpan))
    return false;
  static_assert(sizeof(RemoteSge) == sizeof(MemorySpan));
  uint64_t length = 0;
  for (uint32_t i = 0; i != wr.runs; ++i) {
    std::byte* const entry = list.data + i * sizeof(MemorySpan);
    MemorySpan run;
    std::memcpy(&run, entry, sizeof run);
    const RegionTable::Place place = local_place(run);
    if (place.offset < 0)
      return false;
    const RemoteSge shown{static_cast<uint64_t>(place.offset), place.wire_id, run.length};
    std::memcpy(entry, &shown, sizeof shown);
    length += run.length;
  }
  return length <= UINT32_MAX &&
         keys_.bind(wr.key, {list.data, static_cast<uint32_t>(length), list.region}, at, wr.rights,
                    wr.runs);
}

// RDMA Read.
WcStatus QueuePair::read(const fabric::SendWr& wr, SendRecord& record) noexcept {
  const uint64_t length = length_of(wr.spans());
  if (!may_read_into(wr.spans(), length))
    return WcStatus::kLocalProtection;
  record.length = static_cast<uint32_t>(length);
  if (length == 0)
    return WcStatus::kSuccess;
  Counters::Count* const refusal = copy_remote(wr.key, wr.remote_address, wr.spans());
  if (refusal == nullptr) [[likely]]
    return WcStatus::kSuccess;
  Counters::count(*refusal);
  // A peer that closes says so before it invalidates its keys: invalid keys are then due to its
  // end, not to its mistake.
  return peer_closed() ? WcStatus::kPeerLost : WcStatus::kRemoteAccess;
}

// As for a Send that is copied, `to` is not looked up in a region, since its address is not given
// to the peer.
bool QueuePair::read_now(const MemorySpan& to, uint32_t key, uint64_t remote_address) {
  if (cq_.known_over_budget()) [[unlikely]] {
    over_budget_bytes_ += to.length;  // many small pieces take as long as a large one
    if (over_budget_bytes_ >= kLargeCopy)
      return false;
  } else {
    over_budget_bytes_ = 0;
  }
  return status_.load(std::memory_order_relaxed) == Status::kEstablished &&
         copy_remote(key, remote_address, {&to, 1}) == nullptr;
}

// Copies what the key names. The peer sees by which key we read while we check it and copy. Returns
// null if it is done; otherwise the counter of the refusal, which the caller may count.
Counters::Count* QueuePair::copy_remote(uint32_t key, uint64_t address,
                                        std::span<const MemorySpan> spans) noexcept {
  RRDK_ASSERT(mine_.state->reading.load(std::memory_order_relaxed) == 0);
  const uint64_t length = length_of(spans);
  uint64_t work = length;
  if (length >= kLargeCopy)
    cq_.begin_slow_work();
  mine_.state->reading.store(key, std::memory_order_seq_cst);
  Remote remote;
  Counters::Count* refusal = find_remote(key, address, length, remote);
  if (refusal == nullptr && remote.runs != 0) [[unlikely]] {
    cq_.begin_slow_work();
    work += remote.runs * kRunCost;
    refusal = copy_runs(remote, length, spans);
  } else if (refusal == nullptr) [[likely]] {
    copy_run(remote.bytes, spans);
  }
  (void)cq_.copied(work);
  mine_.state->reading.store(0, std::memory_order_release);
  return refusal;
}

void QueuePair::copy_run(const std::byte* from, std::span<const MemorySpan> spans) noexcept {
  for (const MemorySpan& span : spans) {
    if (span.length == 0)
      continue;
    std::memcpy(span.data, from, span.length);
    from += span.length;
  }
}

// Copies what a list of the peer's names. The peer may be changing the list meanwhile, and to look
// up a run may show that the region of the list itself has gone: so the list is copied first, and
// only the copy is checked and used.
Counters::Count* QueuePair::copy_runs(const Remote& remote, uint64_t length,
                                      std::span<const MemorySpan> spans) noexcept {
  Counters& counts = device_.counts();
  std::array<RemoteSge, fabric::kMaxKeyRuns> list;
  std::memcpy(list.data(), remote.bytes, remote.runs * sizeof list[0]);
  uint64_t skip = remote.skip;
  size_t to = 0;
  uint32_t done = 0;  // of spans[to]
  for (uint32_t i = 0; i != remote.runs && length != 0; ++i) {
    const RemoteSge& run = list[i];
    if (skip >= run.length) {
      skip -= run.length;
      continue;
    }
    uint64_t left = std::min<uint64_t>(run.length - skip, length);
    uint64_t offset = 0;
    const std::byte* from = __builtin_add_overflow(run.offset, skip, &offset)
                                ? nullptr
                                : peer_bytes(run.region, offset, left, Naming::kRead);
    if (from == nullptr) [[unlikely]]
      return no_place_.load(std::memory_order_relaxed) ? &counts.no_descriptors : &counts.bad_keys;
    if (i + 1 != remote.runs)
      expect_run(list[i + 1]);
    skip = 0;
    length -= left;
    while (left != 0) {
      const MemorySpan& span = spans[to];
      const auto part = static_cast<uint32_t>(std::min<uint64_t>(left, span.length - done));
      copy_page(span.data + done, from, part);
      from += part;
      left -= part;
      done += part;
      if (done == span.length) {
        ++to;
        done = 0;
      }
    }
  }
  return length == 0 ? nullptr : &counts.bad_keys;  // the list is shorter than the key
}

// Finds the peer's bytes that a key names; returns the same.
Counters::Count* QueuePair::find_remote(uint32_t key, uint64_t address, uint64_t length,
                                        Remote& remote) noexcept {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  Counters& counts = device_.counts();
  const KeyEntry& entry = theirs_.keys[key & theirs_.key_mask];
  if (key == 0 || entry.key.load(std::memory_order_seq_cst) != key)
    return &counts.refused_keys;
  if (entry.rights.load(kRelaxed) != static_cast<uint32_t>(fabric::Rights::kRemoteRead))
    return &counts.refused_rights;
  const uint64_t window = entry.length.load(kRelaxed);
  const uint64_t skip = address - entry.address.load(kRelaxed);  // huge if the address is before it
  if (skip > window || length > window - skip)
    return &counts.refused_bounds;
  uint64_t offset = entry.offset.load(kRelaxed);
  remote.runs = entry.runs.load(kRelaxed);
  if (remote.runs != 0) [[unlikely]] {
    if (remote.runs > fabric::kMaxKeyRuns || offset % alignof(RemoteSge) != 0)
      return &counts.bad_keys;
    remote.skip = skip;
    length = remote.runs * sizeof(RemoteSge);
  } else if (__builtin_add_overflow(offset, skip, &offset)) {
    return &counts.bad_keys;
  }
  remote.bytes = peer_bytes(entry.region.load(kRelaxed), offset, length, Naming::kRead);
  if (remote.bytes != nullptr) [[likely]]
    return nullptr;
  return no_place_.load(kRelaxed) ? &counts.no_descriptors : &counts.bad_keys;
}

// Reads how many of our messages the peer has consumed. Returns false if no honest peer would say
// that.
bool QueuePair::read_consumed() noexcept {
  RRDK_ASSERT(consumed_by_peer_ <= sent_, consumed_by_peer_, sent_);
  const uint64_t consumed = theirs_.state->consumed.load(std::memory_order_acquire);
  if (consumed < consumed_by_peer_ || consumed > sent_) [[unlikely]] {
    Counters::count(device_.counts().bad_consumed);
    return false;
  }
  consumed_by_peer_ = consumed;
  open_sends();
  copies_.consumed(consumed);
  return true;
}

// Limits the wait for a peer that does not release a key to what an honest one can take. Returns
// true if the time is over, and the connection with it.
bool QueuePair::overdue(SendRecord& record) noexcept {
  RRDK_ASSERT(record.wait == Wait::kReader && record.key != 0, record.wait);
  constexpr uint64_t kTimeoutNs = std::chrono::nanoseconds(kAccessTimeout).count();
  const uint64_t now = base::Tsc::now_ns();
  if (record.number == 0)
    record.number = now + kTimeoutNs;
  if (now < record.number)
    return false;
  Counters::count(device_.counts().stuck_readers);
  fail_with(End::kProtocol);
  return true;
}

bool QueuePair::done(SendRecord& record) noexcept {
  switch (record.wait) {
    case Wait::kNothing:
      return true;
    case Wait::kConsumed:
      if (consumed_by_peer_ < record.number && !read_consumed())
        fail_with(End::kProtocol);
      else if (consumed_by_peer_ < record.number)
        return false;
      break;
    case Wait::kReader:
      if (peer_reads(record.key) && !overdue(record))
        return false;
      break;
  }
  record.wait = Wait::kNothing;
  return true;
}

uint32_t QueuePair::reap_sends(std::span<fabric::Completion> out) noexcept {
  uint32_t n = 0;
  for (; send_head_ != send_tail_ && n < out.size(); ++send_head_) {
    SendRecord& record = sends_[send_head_ & send_mask_];
    if (!done(record))
      break;
    if (record.silent())
      continue;
    out[n++] = {.wr_id = record.wr_id,
                .owner = owner_,
                .op = record.op,
                .status = record.status,
                .has_invalidated = false,
                .byte_length = record.length,
                .invalidated_key = 0};
  }
  return n;
}

bool QueuePair::reserve_keys(std::span<uint32_t> keys) {
  return keys_.reserve(keys);
}

void QueuePair::release_key(uint32_t key) {
  keys_.release(key);
}

void QueuePair::expect_read(uint32_t key) {
  if (status_.load(std::memory_order_relaxed) == Status::kEstablished)
    __builtin_prefetch(&theirs_.keys[key & theirs_.key_mask]);
}

}  // namespace rrdk::shm
