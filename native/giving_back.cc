#include "giving_back.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "worker_pool.h"

namespace meshcache::giving_back {
namespace {

constexpr size_t kPieceBytes = size_t{64} << 20;
constexpr uint64_t kAtOnceBytes = uint64_t{16} << 20;
constexpr size_t kMemoryThreads = 2;
// Of files that are not in memory: a file system that hangs holds up others of its kind only.
constexpr size_t kFileThreads = 1;

// Never destroyed: memory may outlive all environments. Null: the system has no thread to give.
WorkerPool* make_threads(size_t count) {
  try {
    return new WorkerPool(count);
  } catch (const std::system_error&) {
    return nullptr;
  }
}

void run_on(WorkerPool* threads, std::function<void()> job) {
  if (threads != nullptr) return threads->submit(std::move(job));
  job();
}

}  // namespace

bool is_large(uint64_t bytes) { return bytes > kAtOnceBytes; }

void run(std::function<void()> job) {
  static WorkerPool* const threads = make_threads(kMemoryThreads);
  run_on(threads, std::move(job));
}

void drop_pages(uint8_t* begin, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kPieceBytes) {
    madvise(begin + at, std::min(kPieceBytes, bytes - at), MADV_DONTNEED);
  }
}

void close_file(int fd) {
  // Only files in memory have seals, and those never keep anybody waiting for their status.
  if (fcntl(fd, F_GET_SEALS) < 0) {
    // Later, the number could be that of another file.
    if (errno == EBADF) return;
    static WorkerPool* const threads = make_threads(kFileThreads);
    return run_on(threads, [fd] { close(fd); });
  }
  struct stat status {};
  const bool is_small = syscall(SYS_fstat, fd, &status) == 0 && !is_large(static_cast<uint64_t>(status.st_size));
  if (is_small) {
    close(fd);
  } else {
    run([fd] { close(fd); });
  }
}

}  // namespace meshcache::giving_back
