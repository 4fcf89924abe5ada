#include "memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "contract.h"
#include "giving_back.h"

// Newer than the oldest headers that this is to be built with.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MFD_HUGETLB
#define MFD_HUGETLB 4U
#endif

namespace meshcache {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr int kHugePage2MiB = 21 << 26;  // MAP_HUGE_2MB and MFD_HUGE_2MB: log2 of the size in the upper bits
constexpr size_t kMaxLength = size_t{1} << 46;

size_t system_page_bytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

[[noreturn]] void fail(const char* call, int error, size_t length) {
  throw SystemError(call, error,
                    std::string(call) + " of " + std::to_string(length) + " bytes: " + std::strerror(error));
}

[[noreturn]] void refuse_file(int error, const std::string& why) { throw SystemError("map", error, why); }

// The system call itself: glibc's function is of a newer version than the oldest that this is to run with.
int status_of(int fd, struct stat& status) {
  return syscall(SYS_fstat, fd, &status) == 0 ? 0 : errno;
}

// Size of the pages that the file is mapped with. Throws SystemError when it is no file that can be mapped so.
size_t checked_page_bytes(int fd, size_t length, bool writable) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0) refuse_file(errno, std::string("the descriptor cannot be used: ") + std::strerror(errno));
  const int access = flags & O_ACCMODE;
  if ((flags & O_PATH) != 0 || access == O_WRONLY) refuse_file(EACCES, "the file is not open for reading");
  // Before anything that is up to the file system: there may be a process behind it that never answers (FUSE).
  if (fcntl(fd, F_GET_SEALS) < 0) {
    refuse_file(EINVAL, "the file is not in memory: a memfd, or a file on tmpfs (/dev/shm) or hugetlbfs, can be mapped");
  }
  if (writable && access != O_RDWR) refuse_file(EACCES, "the file is not open for reading and writing");
  struct stat status {};
  const int error = status_of(fd, status);
  if (error != 0) refuse_file(error, std::string("the descriptor cannot be used: ") + std::strerror(error));
  if (!S_ISREG(status.st_mode)) refuse_file(EINVAL, "the descriptor is not one of a regular file");
  if (static_cast<uint64_t>(status.st_size) < length) {
    refuse_file(EINVAL, "the file has " + std::to_string(status.st_size) + " bytes, which is less than the length of " +
                            std::to_string(length));
  }
  struct statfs system {};
  if (fstatfs(fd, &system) != 0) refuse_file(errno, "the file system of the file cannot be told");
  if (static_cast<uint32_t>(system.f_type) != static_cast<uint32_t>(HUGETLBFS_MAGIC)) return system_page_bytes();
  const auto huge = static_cast<size_t>(system.f_bsize);
  if (length % huge != 0) {
    refuse_file(EINVAL, "the file is of huge pages: the length must be a multiple of " + std::to_string(huge));
  }
  return huge;
}

