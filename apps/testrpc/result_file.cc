#include "result_file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <utility>

namespace rrdk::testrpc {
namespace {

constexpr int kMostLinks = 40;  // the kernel's limit

Result<void> system_error(const std::string& what) {
  return fail(Errc::kSystem, what + ": " + std::strerror(errno));
}

// For errors before any work: a path that does not exist is a wrong argument.
Result<void> bad_place(const std::string& path) {
  constexpr int kOfThePath[] = {ENOENT, ENOTDIR, EISDIR, ELOOP, ENAMETOOLONG};
  const bool wrong = std::ranges::find(kOfThePath, errno) != std::end(kOfThePath);
  return fail(wrong ? Errc::kInvalidArgument : Errc::kSystem,
              "cannot write " + path + ": " + std::strerror(errno));
}

// Returns the target of a symbolic link, existing or not, or else the path itself.
std::string target_of(const std::string& path) {
  std::filesystem::path at = path;
  std::error_code error;
  for (int links = 0; links < kMostLinks && std::filesystem::is_symlink(at, error); ++links) {
    std::filesystem::path next = std::filesystem::read_symlink(at, error);
    if (error)
      break;
    at = next.is_absolute() ? next : at.parent_path() / next;
  }
  return at.string();
}

// Makes a new file beside `path`. An existing file of that name, in particular a link, is left
// alone.
int make_beside(const std::string& path, std::string& name) {
  uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number)
    return -1;
  char text[32];
  std::snprintf(text, sizeof text, ".%016llx.tmp", static_cast<unsigned long long>(number));
  name = path + text;
  return ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
}

// A pipe without a reader is an error here (EPIPE), not the end of the process: SIGPIPE is caught.
Result<void> write_all(int fd, const std::string& text, const std::string& name) {
  for (size_t done = 0; done < text.size();) {
    ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return system_error("cannot write " + name);
    done += static_cast<size_t>(n);
  }
  return {};
}

// A full disk or file server may be reported only now. Pipes and devices have no fsync.
Result<void> sync_and_close(int fd, const std::string& name) {
  const bool synced = fsync(fd) == 0 || errno == EINVAL || errno == EROFS || errno == ENOTSUP;
  const int error = errno;
  if (close(fd) != 0)
    return system_error("cannot write " + name);
  errno = error;
  return synced ? Result<void>() : system_error("cannot write " + name);
}

// Returns the same path for two names of a file that does not exist yet.
std::filesystem::path resolved(const std::string& path) {
  std::error_code error;
  return std::filesystem::weakly_canonical(std::filesystem::absolute(target_of(path), error),
                                           error);
}

bool same_inode(const struct stat& one, const struct stat& other) {
  return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

// Returns whether both name the same file, where one text would overwrite or interrupt the other. A
// device may take both.
bool same_place(const std::string& one, const std::string& other) {
  struct stat first = {}, second = {};
  if (stat(one.c_str(), &first) == 0 && stat(other.c_str(), &second) == 0)
    return same_inode(first, second) && !S_ISCHR(first.st_mode);
  return resolved(one) == resolved(other);
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(target_of(path)).parent_path().string();
  return folder.empty() ? "." : folder;
}

bool is_stdouts(const std::string& path) {
  struct stat there = {}, out = {};
  return stat(path.c_str(), &there) == 0 && fstat(STDOUT_FILENO, &out) == 0 &&
         same_inode(there, out);
}

}  // namespace

Result<ResultFile> ResultFile::open(const std::string& path) {
  ResultFile file;
  if (path.empty())
    return file;
  file.path_ = path;
  if (path == "-" || is_stdouts(path)) {
    std::fflush(stdout);
    file.stdout_ = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (file.stdout_ < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
      return tl::unexpected(system_error("cannot write to stdout").error());
    return file;
  }
  struct stat there = {};
  const bool exists = stat(path.c_str(), &there) == 0;
  if (!exists && errno != ENOENT)
    return tl::unexpected(bad_place(path).error());
  const bool writable = exists && !S_ISDIR(there.st_mode) && access(path.c_str(), W_OK) == 0;
  if (exists && !S_ISREG(there.st_mode)) {
    errno = S_ISDIR(there.st_mode) ? EISDIR : errno;
    if (!writable)
      return tl::unexpected(bad_place(path).error());
    return file;
  }
  file.path_ = target_of(path);
  std::string name;
  const int fd = make_beside(file.path_, name);
  file.replaced_ = fd >= 0;
  if (fd < 0 && !writable)
    return tl::unexpected(bad_place(path).error());
  if (fd >= 0) {
    close(fd);
    unlink(name.c_str());
  }
  return file;
}

ResultFile::ResultFile(ResultFile&& other) noexcept {
  *this = std::move(other);
}

ResultFile& ResultFile::operator=(ResultFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(stdout_, other.stdout_);
  std::swap(replaced_, other.replaced_);
  return *this;
}

ResultFile::~ResultFile() {
  if (stdout_ >= 0)
    close(stdout_);
}

Result<void> ResultFile::write(const std::string& text) {
  if (stdout_ >= 0) {
    Result<void> written = write_all(stdout_, text, "to stdout");
    if (close(std::exchange(stdout_, -1)) != 0 && written)
      written = system_error("cannot write to stdout");
    return written;
  }
  std::string copy;
  Result<void> written = replaced_ ? write_beside(text, copy) : write_into(text);
  if (written && replaced_ && rename(copy.c_str(), path_.c_str()) != 0) {
    if (written = write_into(text); !written)
      return fail(Errc::kSystem, written.error().message + "; the results are in " + copy);
    unlink(copy.c_str());
  }
  if (written)
    return written;
  std::fflush(stdout);
  const bool printed = write_all(STDOUT_FILENO, text, "to stdout").has_value();
  return fail(Errc::kSystem, written.error().message +
                                 (printed ? "; the results are on stdout" : "; they are lost"));
}

// Writes a complete copy, or none.
Result<void> ResultFile::write_beside(const std::string& text, std::string& copy) {
  const int fd = make_beside(path_, copy);
  if (fd < 0)
    return system_error("cannot write " + path_);
  struct stat before = {};
  if (stat(path_.c_str(), &before) == 0)
    (void)fchmod(fd, before.st_mode & 07777);
  Result<void> written = write_all(fd, text, path_);
  Result<void> closed = sync_and_close(fd, path_);
  if (written = written ? closed : written; !written)
    unlink(copy.c_str());
  return written;
}

Result<void> ResultFile::write_into(const std::string& text) {
  const int fd = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0)
    return system_error("cannot write " + path_);
  struct stat there = {};
  Result<void> written;
  if (fstat(fd, &there) == 0 && S_ISREG(there.st_mode) && ftruncate(fd, 0) != 0)
    written = system_error("cannot write " + path_);
  if (written)
    written = write_all(fd, text, path_);
  Result<void> closed = sync_and_close(fd, path_);
  return written ? closed : written;
}

Result<ResultFiles> ResultFiles::open(const Options& options) {
  const std::pair<const char*, const std::string*> all[] = {
      {"--json", &options.json}, {"--csv", &options.csv}, {"--capture", &options.capture}};
  for (const auto* one = std::begin(all); one != std::end(all); ++one) {
    for (const auto* other = std::begin(all); other != one; ++other) {
      if (!one->second->empty() && !other->second->empty() &&
          same_place(*one->second, *other->second))
        return fail(Errc::kInvalidArgument,
                    std::string(other->first) + " and " + one->first + " are the same file");
    }
  }
  if (!options.capture.empty() && same_place(options.capture, "/dev/stdout"))
    return fail(Errc::kInvalidArgument,
                "--capture and stdout are the same file, where the table goes as well");
  if (!options.capture.empty() && access(folder_of(options.capture).c_str(), F_OK) != 0)
    return tl::unexpected(bad_place(options.capture).error());
  ResultFiles files;
  for (auto [file, path] :
       {std::pair{&files.json, &options.json}, std::pair{&files.csv, &options.csv}}) {
    Result<ResultFile> opened = ResultFile::open(*path);
    if (!opened)
      return tl::unexpected(opened.error());
    *file = std::move(*opened);
  }
  if (files.json.is_stdout() && files.csv.is_stdout())
    return fail(Errc::kInvalidArgument, "--json and --csv cannot both go to stdout");
  return files;
}

Result<void> close_stdout() {
  const bool lost = std::ferror(stdout) != 0;
  errno = 0;
  if (std::fclose(stdout) == 0 && !lost)
    return {};
  const std::string why = errno != 0 ? std::string(": ") + std::strerror(errno) : "";
  return fail(Errc::kSystem, "the output is incomplete: cannot write to stdout" + why);
}

}  // namespace rrdk::testrpc
