// Memory that goes under its readers, and the handler of SIGBUS. What ends a process is tried in a child.
#include "../fault_guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "../contract.h"
#include "../memory.h"
#include "../thread_signals.h"
#include "check.h"
#include "node.h"

namespace meshcache::tests {
namespace {

constexpr size_t kPage = 4096;

// An unlinked file of `bytes` full of ones.
int temporary_file(size_t bytes) {
  char path[] = "/dev/shm/meshcache-guard-XXXXXX";
  const int fd = mkostemp(path, O_CLOEXEC);
  CHECK(fd >= 0);
  unlink(path);
  const std::vector<uint8_t> ones(bytes, 1);
  CHECK_EQ(pwrite(fd, ones.data(), bytes, 0), static_cast<ssize_t>(bytes));
  return fd;
}

int error_of(int fd, size_t length, bool writable) {
  try {
    const MappingRef mapping = mappings::map_file(fd, length, writable);
    mappings::forget(reinterpret_cast<uint64_t>(mapping->begin()));
  } catch (const SystemError& error) {
    return error.errnum;
  }
  return 0;
}

uint8_t volatile_read(const uint8_t* at) { return *static_cast<const volatile uint8_t*>(at); }

// How a child process ends that does this.
template <class Action>
int status_of_child(Action action) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    action();
    _exit(0);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  return status;
}

// Memory beyond the end of its file that nobody guards.
const uint8_t* unguarded_hole() {
  const int fd = temporary_file(kPage);
  void* at = mmap(nullptr, 2 * kPage, PROT_READ, MAP_SHARED, fd, 0);
  return static_cast<const uint8_t*>(at) + kPage;
}

// With the handler in place.
void guard_something() {
  const int fd = temporary_file(kPage);
  const MappingRef mapping = mappings::map_file(fd, kPage, false);
  CHECK_EQ(volatile_read(mapping->begin()), 1);
  mappings::forget(reinterpret_cast<uint64_t>(mapping->begin()));
}

void exit_42(int) { _exit(42); }

}  // namespace

TEST(guard_cut_short, "guard: what is beyond the new end of a file is zeros that may be written over, the rest stays") {
  const size_t descriptors = open_descriptors();
  const int fd = temporary_file(8 * kPage);
  MappingRef mapping = mappings::map_file(fd, 8 * kPage - 100, true);
  MappingRef other = mappings::map_file(temporary_file(kPage), kPage, true);
  uint8_t* const begin = mapping->begin();
  CHECK(!mapping->is_damaged());
  CHECK_EQ(ftruncate(fd, 3 * kPage), 0);
  CHECK_EQ(volatile_read(begin + 5 * kPage + 7), 0);
  CHECK_EQ(volatile_read(begin + kPage), 1);
  // Longer again: it was damaged all the same.
  CHECK_EQ(ftruncate(fd, 8 * kPage), 0);
  CHECK(mapping->is_damaged());
  CHECK_EQ(ftruncate(fd, 0), 0);
  memset(begin, 5, mapping->length());
  CHECK_EQ(volatile_read(begin), 5);
  CHECK_EQ(volatile_read(begin + mapping->length() - 1), 5);
  CHECK(!other->is_damaged());
  CHECK_EQ(volatile_read(other->begin()), 1);
  for (MappingRef* held : {&mapping, &other}) {
    CHECK(mappings::forget(reinterpret_cast<uint64_t>((*held)->begin())));
    *held = nullptr;
  }
  CHECK_EQ(open_descriptors(), descriptors);
}

TEST(guard_noticed, "guard: a file that is too short is noticed without an access, and is damaged for good") {
  const int fd = temporary_file(2 * kPage);
  const MappingRef mapping = mappings::map_file(fd, 2 * kPage, false);
  CHECK(!mapping->is_damaged());
  CHECK_EQ(ftruncate(fd, 2 * kPage - 1), 0);
  CHECK(mapping->is_damaged());
  CHECK_EQ(ftruncate(fd, 2 * kPage), 0);
  CHECK(mapping->is_damaged());
  mappings::forget(reinterpret_cast<uint64_t>(mapping->begin()));
}

