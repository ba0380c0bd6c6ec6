#include "xprt/rfc5666_reader.h"

#include <algorithm>

namespace rrdk::xprt {

namespace {

constexpr uint32_t kDoneBytes = proto::kFixedBytes;
// Readings beyond those of calls: of calls that were given up on.
constexpr uint32_t kSpareReadings = 16;
constexpr uint32_t kMostReadings = 256;  // 4096 bytes of rooms

}  // namespace

ReplyReader::ReplyReader(Link& link, Requester& requester)
    : link_(link),
      requester_(requester),
      readings_(std::min(link.options.credits + kSpareReadings, kMostReadings)),
      marks_(link.options.credits) {
  for (Reading& reading : readings_) {
    reading.next = free_;
    free_ = &reading;
  }
}

bool ReplyReader::prepare() {
  rooms_ = link_.memory.get(static_cast<uint32_t>(readings_.size()) * kDoneBytes);
  if (!rooms_)
    return false;
  std::byte* at = rooms_.data();
  for (Reading& reading : readings_) {
    reading.room = {at, kDoneBytes, rooms_.region()};
    at += kDoneBytes;
  }
  return true;
}

}  // namespace rrdk::xprt
