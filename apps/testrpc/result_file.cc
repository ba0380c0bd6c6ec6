#include "result_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

namespace rrdk::testrpc {
namespace {

constexpr int kMostLinks = 40;  // as the kernel has it

Result<void> system_error(const std::string& what) {
  return fail(Errc::kSystem, what + ": " + std::strerror(errno));
}

// Where a symbolic link leads, whether anything is there or not; else the path itself.
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

std::string temporary_of(const std::string& path) {
  return path + "." + std::to_string(getpid()) + ".tmp";
}

// A pipe that nobody reads is an error here (EPIPE), not the end of the process: SIGPIPE is caught.
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

}  // namespace

Result<ResultFile> ResultFile::open(const std::string& path) {
  ResultFile file;
  if (path.empty())
    return file;
  struct stat there = {}, out = {};
  bool exists = stat(path.c_str(), &there) == 0;
  bool is_stdout = exists && fstat(STDOUT_FILENO, &out) == 0 && there.st_dev == out.st_dev &&
                   there.st_ino == out.st_ino;
  file.path_ = path;
  if (path == "-" || is_stdout) {
    std::fflush(stdout);
    file.stdout_ = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (file.stdout_ < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
      return tl::unexpected(system_error("cannot write to stdout").error());
    return file;
  }
  if (exists && !S_ISREG(there.st_mode)) {
    errno = S_ISDIR(there.st_mode) ? EISDIR : errno;
    if (S_ISDIR(there.st_mode) || access(path.c_str(), W_OK) != 0)
      return tl::unexpected(system_error("cannot write " + path).error());
    return file;
  }
  file.replaced_ = true;
  file.path_ = target_of(path);
  std::string temporary = temporary_of(file.path_);
  int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0)
    return tl::unexpected(system_error("cannot write " + temporary).error());
  close(fd);
  unlink(temporary.c_str());
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
  if (stdout_ >= 0)
    return write_all(stdout_, text, "to stdout");
  std::string name = replaced_ ? temporary_of(path_) : path_;
  // No O_TRUNC, which a device may refuse: what is written into is no regular file.
  int fd = ::open(name.c_str(), O_WRONLY | O_CLOEXEC | (replaced_ ? O_CREAT | O_TRUNC : 0), 0666);
  if (fd < 0)
    return system_error("cannot write " + name);
  struct stat before = {};
  if (replaced_ && stat(path_.c_str(), &before) == 0)
    (void)fchmod(fd, before.st_mode & 07777);
  Result<void> written = write_all(fd, text, name);
  if (close(fd) != 0 && written)
    written = system_error("cannot write " + name);
  if (written && replaced_ && rename(name.c_str(), path_.c_str()) != 0)
    written = system_error("cannot write " + path_);
  if (!written && replaced_)
    unlink(name.c_str());
  return written;
}

Result<ResultFiles> ResultFiles::open(const std::string& json, const std::string& csv) {
  ResultFiles files;
  for (auto [file, path] : {std::pair{&files.json, &json}, std::pair{&files.csv, &csv}}) {
    Result<ResultFile> opened = ResultFile::open(*path);
    if (!opened)
      return tl::unexpected(opened.error());
    *file = std::move(*opened);
  }
  if (files.json.is_stdout() && files.csv.is_stdout())
    return fail(Errc::kInvalidArgument, "--json and --csv cannot both go to stdout");
  return files;
}

}  // namespace rrdk::testrpc
