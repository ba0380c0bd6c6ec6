#include "nfs3_calls.h"

#include <algorithm>
#include <cstring>

#include "nfs3_decode.h"
#include "rrdk/nfs3.h"

namespace rrdk::testrpc {
namespace {

using nfs3::FileHandle;
using nfs3::Status;

constexpr uint32_t kFolderMode = 0755;
constexpr uint32_t kFileMode = 0644;

void put_name(Encoder& to, const FileHandle& folder, std::string_view name) {
  to.put_opaque(folder.bytes());
  to.put_string(name);
}

// sattr3 with only a mode.
void put_mode(Encoder& to, uint32_t mode) {
  to.put_bool(true);
  to.put_u32(mode);
  for (int i = 0; i < 3; ++i)  // uid, gid, size
    to.put_bool(false);
  for (int i = 0; i < 2; ++i)  // atime, mtime
    to.put_u32(static_cast<uint32_t>(nfs3::TimeHow::kKeep));
}

std::string describe(uint32_t procedure, std::string_view object) {
  return std::string("NFS ") + nfs3::kBinding.find(procedure)->name + " of '" +
         std::string(object) + "': ";
}

}  // namespace

Encoder& Nfs3Calls::begin(uint32_t procedure) {
  Encoder& args = call_.begin(nfs3::kBinding, procedure);
  call_.set_timeout_ms(timeout_ms_);
  return args;
}

Result<void> Nfs3Calls::finish(uint32_t procedure, std::string_view object) {
  CallStatus ended = call_.submit_and_wait();
  if (ended != CallStatus::kOk)
    return fail(ended == CallStatus::kTimeout ? Errc::kTimeout : Errc::kRefused,
                describe(procedure, object) + rrdk::to_string(ended));
  auto status = static_cast<Status>(call_.results().get_u32());
  if (!call_.results().ok())
    return not_decoded(procedure, object);
  if (status != Status::kOk)
    return fail(status == Status::kNoEnt ? Errc::kNotFound : Errc::kSystem,
                describe(procedure, object) + nfs3::to_string(status));
  return {};
}

Result<void> Nfs3Calls::not_decoded(uint32_t procedure, std::string_view object) {
  return fail(Errc::kNotAPeer, describe(procedure, object) + "the reply does not decode");
}

Result<Nfs3Limits> Nfs3Calls::limits(const FileHandle& root) {
  begin(nfs3::kFsinfo).put_opaque(root.bytes());
  if (Result<void> done = finish(nfs3::kFsinfo, "/"); !done)
    return tl::unexpected(done.error());
  Decoder& results = call_.results();
  nfs3::get_optional_attributes(results);
  Nfs3Limits limits = {};
  limits.read = results.get_u32();
  results.get_fixed(8);  // rtpref, rtmult
  limits.write = results.get_u32();
  if (!results.ok() || limits.read == 0 || limits.write == 0)
    return tl::unexpected(not_decoded(nfs3::kFsinfo, "/").error());
  return limits;
}

Result<Nfs3Object> Nfs3Calls::make_folder(const FileHandle& folder, std::string_view name) {
  Encoder& args = begin(nfs3::kMkdir);
  put_name(args, folder, name);
  put_mode(args, kFolderMode);
  return finish_new(nfs3::kMkdir, folder, name);
}

Result<Nfs3Object> Nfs3Calls::make_file(const FileHandle& folder, std::string_view name) {
  Encoder& args = begin(nfs3::kCreate);
  put_name(args, folder, name);
  args.put_u32(static_cast<uint32_t>(nfs3::CreateMode::kGuarded));
  put_mode(args, kFileMode);
  return finish_new(nfs3::kCreate, folder, name);
}

Result<Nfs3Object> Nfs3Calls::make_link(const FileHandle& folder, std::string_view name,
                                        std::string_view target) {
  auto length = static_cast<uint32_t>(target.size());
  Buffer path = memory_.get(length);
  if (!path)
    return fail(Errc::kNoMemory, describe(nfs3::kSymlink, name) + "no buffer is left");
  std::memcpy(path.data(), target.data(), length);
  Encoder& args = begin(nfs3::kSymlink);
  put_name(args, folder, name);
  put_mode(args, kFileMode);
  args.put_item(std::move(path), length, Ddp::kEligible);
  return finish_new(nfs3::kSymlink, folder, name);
}

// CREATE, MKDIR and SYMLINK have the same results; a server may leave the handle out.
Result<Nfs3Object> Nfs3Calls::finish_new(uint32_t procedure, const FileHandle& folder,
                                         std::string_view name) {
  if (Result<void> done = finish(procedure, name); !done)
    return tl::unexpected(done.error());
  Decoder& results = call_.results();
  std::optional<FileHandle> handle = nfs3::get_optional_handle(results);
  std::optional<nfs3::Attributes> attributes = nfs3::get_optional_attributes(results);
  nfs3::skip_change(results);
  if (!results.at_end())
    return tl::unexpected(not_decoded(procedure, name).error());
  if (!handle)
    return look_up(folder, name);
  Nfs3Object object = {*handle, std::nullopt};
  if (attributes)
    object.file_id = attributes->file_id;
  return object;
}

Result<Nfs3Object> Nfs3Calls::look_up(const FileHandle& folder, std::string_view name) {
  put_name(begin(nfs3::kLookup), folder, name);
  if (Result<void> done = finish(nfs3::kLookup, name); !done)
    return tl::unexpected(done.error());
  Nfs3Object object = {nfs3::get_handle(call_.results()), std::nullopt};
  if (auto attributes = nfs3::get_optional_attributes(call_.results()))
    object.file_id = attributes->file_id;
  if (!call_.results().ok())
    return tl::unexpected(not_decoded(nfs3::kLookup, name).error());
  return object;
}

Result<void> Nfs3Calls::remove_file(const FileHandle& folder, std::string_view name) {
  return remove(nfs3::kRemove, folder, name);
}

Result<void> Nfs3Calls::remove_folder(const FileHandle& folder, std::string_view name) {
  return remove(nfs3::kRmdir, folder, name);
}

Result<void> Nfs3Calls::remove(uint32_t procedure, const FileHandle& folder,
                               std::string_view name) {
  put_name(begin(procedure), folder, name);
  return finish(procedure, name);
}

Result<void> Nfs3Calls::write(const FileHandle& file, uint64_t offset, MemorySpan data,
                              uint32_t most) {
  while (data.length != 0) {
    uint32_t count = std::min(data.length, most);
    Encoder& args = begin(nfs3::kWrite);
    args.put_opaque(file.bytes());
    args.put_u64(offset);
    args.put_u32(count);
    args.put_u32(static_cast<uint32_t>(nfs3::Stable::kUnstable));
    args.put_item({data.data, count, data.region}, Ddp::kEligible);
    if (Result<void> done = finish(nfs3::kWrite, "a file"); !done)
      return done;
    nfs3::skip_change(call_.results());
    uint32_t written = call_.results().get_u32();
    if (!call_.results().ok() || written == 0 || written > count)
      return not_decoded(nfs3::kWrite, "a file");
    data = {data.data + written, data.length - written, data.region};
    offset += written;
  }
  return {};
}

}  // namespace rrdk::testrpc
