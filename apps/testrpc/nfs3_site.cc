#include "nfs3_site.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "nfs3_kinds.h"
#include "pattern.h"
#include "security.h"
#include "stop.h"
#include "values.h"

namespace rrdk::testrpc {
namespace {

constexpr char kLink[] = "link";
constexpr char kNames[] = "names";
// Longer than a small Send, so that the link moves in a chunk (RFC 8267 section 2).
constexpr size_t kLinkLength = 1000;
constexpr uint32_t kLongestName = 200;

std::string file_name(size_t slot) {
  return "file-" + std::to_string(slot);
}

// The name begins with its number, so that a listing can be checked name by name.
std::string entry_name(size_t index, uint64_t random) {
  char number[32];
  std::snprintf(number, sizeof number, "%06zu-", index);
  return number + std::string(random % (kLongestName - 8), 'n') + "x";
}

}  // namespace

Result<nfs3::MountTarget> mount_target(const std::string& given, const std::string& uri) {
  nfs3::MountTarget target;
  std::string host = given, port;
  if (given.find_first_not_of("0123456789") == std::string::npos) {
    host.clear();
    port = given;
  } else if (given.starts_with("[")) {
    size_t end = given.find(']');
    host = given.substr(1, end - 1);
    port = end != std::string::npos && end + 2 < given.size() ? given.substr(end + 2) : "";
  } else if (size_t colon = given.find(':'); colon != std::string::npos) {
    host = given.substr(0, colon);
    port = given.substr(colon + 1);
  }
  if (!port.empty()) {
    Result<uint64_t> number = parse_count(port, 1, UINT16_MAX);
    if (!number)
      return fail(Errc::kInvalidArgument, "port " + number.error().message);
    target.port = static_cast<uint16_t>(*number);
  }
  target.host = host.empty() ? host_of(uri) : host;
  if (target.host.empty())
    target.host = "127.0.0.1";
  return target;
}

Nfs3Site::Nfs3Site(Session& session, const Options& options, nfs3::MountTarget target)
    : session_(session),
      target_(std::move(target)),
      calls_(options.nfs_calls),
      nfs_(*session.connections()[0], session.memory(), options.timeout_ms) {}

Nfs3Site::~Nfs3Site() = default;

Result<std::unique_ptr<Nfs3Site>> Nfs3Site::create(Session& session, const Options& options,
                                                   const std::string& uri, uint32_t slots,
                                                   uint32_t file_size, uint32_t max_size) {
  Result<nfs3::MountTarget> target = mount_target(options.nfs_mount, uri);
  if (!target)
    return tl::unexpected(target.error());
  target->path = options.nfs_export;
  target->timeout_ms = options.timeout_ms;
  // With AUTH_NONE a server would treat us as an anonymous user without write permission.
  if (!is_kerberos(sec_of(options))) {
    for (const std::unique_ptr<ClientConnection>& connection : session.connections())
      connection->set_auth_sys(own_identity());
  }
  Result<nfs3::FileHandle> root = [&] {
    const EndsAtOnce mounting("the export is mounted");
    return nfs3::mount_export(*target);
  }();
  if (!root)
    return tl::unexpected(root.error());
  std::unique_ptr<Nfs3Site> site(new Nfs3Site(session, options, *target));
  site->root_ = *root;
  Result<void> made = site->make(slots, file_size, max_size, options.seed, options.nfs_names);
  if (!made) {
    (void)site->clear();  // removes what was created; the first error is reported
    return tl::unexpected(made.error());
  }
  return site;
}

Result<void> Nfs3Site::make(uint32_t slots, uint32_t file_size, uint32_t max_size, uint64_t seed,
                            uint32_t names) {
  Result<Nfs3Limits> limits = nfs_.limits(root_);
  if (!limits)
    return tl::unexpected(limits.error());
  limits_ = *limits;
  char name[64];
  std::snprintf(name, sizeof name, "testrpc-%d-%llx", getpid(),
                static_cast<unsigned long long>(Runtime::now_ns()));
  Result<Nfs3Object> folder = nfs_.make_folder(root_, name);
  if (!folder)
    return tl::unexpected(folder.error());
  folder_name_ = name;
  folder_ = folder->handle;
  if (Result<void> made = make_files(slots, file_size, max_size); !made)
    return made;
  if (has(calls_, Nfs3Kind::kReadlink)) {
    std::string target;
    while (target.size() < kLinkLength)
      target += "/" + std::to_string(target.size());
    Result<Nfs3Object> link = nfs_.make_link(folder_, kLink, target);
    if (!link)
      return tl::unexpected(link.error());
    link_target_ = target;
    link_ = link->handle;
  }
  if (has(calls_, Nfs3Kind::kReaddir) || has(calls_, Nfs3Kind::kLookup))
    return make_names(seed, names);
  return {};
}

Result<void> Nfs3Site::make_files(uint32_t slots, uint32_t file_size, uint32_t max_size) {
  bool fill = has(calls_, Nfs3Kind::kRead) && !has(calls_, Nfs3Kind::kWrite);
  RegisteredMemory data;
  if (fill) {
    Result<RegisteredMemory> memory = session_.memory().allocate(std::max(file_size, 1u));
    if (!memory)
      return tl::unexpected(memory.error());
    data = std::move(*memory);
    fill_pattern({data.data(), file_size}, 0);
  }
  for (uint32_t i = 0; i < slots; ++i) {
    Result<Nfs3Object> file = nfs_.make_file(folder_, file_name(i));
    if (!file)
      return tl::unexpected(file.error());
    files_.push_back(file->handle);
    if (!fill)
      continue;
    if (auto written =
            nfs_.write(file->handle, 0, data.span(0, file_size), std::min(limits_.write, max_size));
        !written)
      return written;
  }
  filled_ = fill ? file_size : 0;
  return {};
}

Result<void> Nfs3Site::make_names(uint64_t seed, uint32_t count) {
  Result<Nfs3Object> folder = nfs_.make_folder(folder_, kNames);
  if (!folder)
    return tl::unexpected(folder.error());
  names_folder_ = folder->handle;
  uint64_t random = seed * 2 + 1;
  for (uint32_t i = 0; i < count; ++i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    std::string name = entry_name(i, random >> 33);
    Result<Nfs3Object> file = nfs_.make_file(names_folder_, name);
    if (!file)
      return tl::unexpected(file.error());
    names_.push_back({std::move(name), file->file_id});
  }
  return {};
}

Result<void> Nfs3Site::clear() {
  if (folder_name_.empty())
    return {};
  Result<void> all;
  // A repeated call may find the name removed already.
  auto keep_first = [&all](const Result<void>& done) {
    if (!done && all && done.error().code != Errc::kNotFound)
      all = done;
  };
  for (const Name& name : names_) {
    keep_first(nfs_.remove_file(names_folder_, name.name));
    if (!all)
      break;
  }
  if (all && !names_folder_.bytes().empty())
    keep_first(nfs_.remove_folder(folder_, kNames));
  for (size_t i = 0; all && i < files_.size(); ++i)
    keep_first(nfs_.remove_file(folder_, file_name(i)));
  if (all && !link_target_.empty())
    keep_first(nfs_.remove_file(folder_, kLink));
  if (all)
    keep_first(nfs_.remove_folder(root_, folder_name_));
  nfs3::unmount_export(target_);
  if (!all)
    return fail(all.error().code, "folder '" + folder_name_ + "' is left behind in export '" +
                                      target_.path + "': " + all.error().message);
  folder_name_.clear();
  return {};
}

}  // namespace rrdk::testrpc
