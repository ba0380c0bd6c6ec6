#include "weather.h"

#include <algorithm>

#include "rig.h"

namespace rrdk::sim {

Weather::Weather(Random& random) {
  lines = random.one_in(2) ? 1 : random.between(2, 3);
  calls = random.between(10, 70);
  calls_at_once = random.between(1, 10);
  longest_delay = random.one_in(4) ? 200 : random.between(1'000, 40'000);
  longest_pause = random.one_in(2) ? 2'000 : 60'000;
  longest_answer = random.one_in(2) ? 5'000 : 1'000'000;
  constexpr uint64_t kTicks[] = {0, 0, 100'000, 1'000'000, 20'000'000};
  tick_ns = kTicks[random.below(5)];
  constexpr uint64_t kLends[] = {0, 100'000, 5'000'000, 30'000'000'000, 30'000'000'000};
  lend_ns = kLends[random.below(5)];
  starved_ns = random.one_in(2) ? 5'000'000'000 : random.between(1, 5'000'000);
  constexpr uint32_t kLargest[] = {500, 5'000, 40'000, 200 * 1024};
  largest_item = kLargest[random.below(4)];
  keys = random.one_in(4) ? random.between(24, 60) : 4000;
  requester_memory = random.one_in(6) ? static_cast<int>(random.between(1, 3)) : 0;
  responder_memory = random.one_in(6) ? static_cast<int>(random.between(1, 3)) : 0;
  if (responder_memory == kTightestResponder)
    lines = 1;
  incoming_calls = random.one_in(8) ? 16 : 512;
  shared_receives = random.one_in(2) && responder_memory == 0;
  lazy_posting = random.one_in(2);
  answers_at_once = random.one_in(2);
  takes_turns = random.one_in(2);
  // With scarce memory there may never again be enough Receives for both directions.
  both_ways = random.one_in(2) && responder_memory == 0;

  longest_peace = random.one_in(4) ? 0 : random.between(50'000, 2'000'000);
  breaks = random.one_in(3);
  errors = random.one_in(4);
  strays = random.one_in(3);
  cancels = random.one_in(3);
  credit_changes = random.one_in(3);
  size_changes = random.one_in(2);
  deadlines = random.one_in(3);
  failed_connects = random.one_in(10);
  drains = random.one_in(4);
  abrupt = random.one_in(3);
  once = random.one_in(3);
  if (once) {
    lines = random.between(2, 10);
    calls = random.between(40, 150);
    calls_at_once = random.between(1, 6);
    keys = 4000;
    requester_memory = responder_memory = 0;
    incoming_calls = 512;
    both_ways = false;
    breaks = true;
    longest_peace = random.between(50'000, 1'000'000);
  }
  crowd = random.one_in(2500);
  if (crowd)
    gather(random);
  once_credits = random.between(1, kMostCredits);
  // What each takes at first, spares included, and little more.
  most_receives = random.one_in(2) && !crowd ? 4096 : 8 * lines + random.below(80);
  longest_kept = random.one_in(3) ? 2'000 : 512 << 10;
  most_lanes = random.one_in(4) ? random.between(1, 3 * lines) : 1000;
  if (scarce())
    tick_ns = 1'000'000;  // an end that waits for buffers of others looks again at each tick
}

// Shared by thousands of connections: few calls on each, and faults that hit all connections.
void Weather::gather(Random& random) {
  lines = random.between(1'000, 2'000);
  calls = 3 * lines;
  calls_at_once = random.between(1, 2);
  requester_memory = responder_memory = kCrowdMemory;
  shared_receives = true;
  incoming_calls = 512;
  both_ways = size_changes = false;
  keys = 1000;
  largest_item = std::min(largest_item, 3'000u);
  longest_pause = 1'500'000;
  longest_peace = random.between(200'000, 1'000'000);
  tick_ns = 20'000'000;
  breaks = drains = true;
}

engine::ConnectionOptions Weather::options(Random& random, engine::Role role) const {
  engine::ConnectionOptions o;
  o.role = role;
  o.credits = random.one_in(3) ? 1 + random.below(2) : random.between(1, kMostCredits);
  if (once && role == engine::Role::kRequester)
    o.credits = once_credits;
  o.backward_credits = both_ways ? 1 + random.below(6) : 0;
  o.backward_chunks = random.one_in(2);
  o.send_size = random.one_in(3) ? 16384 : 1024 * random.between(1, 4);
  o.receive_size = 1024 * random.between(1, 4);
  o.max_receive_size = 4096u << random.below(3);
  if (shared_receives && role == engine::Role::kResponder) {
    o.receive_size = o.max_receive_size = 4096;
    o.first_credits = random.between(1, 4);
  }
  o.send_wrs = random.one_in(3) ? 8 + random.below(8) : 8 + random.below(120);
  o.max_sges = random.between(2, 16);
  o.max_copied = random.one_in(3) ? 0 : random.between(28, 400);
  o.chunk_threshold = random.below(2000);
  o.sends_invalidations = !random.one_in(4);
  o.takes_invalidations = !random.one_in(4);
  o.lend_ns = lend_ns;
  o.starved_ns = starved_ns;
  // It may be less than one call needs, which then runs alone.
  if (random.one_in(3))
    o.max_chunk_bytes = 1 + random.below(random.one_in(2) ? 2'000 : 300'000);
  o.first_xid = static_cast<uint32_t>(random.next() >> 32) | 1;
  return o;
}

ReplayOptions Weather::replay_options() const {
  return {.entries = 1, .bytes = 512 << 10, .max_reply = longest_kept};
}

void Weather::choose_versions(Random& random, engine::ConnectionOptions& requester,
                              engine::ConnectionOptions& responder) {
  using proto::Wire;
  Wire draft = random.one_in(3) ? Wire::kDraft00 : Wire::kDraft04;
  requester.limits.versions.two = responder.limits.versions.two = draft;
  constexpr engine::Speaks kSpeaks[] = {engine::Speaks::kOne, engine::Speaks::kTwo,
                                        engine::Speaks::kAuto};
  requester.speaks = kSpeaks[random.below(3)];
  requester.properties = !random.one_in(4);
  responder.properties = !random.one_in(4);
  if (requester.speaks != engine::Speaks::kTwo && random.one_in(3))
    responder.limits.versions.two.reset();
}

}  // namespace rrdk::sim
