#include "traffic.h"

#include <algorithm>
#include <cstring>

namespace rrdk::sim {

namespace {

constexpr uint32_t kGuard = 16;
constexpr std::byte kGuardByte{0xc3};
constexpr uint32_t kTail = 64;  // bytes behind a result that are checked
constexpr std::byte kUntouched{0x5a};
constexpr uint32_t kMaxItem = 200 * 1024;
constexpr uint32_t kRooms = 4;
constexpr uint32_t kSmallItem = 200;  // for backward calls, of which the smallest threshold holds 4

// Random bytes, of which each item is a part: filling and comparing are as fast as possible.
const std::vector<std::byte>& noise() {
  static const std::vector<std::byte> bytes = [] {
    std::vector<std::byte> made(kMaxItem + 65536 + 8);
    Random random(1);
    for (size_t i = 0; i + 8 <= made.size(); i += 8) {
      uint64_t word = random.next();
      std::memcpy(&made[i], &word, 8);
    }
    return made;
  }();
  return bytes;
}

const std::byte* pattern(uint32_t serial, uint32_t type, size_t item) {
  uint32_t hash = (serial * 64 + type * 32 + static_cast<uint32_t>(item)) * 2654435761u;
  return noise().data() + (hash >> 16);
}

uint64_t stream_length(const std::vector<Item>& items) {
  uint64_t length = 12;
  for (const Item& item : items)
    length += 4 + item.length + xdr_pad(item.length);
  return length;
}

bool is_large(const std::vector<Item>& items) {
  return std::any_of(items.begin(), items.end(),
                     [](const Item& item) { return item.length > kSmallItem; });
}

bool all_are(const std::byte* from, size_t length, std::byte value) {
  return std::all_of(from, from + length, [value](std::byte b) { return b == value; });
}

}  // namespace

uint32_t Call::xid() const {
  return first_word == nullptr ? 0 : xdr::load_u32(first_word);
}

uint32_t Traffic::length() {
  constexpr uint32_t kEdges[] = {0,    1,    2,     3,     4,      5,       1000,
                                 1024, 4096, 16384, 65535, 131072, kMaxItem};
  Random& random = context_.random;
  uint32_t n = 0;
  if (random.one_in(4))
    n = kEdges[random.below(13)];
  else
    n = random.below(random.one_in(10) ? kMaxItem + 1 : 2000);
  return std::min(n, largest_);
}

// Mostly of the size of backward calls' messages: they fit any threshold.
void Traffic::make_small(Shape& shape) {
  shape.force_long = false;
  if (context_.random.one_in(10))
    return;
  for (std::vector<Item>* list : {&shape.arguments, &shape.results}) {
    for (Item& item : *list)
      item.length = std::min(item.length, kSmallItem);
  }
}

std::vector<Item> Traffic::items() {
  Random& random = context_.random;
  std::vector<Item> list(random.one_in(3) ? 0 : random.below(5));
  for (Item& item : list)
    item = {length(), random.one_in(2), random.one_in(2)};
  return list;
}

Shape& Traffic::draw(engine::Role caller) {
  Random& random = context_.random;
  Shape& shape = shapes_.emplace_back();
  shape.serial = static_cast<uint32_t>(shapes_.size() - 1);
  shape.arguments = items();
  shape.results = items();
  shape.force_long = random.one_in(20);
  shape.refused = random.one_in(40);
  shape.dropped = random.one_in(300);
  shape.small_room = random.one_in(30);
  shape.small_reply = random.one_in(30);
  shape.backward = caller == engine::Role::kResponder;
  if (shape.backward)
    make_small(shape);
  return shape;
}

Shape& Traffic::repeat(const Shape& shape) {
  Shape copy = shape;
  copy.serial = static_cast<uint32_t>(shapes_.size());
  copy.dropped = false;
  return shapes_.emplace_back(std::move(copy));
}

Shape* Traffic::find(uint32_t serial) {
  return serial < shapes_.size() ? &shapes_[serial] : nullptr;
}

bool Traffic::prepare(Call& call, const Shape& shape) {
  Random& random = context_.random;
  call.serial = shape.serial;
  call.cancelled = call.again = false;
  call.out.deadline_ns = 0;
  call.out.resend = false;
  call.out.force_long = shape.force_long;
  uint64_t reply = stream_length(shape.results);
  if (!offer(call, shape, reply))
    return false;
  call.lends = !call.room.empty() && random.one_in(2);
  call.out.results = call.results;
  call.out.max_reply = reply + (random.one_in(2) ? 4 * random.below(200) : 0);
  if (shape.small_reply)
    call.out.max_reply = 4 * (1 + random.below(static_cast<uint32_t>(reply / 4)));
  return write(call.out.message, 0, shape, shape.arguments, 1024);
}

// One Write chunk for each eligible result, up to some number; subtracts from `reply` what goes
// there.
bool Traffic::offer(Call& call, const Shape& shape, uint64_t& reply) {
  Random& random = context_.random;
  call.room.clear();
  call.spans.clear();
  call.results.clear();
  bool small = shape.small_room;
  for (const Item& item : shape.results) {
    if (!item.eligible)
      continue;
    if (call.spans.size() == kRooms || random.one_in(5))
      break;
    std::vector<MemorySpan>& spans = call.spans.emplace_back();
    if (random.one_in(10))
      continue;  // a chunk of no segments takes its turn
    uint32_t bytes = item.length + (random.one_in(2) ? random.below(60) : 0);
    if (small && item.length > 1) {
      bytes = item.length - 1;
      small = false;
    }
    if (!add_room(spans, call, bytes, random.between(1, 6)))
      return false;
    if (!spans.empty())
      reply -= item.length + xdr_pad(item.length);
  }
  for (const std::vector<MemorySpan>& spans : call.spans)
    call.results.push_back({spans});
  return true;
}

bool Traffic::add_room(std::vector<MemorySpan>& spans, Call& call, uint32_t bytes,
                       uint32_t segments) {
  Random& random = context_.random;
  while (bytes != 0) {
    uint32_t length = spans.size() + 1 >= segments ? bytes : random.between(1, bytes);
    Guarded& made = call.room.emplace_back();
    made.buffer = memory_.get(length + 2 * kGuard + 8);
    if (!made.buffer)
      return false;
    uint32_t start = kGuard + random.below(9);
    std::byte* data = made.buffer.data();
    made.span = {data + start, length, made.buffer.region()};
    std::memset(data + start - kGuard, static_cast<int>(kGuardByte), kGuard);
    std::memset(data + start + length, static_cast<int>(kGuardByte), kGuard);
    uint32_t tail = std::min(length, kTail + 60);
    std::memset(data + start + length - tail, static_cast<int>(kUntouched), tail);
    spans.push_back(made.span);
    bytes -= length;
  }
  return true;
}

bool Traffic::write(Message& message, uint32_t type, const Shape& shape,
                    const std::vector<Item>& items, uint32_t first_size) {
  Encoder e(message, memory_, std::max(first_size, 64u), 8u << 20);
  e.put_u32(0);
  e.put_u32(type);
  e.put_u32(shape.serial);
  for (size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    const std::byte* bytes = pattern(shape.serial, type, i);
    if (!item.eligible && !item.reference) {
      e.put_opaque({bytes, item.length});
      continue;
    }
    Buffer buffer = memory_.get(std::max(item.length, 1u));
    if (!buffer)
      return false;
    std::memcpy(buffer.data(), bytes, item.length);
    e.put_item(std::move(buffer), item.length, item.eligible ? Ddp::kEligible : Ddp::kNo);
  }
  e.finish();
  return e.ok();
}

// Whether the items have the expected shape and data, with nothing behind them.
bool Traffic::read(Decoder& from, const Shape& shape, const std::vector<Item>& items,
                   uint32_t type) {
  for (size_t i = 0; i < items.size(); ++i) {
    ItemView view = items[i].eligible ? from.get_item(kMaxItem) : from.get_opaque(kMaxItem);
    if (!from.ok() || view.size() != items[i].length)
      return false;
    const std::byte* bytes = pattern(shape.serial, type, i);
    bool same = true;
    view.for_each([&](const std::byte* data, size_t length) {
      same = same && std::memcmp(data, bytes, length) == 0;
      bytes += length;
    });
    if (!same)
      return false;
  }
  return from.at_end();
}

Shape* Traffic::check_arguments(const engine::ServedCall& call, const std::string& who) {
  Decoder from(call.message);
  uint32_t xid = from.get_u32();
  uint32_t type = from.get_u32();
  Shape* shape = find(from.get_u32());
  if (!from.ok() || xid != call.xid || type != 0 || shape == nullptr) {
    context_.fail(who, "xid %08x: the call's first words are wrong", call.xid);
    return nullptr;
  }
  if (!read(from, *shape, shape->arguments, 0))
    context_.fail(who, "xid %08x: the arguments of call %u are wrong", xid, shape->serial);
  return shape;
}

bool Traffic::write_reply(engine::ServedCall& call, const Shape& shape) {
  if (!write(call.reply, 1, shape, shape.results, call.inline_size()))
    return false;
  xdr::store_u32(call.reply.pieces()[0].bytes.data, call.xid);
  return true;
}

void Traffic::check_outcome(const Call& call, const std::string& who, const Allowance& allowance) {
  const Shape& shape = *find(call.serial);
  CallStatus status = call.out.status;
  bool allowed = false;
  switch (status) {
    case CallStatus::kOk:
      allowed = !shape.refused && !shape.dropped;
      check_data(call, shape, who);
      break;
    case CallStatus::kChunkError:
      allowed = shape.refused || shape.small_room || shape.small_reply || shape.not_run ||
                shape.not_kept || allowance.refused || (shape.backward && is_large(shape.results));
      break;
    case CallStatus::kRemoteError:  // version 2: no buffers in time, or a refusal without a code
      allowed = allowance.refused || shape.refused || shape.not_run || shape.not_kept;
      break;
    case CallStatus::kTimeout:
      allowed = call.out.deadline_ns != 0 && call.out.deadline_ns <= context_.schedule.now();
      break;
    case CallStatus::kCancelled:
      allowed = call.cancelled;
      break;
    case CallStatus::kConnectionLost:
      allowed = allowance.lost;
      break;
    case CallStatus::kNoMemory:
      allowed = allowance.unsendable;
      break;
    case CallStatus::kTooLarge:
      allowed = shape.backward && is_large(shape.arguments);
      break;
    default:
      break;
  }
  if (!allowed)
    context_.fail(who, "xid %08x: call %u ends with \"%s\", which it must not", call.xid(),
                  call.serial, to_string(status));
  check_guards(call.room, call.xid(), call.serial, who);
}

void Traffic::check_data(const Call& call, const Shape& shape, const std::string& who) {
  Decoder from(call.out.reply, call.out.placed);
  uint32_t xid = from.get_u32();
  uint32_t type = from.get_u32();
  uint32_t serial = from.get_u32();
  if (xid != call.xid() || type != 1 || serial != call.serial) {
    context_.fail(who, "xid %08x: call %u got the reply to xid %08x, call %u", call.xid(),
                  call.serial, xid, serial);
    return;
  }
  if (!read(from, shape, shape.results, 1)) {
    context_.fail(who, "xid %08x: the results of call %u are wrong", xid, serial);
    return;
  }
  // Nothing behind a result was written, XDR pad included (V1-PAD-15).
  size_t k = 0;
  for (const Item& item : shape.results) {
    if (!item.eligible || k == call.spans.size())
      continue;
    uint64_t skip = item.length;
    for (const MemorySpan& span : call.spans[k++]) {
      uint64_t used = std::min<uint64_t>(skip, span.length);
      skip -= used;
      uint64_t rest = std::min<uint64_t>(span.length - used, kTail);
      if (!all_are(span.data + used, rest, kUntouched))
        context_.fail(who, "xid %08x: bytes behind result %zu were written", xid, k - 1);
    }
  }
}

void Traffic::check_guards(std::span<const Guarded> rooms, uint32_t xid, uint32_t serial,
                           const std::string& who) {
  for (const Guarded& room : rooms) {
    if (!all_are(room.span.data - kGuard, kGuard, kGuardByte) ||
        !all_are(room.span.data + room.span.length, kGuard, kGuardByte))
      context_.fail(who, "xid %08x: memory around what call %u offered was written", xid, serial);
  }
}

}  // namespace rrdk::sim