TEST(guard_given_back, "guard: freed memory of a file is zeros at once, for those who hold it still") {
  const size_t descriptors = open_descriptors();
  const int fd = temporary_file(4 * kPage);
  const int again = dup(fd);
  const MappingRef mapping = mappings::map_file(fd, 4 * kPage, false);
  CHECK_EQ(volatile_read(mapping->begin()), 1);
  CHECK(mappings::forget(reinterpret_cast<uint64_t>(mapping->begin())));
  CHECK_EQ(mapping->fd(), -1);
  CHECK_EQ(open_descriptors(), descriptors + 1);
  CHECK_EQ(ftruncate(again, 0), 0);
  memset(mapping->begin(), 3, 4 * kPage);
  CHECK_EQ(volatile_read(mapping->begin() + kPage), 3);
  close(again);
}

TEST(guard_refused, "guard: what cannot be mapped is refused, and its descriptor stays the caller's") {
  const int fd = temporary_file(kPage);
  CHECK_EQ(error_of(fd, kPage + 1, true), EINVAL);
  CHECK_EQ(error_of(fd, 0, true), EINVAL);
  CHECK_EQ(error_of(fd, SIZE_MAX, true), ENOMEM);
  int ends[2];
  CHECK_EQ(pipe(ends), 0);
  CHECK_EQ(error_of(ends[0], 1, false), EINVAL);
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const int reader = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const int writer = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const int handle = open(path.c_str(), O_PATH | O_CLOEXEC);
  CHECK_EQ(error_of(reader, kPage, true), EACCES);
  CHECK_EQ(error_of(writer, kPage, false), EACCES);
  CHECK_EQ(error_of(handle, kPage, false), EACCES);
  for (const int open_still : {ends[0], ends[1], reader, writer, handle}) CHECK_EQ(close(open_still), 0);
  CHECK_EQ(error_of(reader, kPage, false), EBADF);
  CHECK_EQ(error_of(fd, kPage, true), 0);
  CHECK_EQ(fcntl(fd, F_GETFD), -1);
}

TEST(guard_threads, "guard: files are cut short under many threads that read and write, map and free") {
  std::atomic<bool> ends{false};
  // Entries of the table come and go while others fault.
  std::thread churn([&ends] {
    while (!ends) {
      const MappingRef mapping = mappings::map_file(temporary_file(kPage), kPage, true);
      if (volatile_read(mapping->begin()) != 1) fake::misuse("a mapping was harmed by another");
      mappings::forget(reinterpret_cast<uint64_t>(mapping->begin()));
    }
  });
  for (int round = 0; round < 40; round++) {
    const int fd = temporary_file(64 * kPage);
    const MappingRef mapping = mappings::map_file(fd, 64 * kPage, true);
    uint8_t* const begin = mapping->begin();
    std::vector<std::thread> threads;
    for (size_t i = 0; i < 3; i++) {
      threads.emplace_back([begin, i, seed] {
        std::mt19937_64 random(seed + i);
        for (int access = 0; access < 2000; access++) {
          auto* at = reinterpret_cast<std::atomic<uint8_t>*>(begin + random() % (64 * kPage));
          if (random() % 2 == 0) at->store(2, std::memory_order_relaxed);
          if (at->load(std::memory_order_relaxed) > 2) fake::misuse("a byte that nobody wrote");
        }
      });
    }
    for (size_t pages = 64; pages-- > 0;) CHECK_EQ(ftruncate(fd, static_cast<off_t>(pages * kPage)), 0);
    if (round % 2 == 0) mappings::forget(reinterpret_cast<uint64_t>(begin));
    for (std::thread& thread : threads) thread.join();
    if (round % 2 == 0) continue;
    CHECK(mapping->is_damaged());
    mappings::forget(reinterpret_cast<uint64_t>(begin));
  }
  ends = true;
  churn.join();
}