// A file in memory that nobody can cut short under the mapping. Returns -1 with errno.
int sealed_memory_file(size_t length, unsigned flags) {
  const int fd = static_cast<int>(syscall(SYS_memfd_create, "meshcache", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags));
  if (fd < 0) return -1;
  if (ftruncate(fd, static_cast<off_t>(length)) == 0 &&
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    return fd;
  }
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

struct Registry {
  std::mutex mutex;
  // Allocated and not freed.
  std::map<uint64_t, MappingRef> owned;
  // All that exist. Not taken out after the memory is unmapped but before: its address may come again at once.
  std::map<uint64_t, std::weak_ptr<const Mapping>> existing;
};

// Never destroyed: other threads may still be at work when the process ends.
Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

uint64_t address_of(const Mapping& mapping) { return reinterpret_cast<uint64_t>(mapping.begin()); }

// Whether the kernel has MADV_POPULATE_WRITE (5.14).
bool can_populate() {
  static const bool can = [] {
    void* page = mmap(nullptr, system_page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return false;
    const bool done = madvise(page, system_page_bytes(), MADV_POPULATE_WRITE) == 0;
    munmap(page, system_page_bytes());
    return done;
  }();
  return can;
}

// An atomic change of nothing: a concurrent writer loses none of what it writes.
void touch(uint64_t addr) {
  __atomic_fetch_or(reinterpret_cast<uint8_t*>(addr), static_cast<uint8_t>(0), __ATOMIC_RELAXED);
}

// A child process has no use for it, and a core dump none for gigabytes of somebody's conversations.
void keep_to_this_process(void* begin, size_t bytes) {
  madvise(begin, bytes, MADV_DONTFORK);
  madvise(begin, bytes, MADV_DONTDUMP);
}

}  // namespace

Mapping::Mapping(size_t length, uint32_t flags) : length_(length) {
  if (length == 0 || length > kMaxLength) fail("mmap", length == 0 ? EINVAL : ENOMEM, length);
  const bool shared = (flags & kMemoryShared) != 0;
  const bool huge = (flags & kMemoryHugePages) != 0;
  if (!huge || !map_huge(shared)) map_ordinary(shared, huge);
  keep_to_this_process(begin_, mapped_bytes_);
}

Mapping::Mapping(int fd, size_t length, bool writable) : length_(length), writable_(writable) {
  if (length == 0 || length > kMaxLength) fail("mmap", length == 0 ? EINVAL : ENOMEM, length);
  page_bytes_ = checked_page_bytes(fd, length, writable);
  const size_t bytes = round_up(length, page_bytes_);
  void* at = mmap(nullptr, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) fail("mmap", errno, length);
  begin_ = static_cast<uint8_t*>(at);
  mapped_bytes_ = bytes;
  try {
    guard_ = std::make_unique<FaultGuard>(begin_, bytes, page_bytes_);
  } catch (...) {
    unmap();
    throw;
  }
  keep_to_this_process(begin_, mapped_bytes_);
  fd_ = fd;
}

Mapping::~Mapping() {
  if (begin_ != nullptr) unmap();
  if (fd_ >= 0) giving_back::close_file(fd_);
}

void Mapping::unmap() {
  guard_ = nullptr;
  giving_back::drop_pages(begin_, mapped_bytes_);
  munmap(begin_, mapped_bytes_);
}

int Mapping::fd() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return fd_;
}

bool Mapping::is_damaged() const {
  if (guard_ == nullptr) return false;
  std::lock_guard<std::mutex> lock(mutex_);
  struct stat status {};
  if (fd_ >= 0 && (status_of(fd_, status) != 0 || static_cast<uint64_t>(status.st_size) < length_)) cut_short_ = true;
  return cut_short_ || guard_->is_damaged();
}

void Mapping::give_back() const {
  if (fd() < 0) return;
  given_back_ = true;
  giving_back::drop_pages(begin_, mapped_bytes_);
  std::lock_guard<std::mutex> lock(mutex_);
  // Where there is no memory for that, the file stays mapped for as long as somebody holds the mapping.
  if (map_zero_pages(address_of(*this), mapped_bytes_)) keep_to_this_process(begin_, mapped_bytes_);
  giving_back::close_file(fd_);
  fd_ = -1;
}

// Pages of the hugetlb pool, which are reserved here: a mapping that succeeds has them all. Another process that shares them
// can still give pages of the file back, and the pool have none then: such memory is guarded.
bool Mapping::map_huge(bool shared) {
  const size_t bytes = round_up(length_, kHugePageBytes);
  if (shared) {
    fd_ = sealed_memory_file(bytes, MFD_HUGETLB | kHugePage2MiB);
    if (fd_ < 0) return false;
  }
  const int kind = shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kind | MAP_HUGETLB | kHugePage2MiB, fd_, 0);
  if (at == MAP_FAILED) {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
    return false;
  }
  begin_ = static_cast<uint8_t*>(at);
  mapped_bytes_ = bytes;
  page_bytes_ = kHugePageBytes;
  if (!shared) return true;
  try {
    guard_ = std::make_unique<FaultGuard>(begin_, bytes, page_bytes_);
    return true;
  } catch (const SystemError&) {
    unmap();
    close(fd_);
    begin_ = nullptr;
    fd_ = -1;
    return false;
  }
}

