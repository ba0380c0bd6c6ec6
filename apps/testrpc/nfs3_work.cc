#include "nfs3_work.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>

#include "nfs3_decode.h"
#include "pattern.h"
#include "rrdk/nfs3.h"

namespace rrdk::testrpc {
namespace {

using nfs3::Status;

// The requested bytes of one READDIR reply.
constexpr uint32_t kSmallestListing = 4 << 10;
constexpr uint32_t kLargestListing = 32 << 10;
constexpr uint32_t kLongestTarget = 1024;
constexpr size_t kNameRoom = 256;
constexpr char kAbsentName[] = "not-there";
// How often each kind is drawn: a listing is many calls, and data matters most.
constexpr uint32_t kWeights[kNfs3Kinds] = {2, 3, 3, 2, 4, 4, 1};
// A call that the server defers this many times in a row has failed.
constexpr uint32_t kMostPutOff = 50;
constexpr Verdict kWrong = {.decoded = false};

uint32_t procedure_of(Nfs3Kind kind) {
  switch (kind) {
    case Nfs3Kind::kNull:
      return nfs3::kNull;
    case Nfs3Kind::kGetattr:
      return nfs3::kGetattr;
    case Nfs3Kind::kLookup:
      return nfs3::kLookup;
    case Nfs3Kind::kReadlink:
      return nfs3::kReadlink;
    case Nfs3Kind::kRead:
      return nfs3::kRead;
    case Nfs3Kind::kWrite:
      return nfs3::kWrite;
    case Nfs3Kind::kReaddir:
      break;
  }
  return nfs3::kReaddir;
}

Verdict decoded(bool right) {
  return {.decoded = right};
}

}  // namespace

Nfs3Work::Nfs3Work(const Nfs3Site& site, size_t slot)
    : site_(site), file_(site.file(slot)), seen_(site.names().size() + 2) {
  if (site.filled() != 0)
    known_ = {0, site.filled(), 0};
  file_size_ = site.filled();
}

void Nfs3Work::start_run(uint32_t smallest, uint32_t largest, Access access) {
  smallest_ = smallest;
  largest_ = largest;
  access_ = access;
  next_write_ = next_read_ = 0;
  abandon();
}

// Drops transfers and listings that the end of a run, or of a call, has left incomplete.
void Nfs3Work::abandon() {
  if (transferring_ && kind_ == Nfs3Kind::kWrite)
    known_.size = 0;
  transferring_ = false;
  listing_ = false;
  again_ = false;
  put_off_ = 0;
}

void Nfs3Work::on_no_reply() {
  if (kind_ == Nfs3Kind::kWrite) {
    file_size_.reset();
    floor_ = transfer_.start + transfer_.size;
  }
  abandon();
}

uint64_t Nfs3Work::random() {
  random_ ^= random_ >> 12;
  random_ ^= random_ << 25;
  random_ ^= random_ >> 27;
  return random_ * 0x2545f4914f6cdd1dull;
}

// Draws sizes of a few bytes as often as of a few thousand or a million.
uint32_t Nfs3Work::draw_size(uint32_t smallest, uint32_t largest) {
  if (smallest >= largest)
    return smallest;
  uint32_t bits = std::bit_width(smallest);
  bits += static_cast<uint32_t>(random() % (std::bit_width(largest) - bits + 1));
  uint64_t low = bits == 0 ? 0 : uint64_t{1} << (bits - 1);
  uint64_t size = low + random() % std::max<uint64_t>(low, 1);
  return static_cast<uint32_t>(std::clamp<uint64_t>(size, smallest, largest));
}

Nfs3Kind Nfs3Work::draw_kind() {
  uint32_t sum = 0;
  auto weight = [this](uint32_t i) {
    return has(site_.calls(), static_cast<Nfs3Kind>(i)) ? kWeights[i] : 0;
  };
  for (uint32_t i = 0; i < kNfs3Kinds; ++i)
    sum += weight(i);
  uint64_t drawn = random() % sum;
  uint32_t index = 0;
  for (; drawn >= weight(index); ++index)
    drawn -= weight(index);
  auto kind = static_cast<Nfs3Kind>(index);
  // The contents of the file are unknown: write first.
  bool can_write = has(site_.calls(), Nfs3Kind::kWrite);
  return kind == Nfs3Kind::kRead && known_.size == 0 && can_write ? Nfs3Kind::kWrite : kind;
}

void Nfs3Work::draw(Draw& draw, uint64_t random_number) {
  random_ = random_number | 1;
  if (!transferring_ && !listing_ && !again_) {
    kind_ = draw_kind();
    if (kind_ == Nfs3Kind::kWrite)
      begin_write();
    else if (kind_ == Nfs3Kind::kRead)
      begin_read();
    else if (kind_ == Nfs3Kind::kReaddir)
      begin_listing();
    name_ = site_.names().empty() ? 0 : random() % site_.names().size();
    absent_ = random() % 8 == 0;
  }
  draw.procedure = procedure_of(kind_);
  draw.size = 0;
  if (transferring_) {
    uint32_t most = kind_ == Nfs3Kind::kWrite ? site_.limits().write : site_.limits().read;
    draw.size = std::min(transfer_.size - done_, most);
    draw.offset = transfer_.base + done_;
  }
}

// Returns where in `room` bytes a transfer of `size` begins; after the end it continues at the
// beginning.
uint64_t Nfs3Work::place(uint64_t& next, uint64_t room, uint32_t size) {
  if (access_ != Access::kSequential)
    return random() % (room - size + 1);
  const uint64_t at = next + size <= room ? next : 0;
  next = at + size;
  return at;
}

void Nfs3Work::begin_write() {
  uint32_t size = draw_size(smallest_, largest_);
  const uint64_t span = uint64_t{largest_} * (access_ == Access::kNear ? 1 : kAccessSpan);
  // Near: a transfer may begin at the end of the span, whatever its size.
  const uint64_t room = span + (access_ == Access::kNear ? size : 0);
  transfer_ = {floor_ + place(next_write_, room, size), size, random()};
  transferring_ = true;
  done_ = 0;
  known_.size = 0;
}

// Reads any part of the known range, of at most a size that may be drawn.
void Nfs3Work::begin_read() {
  uint32_t size = std::min(draw_size(smallest_, largest_), known_.size);
  const uint64_t skip = place(next_read_, known_.size, size);
  transfer_ = {known_.start + skip, size, known_.base + skip};
  transferring_ = true;
  done_ = 0;
}

void Nfs3Work::begin_listing() {
  listing_ = true;
  listing_bytes_ = draw_size(kSmallestListing, kLargestListing);
  cookie_ = 0;
  cookie_verifier_ = 0;
  std::fill(seen_.begin(), seen_.end(), false);
  seen_count_ = 0;
}

void Nfs3Work::prepare(const Draw& draw, Encoder& args, Call& call) {
  switch (kind_) {
    case Nfs3Kind::kNull:
      return;
    case Nfs3Kind::kGetattr:
      return args.put_opaque(file_.bytes());
    case Nfs3Kind::kLookup:
      return prepare_lookup(args);
    case Nfs3Kind::kReadlink:
      return prepare_readlink(draw, args, call);
    case Nfs3Kind::kRead:
      return prepare_read(draw, args, call);
    case Nfs3Kind::kWrite:
      return prepare_write(draw, args);
    case Nfs3Kind::kReaddir:
      args.put_opaque(site_.names_folder().bytes());
      args.put_u64(cookie_);
      args.put_u64(cookie_verifier_);
      args.put_u32(listing_bytes_);
      call.expect_reply(listing_bytes_);
  }
}

void Nfs3Work::prepare_lookup(Encoder& args) {
  args.put_opaque(site_.names_folder().bytes());
  args.put_string(absent_ || site_.names().empty() ? kAbsentName : site_.names()[name_].name);
}

void Nfs3Work::prepare_readlink(const Draw& draw, Encoder& args, Call& call) {
  args.put_opaque(site_.link().bytes());
  Draw whole = draw;
  whole.place = true;  // whatever its length, which is unknown until the reply
  uint32_t room = std::min(draw.sink.length, kLongestTarget);
  call.expect_reply(offer(whole, call, {draw.sink.data, room, draw.sink.region}));
}

void Nfs3Work::prepare_read(const Draw& draw, Encoder& args, Call& call) {
  args.put_opaque(file_.bytes());
  args.put_u64(transfer_.start + done_);
  args.put_u32(draw.size);
  call.expect_reply(offer(draw, call, {draw.sink.data, draw.size, draw.sink.region}));
}

void Nfs3Work::prepare_write(const Draw& draw, Encoder& args) {
  args.put_opaque(file_.bytes());
  args.put_u64(transfer_.start + done_);
  args.put_u32(draw.size);
  args.put_u32(static_cast<uint32_t>(nfs3::Stable::kUnstable));
  // The file's contents are read later, with and without --verify.
  fill_pattern({draw.source.data, draw.size}, draw.offset);
  args.put_item({draw.source.data, draw.size, draw.source.region}, Ddp::kEligible);
}

Verdict Nfs3Work::check(const Draw& draw, Decoder& results) {
  if (kind_ == Nfs3Kind::kNull)
    return decoded(results.at_end());
  auto status = static_cast<Status>(results.get_u32());
  again_ = may_try_later(status);
  if (kind_ == Nfs3Kind::kLookup)
    return check_lookup(results, status);
  if (status != Status::kOk)
    return refused(results, status);
  Verdict verdict;
  switch (kind_) {
    case Nfs3Kind::kReadlink:
      return check_readlink(results);
    case Nfs3Kind::kRead:
      verdict = check_read(draw, results);
      break;
    case Nfs3Kind::kWrite:
      verdict = check_write(draw, results);
      break;
    case Nfs3Kind::kReaddir:
      verdict = check_readdir(results);
      break;
    default:
      return check_getattr(results);
  }
  if (!verdict.decoded)
    abandon();
  return verdict;
}

// RFC 1813 section 2.6: after NFS3ERR_JUKEBOX a client waits, and makes the same call with a new
// XID.
bool Nfs3Work::may_try_later(Status status) {
  put_off_ = status == Status::kJukebox ? put_off_ + 1 : 0;
  return put_off_ != 0 && put_off_ <= kMostPutOff;
}

// Decodes the results of errors: wcc_data for WRITE, nothing for GETATTR, attributes for the
// others.
Verdict Nfs3Work::refused(Decoder& results, Status status) {
  if (kind_ == Nfs3Kind::kWrite)
    nfs3::skip_change(results);
  else if (kind_ != Nfs3Kind::kGetattr)
    nfs3::get_optional_attributes(results);
  if (kind_ == Nfs3Kind::kWrite)
    file_size_.reset();
  if (again_)
    return {.decoded = results.at_end(), .try_later = true};
  abandon();
  return {.decoded = results.at_end(), .nfs_status = static_cast<uint32_t>(status)};
}

Verdict Nfs3Work::check_getattr(Decoder& results) {
  nfs3::Attributes attributes = nfs3::get_attributes(results);
  bool right = attributes.type == nfs3::FileType::kRegular &&
               (!file_size_ || attributes.size == *file_size_);
  return decoded(results.at_end() && right);
}

Verdict Nfs3Work::check_lookup(Decoder& results, Status status) {
  bool there = !absent_ && !site_.names().empty();
  if (status != Status::kOk) {
    nfs3::get_optional_attributes(results);
    if (again_)
      return {.decoded = results.at_end(), .try_later = true};
    bool expected = !there && status == Status::kNoEnt;
    return {.decoded = results.at_end(),
            .nfs_status = expected ? 0 : static_cast<uint32_t>(status)};
  }
  bool right = there && !nfs3::get_handle(results).bytes().empty();
  auto attributes = nfs3::get_optional_attributes(results);
  nfs3::get_optional_attributes(results);
  if (right && attributes && site_.names()[name_].file_id)
    right = attributes->file_id == *site_.names()[name_].file_id;
  return decoded(results.at_end() && right);
}

Verdict Nfs3Work::check_readlink(Decoder& results) {
  nfs3::get_optional_attributes(results);
  ItemView path = results.get_item(kLongestTarget);
  if (!results.at_end() || path.size() != site_.link_target().size())
    return kWrong;
  std::array<std::byte, kLongestTarget> room;
  path.copy_to(room.data());
  return decoded(std::memcmp(room.data(), site_.link_target().data(), path.size()) == 0);
}

Verdict Nfs3Work::check_read(const Draw& draw, Decoder& results) {
  nfs3::get_optional_attributes(results);
  uint32_t count = results.get_u32();
  bool eof = results.get_bool();
  ItemView data = results.get_item(draw.size);
  // Fewer bytes than requested are allowed, but not zero: all requested bytes exist.
  if (!results.at_end() || data.size() != count || (count == 0 && draw.size != 0))
    return kWrong;
  uint64_t end = transfer_.start + done_ + count;
  if (file_size_ && count != 0 && eof != (end >= *file_size_))
    return kWrong;
  Verdict verdict;
  if (draw.touch)
    touch(data);
  if (draw.verify)
    verdict.wrong_bytes = count_wrong(data, draw.offset);
  done_ += count;
  transferring_ = done_ < transfer_.size;
  return verdict;
}

Verdict Nfs3Work::check_write(const Draw& draw, Decoder& results) {
  nfs3::skip_change(results);
  uint32_t count = results.get_u32();
  uint32_t committed = results.get_u32();
  results.get_u64();  // the verifier: not needed, since nothing is kept to be written again
  bool right = results.at_end() && count <= draw.size && (count != 0 || draw.size == 0) &&
               committed <= static_cast<uint32_t>(nfs3::Stable::kFileSync);
  if (!right) {
    file_size_.reset();
    return kWrong;
  }
  done_ += count;
  if (file_size_ && count != 0)
    file_size_ = std::max(*file_size_, transfer_.start + done_);
  if (done_ == transfer_.size)
    end_write();
  return {};
}

// Written data is read back at once, if READ is among the calls.
void Nfs3Work::end_write() {
  known_ = transfer_;
  next_read_ = 0;
  transferring_ = has(site_.calls(), Nfs3Kind::kRead);
  if (!transferring_)
    return;
  kind_ = Nfs3Kind::kRead;
  done_ = 0;
}

Verdict Nfs3Work::check_readdir(Decoder& results) {
  nfs3::get_optional_attributes(results);
  cookie_verifier_ = results.get_u64();
  uint32_t entries = 0;
  while (results.get_bool()) {
    results.get_u64();  // fileid
    ItemView name = results.get_opaque(kNameRoom);
    cookie_ = results.get_u64();
    if (!results.ok() || !see_name(name))
      return kWrong;
    ++entries;
  }
  bool eof = results.get_bool();
  if (!results.at_end() || (entries == 0 && !eof))
    return kWrong;
  listing_ = !eof;
  return decoded(!eof || saw_all());
}

// Returns whether a name in a listing exists and is listed for the first time.
bool Nfs3Work::see_name(const ItemView& name) {
  std::array<std::byte, kNameRoom> room;
  name.copy_to(room.data());
  std::string_view text(reinterpret_cast<const char*>(room.data()), name.size());
  size_t index = site_.names().size();
  if (text == "..") {
    ++index;
  } else if (text != ".") {
    std::from_chars(text.data(), text.data() + text.size(), index);
    if (index >= site_.names().size() || site_.names()[index].name != text)
      return false;
  }
  if (seen_[index])
    return false;
  seen_[index] = true;
  seen_count_ += index < site_.names().size();
  return true;
}

bool Nfs3Work::saw_all() const {
  return seen_count_ == site_.names().size();
}

}  // namespace rrdk::testrpc