TEST(guard_blocked, "guard: threads that take no signals survive all the same") {
  const int fd = temporary_file(2 * kPage);
  const MappingRef mapping = mappings::map_file(fd, 2 * kPage, true);
  CHECK_EQ(ftruncate(fd, 0), 0);
  std::thread thread;
  {
    const SignalsBlocked blocked;
    thread = std::thread([&mapping] { memset(mapping->begin(), 1, mapping->length()); });
  }
  thread.join();
  CHECK(mapping->is_damaged());
  CHECK_EQ(volatile_read(mapping->begin() + kPage), 1);
  mappings::forget(reinterpret_cast<uint64_t>(mapping->begin()));
}

// Files of huge pages are there without any such page; what is in them is not.
TEST(guard_huge, "guard: files of huge pages are mapped in whole ones, and cut short in whole ones") {
  constexpr size_t kHuge = size_t{2} << 20;
  const int fd = static_cast<int>(syscall(SYS_memfd_create, "meshcache-test", MFD_CLOEXEC | MFD_HUGETLB | (21u << 26)));
  if (fd < 0) return;
  CHECK_EQ(ftruncate(fd, 2 * kHuge), 0);
  CHECK_EQ(error_of(fd, kHuge + kPage, true), EINVAL);
  MappingRef mapping;
  try {
    mapping = mappings::map_file(fd, 2 * kHuge, true);
  } catch (const SystemError& error) {
    CHECK_EQ(error.errnum, ENOMEM);
    printf(" (no huge pages)");
    close(fd);
    return;
  }
  CHECK_EQ(mapping->page_bytes(), kHuge);
  memset(mapping->begin(), 1, 2 * kHuge);
  CHECK_EQ(ftruncate(fd, kHuge), 0);
  CHECK_EQ(volatile_read(mapping->begin() + kHuge + 12'345), 0);
  CHECK_EQ(volatile_read(mapping->begin() + 12'345), 1);
  CHECK(mapping->is_damaged());
  mappings::forget(reinterpret_cast<uint64_t>(mapping->begin()));
  CHECK_EQ(volatile_read(mapping->begin()), 0);
}

TEST(guard_exhausted, "guard: there is an end to the ranges that are guarded, and one that goes makes room") {
  std::vector<std::unique_ptr<FaultGuard>> guards;
  auto* at = reinterpret_cast<uint8_t*>(uintptr_t{1} << 46);  // nothing is mapped there, and nobody looks
  int error = 0;
  while (error == 0 && guards.size() <= FaultGuard::kMaxCount) {
    try {
      guards.push_back(std::make_unique<FaultGuard>(at + guards.size() * kPage, kPage, kPage));
    } catch (const SystemError& failure) {
      error = failure.errnum;
    }
  }
  CHECK_EQ(error, ENOSPC);
  CHECK_EQ(guards.size(), FaultGuard::kMaxCount);
  guards.erase(guards.begin() + 17);
  guards.push_back(std::make_unique<FaultGuard>(at, kPage, kPage));
}

TEST(guard_others, "guard: faults of others, and signals that are sent, do what they did before") {
  guard_something();
  struct sigaction ours {};
  CHECK_EQ(sigaction(SIGBUS, nullptr, &ours), 0);
  CHECK((ours.sa_flags & SA_SIGINFO) != 0);
  const int fault = status_of_child([] { volatile_read(unguarded_hole()); });
  CHECK(WIFSIGNALED(fault));
  CHECK_EQ(WTERMSIG(fault), SIGBUS);
  const int sent = status_of_child([] { raise(SIGBUS); });
  CHECK(WIFSIGNALED(sent));
  CHECK_EQ(WTERMSIG(sent), SIGBUS);
}

TEST(guard_replaced, "guard: another handler that has taken the place of the guard is left there, and nothing more is mapped") {
  guard_something();
  const int status = status_of_child([] {
    signal(SIGBUS, exit_42);
    const int fd = temporary_file(kPage);
    if (error_of(fd, kPage, false) != EBUSY) _exit(1);
    volatile_read(unguarded_hole());
  });
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 42);
}

}  // namespace meshcache::tests
