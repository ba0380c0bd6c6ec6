#include "rig.h"

#include <algorithm>
#include <iostream>
#include <vector>

#include "rrdk/eal.h"

namespace rrdk::sim {

namespace {

std::unique_ptr<Memory> make(const std::vector<SizeClass>& classes) {
  Result<std::unique_ptr<Memory>> made = Memory::create({.classes = classes,
                                                         .hugepages = HugepagePolicy::kNever,
                                                         .numa_nodes = {},
                                                         .prefault = false});
  if (made)
    return std::move(*made);
  std::cerr << made.error().message << std::endl;
  return nullptr;
}

// The first has plenty, and the last has enough for thousands of connections. The others have
// buffers for Receives and a few for chunks.
const std::vector<std::vector<SizeClass>> kClasses = {
    {{4096, 1024}, {16384, 256}, {131072, 128}},
    {{4096, 96}, {16384, 4}, {131072, 4}},
    {{4096, 64}, {32768, 6}},
    {{4096, 80}, {8192, 8}, {65536, 3}},
    {{4096, 48000}, {16384, 512}, {131072, 128}},
};
// For the Receives of one connection and hardly more: some slots have no buffer.
const std::vector<SizeClass> kTightest = {{4096, 10}, {65536, 3}};

}  // namespace

bool Rig::create() {
  Result<void> started = ensure_eal();
  if (!started) {
    std::cerr << started.error().message << std::endl;
    return false;
  }
  for (size_t i = 0; i < kMemories; ++i) {
    requester_[i] = make(kClasses[i]);
    responder_[i] = make(i == kTightestResponder ? kTightest : kClasses[i]);
    if (requester_[i] == nullptr || responder_[i] == nullptr)
      return false;
  }
  traffic_ = make({{4096, 48000}, {65536, 512}, {262144, 256}});
  return traffic_ != nullptr;
}

bool Rig::whole() const {
  auto is_whole = [](const std::unique_ptr<Memory>& memory) { return memory->whole(); };
  return std::all_of(requester_.begin(), requester_.end(), is_whole) &&
         std::all_of(responder_.begin(), responder_.end(), is_whole) && traffic_->whole();
}

}  // namespace rrdk::sim