void Mapping::map_ordinary(bool shared, bool transparent_huge_pages) {
  const size_t page = system_page_bytes();
  // The system makes huge pages only of ranges that begin and end at their boundaries.
  const bool align = transparent_huge_pages && length_ >= kHugePageBytes;
  const size_t bytes = round_up(length_, align ? kHugePageBytes : page);
  if (shared) {
    fd_ = sealed_memory_file(bytes, 0);
    if (fd_ < 0) fail("memfd_create", errno, length_);
  }
  // Room to choose an aligned place in; what is not used of it is given back at once.
  const size_t room = align ? bytes + kHugePageBytes : bytes;
  const int protection = PROT_READ | PROT_WRITE;
  uint8_t* at = nullptr;
  if (align) {
    void* reserved = mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved != MAP_FAILED) {
      auto* start = static_cast<uint8_t*>(reserved);
      at = reinterpret_cast<uint8_t*>(round_up(reinterpret_cast<uintptr_t>(start), kHugePageBytes));
      if (at > start) munmap(start, static_cast<size_t>(at - start));
      if (at + bytes < start + room) munmap(at + bytes, static_cast<size_t>(start + room - (at + bytes)));
    }
  }
  const int kind = (shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS) | (at != nullptr ? MAP_FIXED : 0);
  void* mapped = mmap(at, bytes, protection, kind, fd_, 0);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    if (at != nullptr) munmap(at, bytes);
    if (fd_ >= 0) close(fd_);
    fail("mmap", error, length_);
  }
  begin_ = static_cast<uint8_t*>(mapped);
  mapped_bytes_ = bytes;
  page_bytes_ = page;
  if (align) madvise(begin_, bytes, MADV_HUGEPAGE);
}

namespace mappings {

namespace {

MappingRef add(const Mapping* made) {
  const auto unmap = [](const Mapping* mapping) {
    {
      std::lock_guard<std::mutex> lock(registry().mutex);
      registry().existing.erase(address_of(*mapping));
    }
    if (giving_back::is_large(mapping->length())) return giving_back::run([mapping] { delete mapping; });
    delete mapping;
  };
  MappingRef mapping(made, unmap);
  std::lock_guard<std::mutex> lock(registry().mutex);
  registry().existing.emplace(address_of(*mapping), mapping);
  registry().owned.emplace(address_of(*mapping), mapping);
  return mapping;
}

}  // namespace

MappingRef allocate(size_t length, uint32_t flags) { return add(new Mapping(length, flags)); }

MappingRef map_file(int fd, size_t length, bool writable) { return add(new Mapping(fd, length, writable)); }

MappingRef at(uint64_t addr) {
  std::lock_guard<std::mutex> lock(registry().mutex);
  const auto found = registry().owned.find(addr);
  return found == registry().owned.end() ? nullptr : found->second;
}

MappingRef around(uint64_t addr, uint64_t length) {
  MappingRef last;  // let go, if it has become the only one, when the lock is not held any more
  std::lock_guard<std::mutex> lock(registry().mutex);
  auto found = registry().existing.upper_bound(addr);
  if (found == registry().existing.begin()) return nullptr;
  --found;
  MappingRef mapping = found->second.lock();
  const uint64_t offset = addr - found->first;
  if (mapping == nullptr || offset > mapping->length() || length > mapping->length() - offset) {
    last = std::move(mapping);
    return nullptr;
  }
  return mapping;
}

bool forget(uint64_t addr) {
  MappingRef freed;  // let go when the lock is not held any more
  {
    std::lock_guard<std::mutex> lock(registry().mutex);
    const auto found = registry().owned.find(addr);
    if (found == registry().owned.end()) return false;
    freed = std::move(found->second);
    registry().owned.erase(found);
  }
  if (giving_back::is_large(freed->length())) {
    giving_back::run([freed = std::move(freed)] { freed->give_back(); });
  } else {
    freed->give_back();
  }
  return true;
}

}  // namespace mappings

uint64_t absent_bytes(uint64_t addr, uint64_t length) {
  constexpr uint64_t kMaxPages = 4096;
  const uint64_t page = system_page_bytes();
  unsigned char is_present[kMaxPages];
  uint64_t absent = 0;
  const uint64_t end = round_up(addr + length, page);
  for (uint64_t at = addr / page * page; at < end;) {
    const uint64_t count = std::min(kMaxPages, (end - at) / page);
    if (mincore(reinterpret_cast<void*>(at), count * page, is_present) != 0) return absent;
    for (uint64_t i = 0; i < count; i++) absent += (is_present[i] & 1) != 0 ? 0 : page;
    at += count * page;
  }
  return absent;
}

int provide_memory(uint64_t addr, uint64_t length) {
  if (length == 0) return 0;
  const uint64_t page = system_page_bytes();
  const uint64_t end = addr + length;
  if (can_populate()) {
    const uint64_t start = addr / page * page;
    for (;;) {
      if (madvise(reinterpret_cast<void*>(start), end - start, MADV_POPULATE_WRITE) == 0) return 0;
      if (errno != EAGAIN && errno != EINTR) return errno;
    }
  }
  for (uint64_t at = addr; at < end; at = (at / page + 1) * page) touch(at);
  return 0;
}

}  // namespace meshcache
