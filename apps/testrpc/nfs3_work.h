// One slot of the engine nfs3: chooses the next NFSv3 call, writes its arguments, and checks the
// reply. Each slot has its own file, so that it knows the file's contents.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engines.h"
#include "nfs3_kinds.h"
#include "nfs3_site.h"

namespace rrdk::testrpc {

class Nfs3Work {
 public:
  Nfs3Work(const Nfs3Site& site, size_t slot);

  // Begins a new run, with data of `smallest` to `largest` bytes.
  void start_run(uint32_t smallest, uint32_t largest, Access access);
  // Chooses the next call: sets procedure, size and offset.
  void draw(Draw& draw, uint64_t random);
  void prepare(const Draw& draw, Encoder& args, Call& call);
  Verdict check(const Draw& draw, Decoder& results);
  // Called when the last drawn call has ended without a reply for check().
  void on_no_reply();

 private:
  // A range of the file that contains the pattern; its first byte is the pattern's at offset
  // `base`.
  struct Range {
    uint64_t start = 0;
    uint32_t size = 0;
    uint64_t base = 0;
  };

  uint64_t random();
  uint32_t draw_size(uint32_t smallest, uint32_t largest);
  Nfs3Kind draw_kind();
  void begin_write();
  void begin_read();
  uint64_t place(uint64_t& next, uint64_t room, uint32_t size);
  void begin_listing();
  void prepare_readlink(const Draw& draw, Encoder& args, Call& call);
  void prepare_read(const Draw& draw, Encoder& args, Call& call);
  void prepare_write(const Draw& draw, Encoder& args);
  void prepare_lookup(Encoder& args);
  Verdict check_getattr(Decoder& results);
  Verdict check_lookup(Decoder& results, nfs3::Status status);
  Verdict check_readlink(Decoder& results);
  Verdict check_read(const Draw& draw, Decoder& results);
  Verdict check_write(const Draw& draw, Decoder& results);
  Verdict check_readdir(Decoder& results);
  bool see_name(const ItemView& name);
  bool saw_all() const;
  void end_write();
  void abandon();
  Verdict refused(Decoder& results, nfs3::Status status);
  bool may_try_later(nfs3::Status status);

  const Nfs3Site& site_;
  nfs3::FileHandle file_;
  uint64_t random_ = 1;
  uint32_t smallest_ = 0;
  uint32_t largest_ = 0;
  Access access_ = Access::kNear;
  uint64_t next_write_ = 0;  // with sequential access: from floor_ on
  uint64_t next_read_ = 0;   // likewise, in known_

  Nfs3Kind kind_ = Nfs3Kind::kNull;  // of the last drawn call
  Range known_;  // the range that reads are checked against; size 0 if there is no such range
  std::optional<uint64_t> file_size_;
  // A WRITE without a reply may still be executed later, so nothing below this is written again.
  uint64_t floor_ = 0;

  // The current transfer, and how many bytes of `transfer_` are done.
  bool transferring_ = false;
  Range transfer_;
  uint32_t done_ = 0;

  bool again_ = false;    // the last drawn call is repeated
  uint32_t put_off_ = 0;  // how many times in a row it was deferred

  bool absent_ = false;  // a LOOKUP of a name that does not exist
  size_t name_ = 0;

  // The current listing.
  bool listing_ = false;
  uint32_t listing_bytes_ = 0;
  uint64_t cookie_ = 0;
  uint64_t cookie_verifier_ = 0;
  std::vector<bool> seen_;
  size_t seen_count_ = 0;
};

}  // namespace rrdk::testrpc
