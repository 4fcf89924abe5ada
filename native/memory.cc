#include "memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

#include "contract.h"

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

}  // namespace

Mapping::Mapping(size_t length, uint32_t flags) : length_(length) {
  if (length == 0 || length > kMaxLength) fail("mmap", length == 0 ? EINVAL : ENOMEM, length);
  const bool shared = (flags & kMemoryShared) != 0;
  const bool huge = (flags & kMemoryHugePages) != 0;
  if (!huge || !map_huge(shared)) map_ordinary(shared, huge);
  // A child process has no use for it, and a core dump none for gigabytes of somebody's conversations.
  madvise(begin_, mapped_bytes_, MADV_DONTFORK);
  madvise(begin_, mapped_bytes_, MADV_DONTDUMP);
}

Mapping::~Mapping() {
  if (begin_ != nullptr) munmap(begin_, mapped_bytes_);
  if (fd_ >= 0) close(fd_);
}

// Pages of the hugetlb pool, which are reserved here: a mapping that succeeds has them all.
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
  return true;
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

MappingRef allocate(size_t length, uint32_t flags) {
  const auto unmap = [](const Mapping* mapping) {
    {
      std::lock_guard<std::mutex> lock(registry().mutex);
      registry().existing.erase(address_of(*mapping));
    }
    delete mapping;
  };
  MappingRef mapping(new Mapping(length, flags), unmap);
  std::lock_guard<std::mutex> lock(registry().mutex);
  registry().existing.emplace(address_of(*mapping), mapping);
  registry().owned.emplace(address_of(*mapping), mapping);
  return mapping;
}

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
  MappingRef last;  // let go when the lock is not held any more
  std::lock_guard<std::mutex> lock(registry().mutex);
  const auto found = registry().owned.find(addr);
  if (found == registry().owned.end()) return false;
  last = std::move(found->second);
  registry().owned.erase(found);
  return true;
}

}  // namespace mappings

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
