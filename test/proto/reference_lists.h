// What the three references share: chunk lists have the same members in all that rpcgen generates,
// though each has types of its own.
#pragma once

#include <rpc/rpc.h>

#include <algorithm>

#include "reference.h"

namespace rrdk::proto {

template <typename Message>
using XdrProc = bool_t (*)(XDR*, Message*);

inline char* xdr_bytes_of(std::span<const std::byte> bytes) {
  return const_cast<char*>(reinterpret_cast<const char*>(bytes.data()));
}

template <typename Chunk>
std::vector<Segment> segments_of(const Chunk& chunk) {
  std::vector<Segment> out;
  for (u_int i = 0; i < chunk.target.target_len; ++i) {
    const auto& s = chunk.target.target_val[i];
    out.push_back({s.handle, s.length, s.offset});
  }
  return out;
}

template <typename ReadList, typename WriteList, typename Chunk>
void take_lists(const ReadList* reads, const WriteList* writes, const Chunk* reply,
                ReferenceHeader& out) {
  for (; reads != nullptr; reads = reads->next) {
    const auto& s = reads->entry.target;
    out.reads.push_back({reads->entry.position, {s.handle, s.length, s.offset}});
  }
  for (; writes != nullptr; writes = writes->next)
    out.writes.push_back(segments_of(writes->entry));
  if (reply != nullptr)
    out.reply = segments_of(*reply);
}

template <typename Message>
std::vector<std::byte> encode_xdr(XdrProc<Message> proc, Message& message, size_t room) {
  std::vector<std::byte> out(room);
  XDR xdr;
  xdrmem_create(&xdr, xdr_bytes_of(out), static_cast<u_int>(room), XDR_ENCODE);
  out.resize(proc(&xdr, &message) ? xdr_getpos(&xdr) : 0);
  return out;
}

// Calls take(message, out) on what was decoded, unless it is refused.
template <typename Message, typename Take>
std::optional<ReferenceHeader> decode_xdr(XdrProc<Message> proc, std::span<const std::byte> message,
                                          Take&& take) {
  XDR xdr;
  xdrmem_create(&xdr, xdr_bytes_of(message), static_cast<u_int>(message.size()), XDR_DECODE);
  Message decoded = {};
  std::optional<ReferenceHeader> out;
  if (proc(&xdr, &decoded)) {
    out.emplace();
    out->length = xdr_getpos(&xdr);
    out->again = encode_xdr(proc, decoded, message.size());
    out->canonical = std::ranges::equal(out->again, message.first(out->length));
    take(decoded, *out);
  }
  xdr_free(reinterpret_cast<xdrproc_t>(proc), &decoded);
  return out;
}

// Our lists as rpcgen's: linked, and pointing into storage that this owns.
template <typename ReadList, typename WriteList, typename Chunk, typename XdrSegment>
class LinkedLists {
 public:
  explicit LinkedLists(const ChunkLists& lists) : lists_(lists) {
    for (const ReadChunk& chunk : std::span(lists.reads, lists.num_reads)) {
      for (const Segment& s : lists.of(chunk))
        reads_.push_back({{chunk.position, {s.handle, s.length, s.offset}}, nullptr});
    }
    for (const Segment& s : std::span(lists.segments, lists.num_segments))
      segments_.push_back({s.handle, s.length, s.offset});
    for (const WriteChunk& chunk : std::span(lists.writes, lists.num_writes))
      writes_.push_back({to_xdr(chunk), nullptr});
    reply_ = to_xdr(lists.reply);
    link(reads_);
    link(writes_);
  }

  void put(ReadList*& reads, WriteList*& writes, Chunk*& reply) {
    reads = reads_.empty() ? nullptr : &reads_[0];
    writes = writes_.empty() ? nullptr : &writes_[0];
    reply = lists_.has_reply ? &reply_ : nullptr;
  }

 private:
  Chunk to_xdr(const WriteChunk& chunk) { return {{chunk.count, segments_.data() + chunk.first}}; }
  template <typename List>
  static void link(std::vector<List>& entries) {
    for (size_t i = 1; i < entries.size(); ++i)
      entries[i - 1].next = &entries[i];
  }

  const ChunkLists& lists_;
  std::vector<ReadList> reads_;
  std::vector<WriteList> writes_;
  std::vector<XdrSegment> segments_;
  Chunk reply_;
};

}  // namespace rrdk::proto
