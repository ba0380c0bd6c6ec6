#include "journal.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace rrdk::survival {

Result<std::unique_ptr<Journal>> Journal::open(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  void* memory = MAP_FAILED;
  if (fd >= 0 && ::ftruncate(fd, sizeof(File)) == 0)
    memory = ::mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  int error = errno;
  if (fd >= 0)
    ::close(fd);
  if (memory == MAP_FAILED)
    return fail(Errc::kSystem, path + ": " + std::strerror(error));
  std::unique_ptr<Journal> journal(new Journal(static_cast<File*>(memory)));
  uint64_t count = journal->count();
  for (uint64_t i = count > kRecords ? count - kRecords : 0; i < count; ++i)
    journal->numbers_[key_of(journal->file_->records[i % kRecords])] = i;
  return journal;
}

Journal::~Journal() {
  ::munmap(file_, sizeof(File));
}

uint64_t Journal::add(const CallId& call) {
  auto known = numbers_.find(key_of(call));
  if (known == numbers_.end())
    return add_again(call);
  if (file_->records[known->second % kRecords].serial != call.serial) {
    file_->clashes.fetch_add(1);
    return add_again(call);
  }
  file_->answered.fetch_add(1);
  return known->second + 1;
}

uint64_t Journal::add_again(const CallId& call) {
  uint64_t number = count();
  CallId& record = file_->records[number % kRecords];
  if (number >= kRecords) {
    auto past = numbers_.find(key_of(record));
    if (past != numbers_.end() && past->second == number - kRecords)
      numbers_.erase(past);
  }
  record = call;
  numbers_[key_of(call)] = number;
  file_->count.store(number + 1, std::memory_order_release);  // here it happens
  return number + 1;
}

}  // namespace rrdk::survival
