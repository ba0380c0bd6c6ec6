#include <cstring>
#include <utility>

#include "server/kept_reply.h"

namespace rrdk::server {

namespace {

enum class Kind : uint32_t { kStream, kItem, kEligible };

struct Run {
  uint32_t length;
  Kind kind;
};

constexpr uint32_t kCount = 4;  // bytes of an item's count

// Without the count of the item that follows, which is the last word before it.
uint32_t kept_length(std::span<const Piece> reply, size_t i) {
  bool before_item = !reply[i].item && i + 1 < reply.size() && reply[i + 1].item;
  return reply[i].bytes.length - (before_item ? kCount : 0);
}

void restore_item(const std::byte* from, uint32_t length, Encoder& out, Memory& memory) {
  if (length == 0)
    return out.put_item(MemorySpan{}, Ddp::kEligible);
  Buffer buffer = memory.get(length);
  if (buffer)
    std::memcpy(buffer.data(), from, length);
  out.put_item(std::move(buffer), length, Ddp::kEligible);
}

}  // namespace

uint64_t kept_size(std::span<const Piece> reply) noexcept {
  uint64_t size = 0;
  for (size_t i = 0; i < reply.size(); ++i)
    size += sizeof(Run) + kept_length(reply, i);
  return size;
}

void keep(std::span<const Piece> reply, std::byte* to) noexcept {
  for (size_t i = 0; i < reply.size(); ++i) {
    const Piece& piece = reply[i];
    Run run = {kept_length(reply, i), piece.eligible ? Kind::kEligible
                                      : piece.item   ? Kind::kItem
                                                     : Kind::kStream};
    std::memcpy(to, &run, sizeof run);
    if (run.length != 0)
      std::memcpy(to + sizeof run, piece.bytes.data, run.length);
    to += sizeof run + run.length;
  }
}

void restore(std::span<const std::byte> kept, Encoder& out, Memory& memory) noexcept {
  while (!kept.empty()) {
    Run run;
    std::memcpy(&run, kept.data(), sizeof run);
    std::span<const std::byte> bytes = kept.subspan(sizeof run, run.length);
    kept = kept.subspan(sizeof run + run.length);
    if (run.kind == Kind::kStream)
      out.put_fixed(bytes);
    else if (run.kind == Kind::kItem)
      out.put_opaque(bytes);
    else
      restore_item(bytes.data(), run.length, out, memory);
  }
}

}  // namespace rrdk::server
