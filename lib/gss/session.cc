#include "gss/session.h"

#include <algorithm>

#include "base/lifetime.h"

namespace rrdk::gss {

namespace {

// XID to procedure, then flavour and length of the credential (RFC 5531 section 9).
constexpr uint32_t kBeforeCredential = 32;
constexpr uint32_t kSequenceAt = kBeforeCredential + 8;
// In the credential with its flavour and length: what the call is for.
constexpr uint32_t kControlAt = 12;

}  // namespace

bool Path::take(std::unique_ptr<Session>& session) noexcept {
  const std::lock_guard lock(mutex_);
  if (owner_ == nullptr)
    return false;
  owner_->end_context(std::move(session));
  return true;
}

void Path::ask() noexcept {
  if (asked_.exchange(true, std::memory_order_relaxed))
    return;
  const std::lock_guard lock(mutex_);
  if (owner_ == nullptr || !owner_->ask_arrival())
    note_asked();
}

void Path::end() noexcept {
  over_.store(true, std::memory_order_relaxed);
  arrived_.store(UINT64_MAX, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  owner_ = nullptr;
}

void Session::let_go(Session* session) noexcept {
  std::unique_ptr<Session> last(session);
  const bool is_known = !last->blank_.empty() && !last->unknown_.load(std::memory_order_relaxed);
  if (!is_known || base::forked)
    return;
  for (const Lane& lane : std::exchange(last->lanes_, {})) {
    if (lane.path->take(last))
      return;
  }
}

const rpc::CallTarget& Session::begin_end() noexcept {
  xdr::store_u32(&blank_[kControlAt], static_cast<uint32_t>(Control::kDestroy));
  return null_call_;
}

std::vector<std::byte> Session::credential(Control control, Protection protection,
                                           std::span<const std::byte> handle) {
  std::vector<std::byte> body;
  append_u32(body, kVersion);
  append_u32(body, static_cast<uint32_t>(control));
  append_u32(body, 0);
  append_u32(body, static_cast<uint32_t>(protection));
  append_opaque(body, handle);
  return body;
}

bool Session::open(std::span<const std::byte> handle, uint32_t window,
                   std::span<const std::byte> checksum) {
  std::byte words[4];
  xdr::store_u32(words, window);
  Token ours;
  const std::vector<std::byte> body = credential(Control::kData, protection_, handle);
  if (body.size() > kMaxAuthBody || !context_.verify(words, checksum) ||
      !context_.sign(words, ours))
    return false;
  told_ = window;
  window_ = std::max(window, 1u);
  blank_.clear();
  append_u32(blank_, static_cast<uint32_t>(AuthFlavor::kRpcsecGss));
  append_opaque(blank_, body);
  signed_bytes_ = kBeforeCredential - 8 + static_cast<uint32_t>(blank_.size());
  // Checksums of one context have one length (RFC 4121 section 4.2.6.1).
  checksum_bytes_ = static_cast<uint32_t>(ours.bytes().size());
  append_u32(blank_, static_cast<uint32_t>(AuthFlavor::kRpcsecGss));
  append_opaque(blank_, std::vector<std::byte>(checksum_bytes_));
  return true;
}

void Session::Lane::add(uint64_t number, uint64_t now_ns) noexcept {
  look(now_ns);
  latest = path->send();
  if (first == 0) {
    first = number;
    mark = latest;
    since_ns = now_ns;
  } else if (second == 0) {
    second = number;
  }
}

void Session::Lane::look(uint64_t now_ns) noexcept {
  while (first != 0 && (path->arrived() >= mark || now_ns > since_ns + kPatienceNs)) {
    first = second;
    second = 0;
    mark = latest;
    since_ns = now_ns;
  }
}

Session::Lane& Session::lane_of(const std::shared_ptr<Path>& path) {
  const auto found = std::ranges::find(lanes_, path, &Lane::path);
  if (found != lanes_.end())
    return *found;
  std::erase_if(lanes_, [](const Lane& other) { return other.path->is_over(); });
  return lanes_.emplace_back(Lane{.path = path});
}

// The server's window ends at the highest number that it has seen, and it leaves calls below the
// window unanswered (RFC 2203 section 5.3.3.1). So no number is sent that could push one out which
// may still be on its way. On one connection none can be overtaken, unless the server fetches it.
bool Session::is_open(uint64_t number, const Path& path, uint64_t now_ns) noexcept {
  uint64_t lowest = number;
  bool is_open = true;
  if (!fetched_.empty()) {
    std::erase_if(fetched_,
                  [&](const Fetched& call) { return now_ns > call.since_ns + kPatienceNs; });
  }
  if (!fetched_.empty()) {
    lowest = std::min(lowest, fetched_.front().number);
    is_open = fetched_.front().number + window_ > number;
  }
  for (Lane& lane : lanes_) {
    lane.look(now_ns);
    if (lane.first == 0)
      continue;
    lowest = std::min(lowest, lane.first);
    if (lane.path.get() != &path && lane.first + window_ <= number) {
      is_open = false;
      lane.path->ask();
    }
  }
  open_until_ = lowest + window_;
  return is_open;
}

// Not the number that equals the window: the server's checksum of that came with the context, and
// would verify a forged reply.
Numbering Session::take_number(const std::shared_ptr<Path>& path, uint64_t now_ns,
                               ProtectedCall& call) {
  const std::lock_guard lock(mutex_);
  const uint64_t next = next_number();
  if (next >= kHighestSequence)
    return Numbering::kOver;
  if (turn_ != nullptr && now_ns > turn_until_ns_)
    turn_ = nullptr;
  Lane& lane = lane_of(path);
  const bool has_turn = turn_ == nullptr || turn_ == path.get();
  if (!has_turn || outstanding_ >= window_ ||
      (next >= open_until_ && !is_open(next, *path, now_ns))) {
    if (turn_ == nullptr) {
      turn_ = path.get();
      turn_until_ns_ = now_ns + kTurnNs;
    }
    return Numbering::kLater;
  }
  if (call.may_be_fetched)
    fetched_.push_back({next, now_ns});
  turn_ = nullptr;
  next_ = next + 1;
  ++outstanding_;
  lane.add(next, now_ns);
  call.sequence = static_cast<uint32_t>(next);
  call.numbered = true;
  call.position = lane.latest;
  return Numbering::kTaken;
}

bool Session::keep_number(const std::shared_ptr<Path>& path, uint64_t now_ns, ProtectedCall& call) {
  const std::lock_guard lock(mutex_);
  if (uint64_t{call.sequence} + window_ < next_)
    return false;
  Lane& lane = lane_of(path);
  lane.first = lane.first != 0 ? std::min<uint64_t>(lane.first, call.sequence) : call.sequence;
  lane.mark = lane.latest = call.position = path->send();
  lane.second = 0;
  lane.since_ns = now_ns;
  open_until_ = std::min(open_until_, lane.first + window_);
  return true;
}

void Session::give_back(ProtectedCall& call) noexcept {
  call.complete = false;
  if (!std::exchange(call.numbered, false))
    return;
  const std::lock_guard lock(mutex_);
  --outstanding_;
  if (!call.may_be_fetched)
    return;
  const auto its = std::ranges::lower_bound(fetched_, call.sequence, {}, &Fetched::number);
  if (its != fetched_.end() && its->number == call.sequence)
    fetched_.erase(its);
}

// Its calls have ended.
uint32_t Session::take_last_number() noexcept {
  const uint64_t next = std::min<uint64_t>(next_number(), kHighestSequence);
  next_ = next + 1;
  return static_cast<uint32_t>(next);
}

bool Session::sign_header(std::byte* header, uint32_t sequence) noexcept {
  xdr::store_u32(header + kSequenceAt, sequence);
  Token checksum;
  if (!context_.sign({header, signed_bytes_}, checksum) ||
      checksum.bytes().size() != checksum_bytes_)
    return false;
  std::ranges::copy(checksum.bytes(), header + signed_bytes_ + 8);
  return true;
}

bool Session::protect(std::span<const std::byte> clear, Encoder& out) noexcept {
  Token token;
  if (protection_ == Protection::kPrivacy) {
    if (!context_.wrap(clear, token))
      return false;
  } else {
    if (!context_.sign(clear, token))
      return false;
    out.put_opaque(clear);
  }
  out.put_opaque(token.bytes());
  return true;
}

bool Session::verify_reply(uint32_t sequence, const ItemView& checksum) noexcept {
  std::byte words[4];
  xdr::store_u32(words, sequence);
  std::byte bytes[kMaxAuthBody];
  if (checksum.size() > sizeof bytes)
    return false;
  checksum.copy_to(bytes);
  return context_.verify(words, {bytes, checksum.size()});
}

// The verifier is the checksum of the sequence number alone, and so is that of empty results. The
// server gives each checksum a number of its own (RFC 4121 section 4.2.6.1), so results with the
// verifier's own token come from somebody else.
bool Session::open_results(ProtectedCall& call, Decoder& in, const ItemView& verifier) {
  const bool is_private = protection_ == Protection::kPrivacy;
  const ItemView body = in.get_opaque(UINT32_MAX);
  const ItemView checksum = is_private ? ItemView() : in.get_opaque(kMaxAuthBody);
  if (!in.at_end())
    return false;
  std::span<const std::byte> clear = join(body, call.joined);
  if (is_private) {
    if (!context_.unwrap(clear, call.unwrapped))
      return false;
    clear = call.unwrapped.bytes();
    call.joined = {};
    // An idle call then keeps nothing but the buffer that it would keep anyway.
    if (body.contiguous() && clear.size() <= body.size()) {
      auto* const place = const_cast<std::byte*>(body.data());  // in a buffer of ours
      std::ranges::copy(clear, place);
      clear = {place, clear.size()};
      call.unwrapped.clear();
    }
  } else {
    std::byte of_body[kMaxAuthBody];
    checksum.copy_to(of_body);
    std::byte of_header[kMaxAuthBody];
    verifier.copy_to(of_header);  // verify_reply() takes none that is longer
    const std::span<const std::byte> token(of_body, checksum.size());
    if (std::ranges::equal(token, std::span<const std::byte>(of_header, verifier.size())) ||
        !context_.verify(clear, token))
      return false;
  }
  if (clear.size() < sizeof(uint32_t) || clear.size() % 4 != 0 ||
      xdr::load_u32(clear.data()) != call.sequence)
    return false;
  const auto rest = clear.subspan(sizeof(uint32_t));
  call.results = {rest.data(), static_cast<uint32_t>(rest.size())};
  return true;
}

}  // namespace rrdk::gss
