#include "fault_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <string>

#include "system_error.h"

namespace meshcache {
namespace {

struct Entry {
  std::atomic<uint32_t> version{0};  // odd: being changed
  std::atomic<uint64_t> begin{0};
  std::atomic<uint64_t> end{0};  // 0: the entry is free
  std::atomic<uint64_t> page_bytes{0};
  std::atomic<bool> damaged{false};
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

Entry entries[FaultGuard::kMaxCount];
// Entries that were ever in use come first.
std::atomic<size_t> used_count{0};

std::mutex& writers() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

// Written once, before the handler is installed.
bool is_installed = false;
pid_t process = 0;
struct sigaction previous {};

void change(Entry& entry, uint64_t begin, uint64_t end, uint64_t page_bytes) {
  entry.version++;
  entry.begin = begin;
  entry.end = end;
  entry.page_bytes = page_bytes;
  entry.damaged = false;
  entry.version++;
}

// Whether the address is in a guarded range, and there is memory in its place now.
bool repair(uint64_t addr) {
  // A child that was forked off has the table, but not the memory.
  if (getpid() != process) return false;
  const size_t count = used_count;
  for (size_t i = 0; i < count; i++) {
    Entry& entry = entries[i];
    const uint32_t version = entry.version;
    const uint64_t begin = entry.begin;
    const uint64_t end = entry.end;
    const uint64_t page_bytes = entry.page_bytes;
    if (version % 2 != 0 || version != entry.version || addr < begin || addr >= end) continue;
    entry.damaged = true;
    // All of it where a part cannot be: one mapping more might be one too many.
    const uint64_t page = addr - (addr - begin) % page_bytes;
    return map_zero_pages(page, end - page) || map_zero_pages(begin, end - begin);
  }
  return false;
}

// As if this handler were not there.
void pass_on(int signal, siginfo_t* info, void* context) {
  if ((previous.sa_flags & SA_SIGINFO) != 0) return previous.sa_sigaction(signal, info, context);
  const bool is_default = previous.sa_handler == SIG_DFL;
  if (!is_default && previous.sa_handler != SIG_IGN) return previous.sa_handler(signal);
  // A fault comes again when this returns; what was sent does not.
  const bool was_sent = info->si_code <= 0 || info->si_code == BUS_MCEERR_AO;
  if (was_sent && !is_default) return;
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  sigaction(signal, &action, nullptr);
  if (was_sent) syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), signal);
}

void handle(int signal, siginfo_t* info, void* context) {
  const int before = errno;
  const bool is_fault = info->si_code == BUS_ADRERR || info->si_code == BUS_MCEERR_AR;
  if (!is_fault || !repair(reinterpret_cast<uint64_t>(info->si_addr))) pass_on(signal, info, context);
  errno = before;
}

// Under the mutex.
void install() {
  struct sigaction now {};
  if (sigaction(SIGBUS, nullptr, &now) != 0) throw SystemError("sigaction", errno, "SIGBUS cannot be handled");
  const bool is_ours = (now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == handle;
  if (is_ours) return;
  if (is_installed) {
    throw SystemError("sigaction", EBUSY,
                      "another handler of SIGBUS has taken the place of the one that guards memory of other processes");
  }
  previous = now;
  process = getpid();
  struct sigaction action {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGBUS, &action, nullptr) != 0) throw SystemError("sigaction", errno, "SIGBUS cannot be handled");
  is_installed = true;
}

}  // namespace

// The system call itself: libraries that watch memory would take mmap() for a write into it.
bool map_zero_pages(uint64_t begin, size_t bytes) {
  constexpr int kKind = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  return syscall(SYS_mmap, begin, bytes, PROT_READ | PROT_WRITE, kKind, -1, 0) == static_cast<long>(begin);
}

FaultGuard::FaultGuard(const void* begin, size_t bytes, size_t page_bytes) : index_(0) {
  std::lock_guard<std::mutex> lock(writers());
  install();
  while (index_ < used_count && entries[index_].end != 0) index_++;
  if (index_ == kMaxCount) {
    throw SystemError("fault_guard", ENOSPC,
                      std::to_string(kMaxCount) + " ranges of memory are guarded, which is the most there can be");
  }
  const auto start = reinterpret_cast<uint64_t>(begin);
  change(entries[index_], start, start + bytes, page_bytes);
  if (index_ == used_count) used_count++;
}

FaultGuard::~FaultGuard() {
  std::lock_guard<std::mutex> lock(writers());
  change(entries[index_], 0, 0, 0);
}

bool FaultGuard::is_damaged() const { return entries[index_].damaged; }

}  // namespace meshcache
