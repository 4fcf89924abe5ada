// Survives memory that goes under its readers: a file that another process cuts short while it is mapped here.
//
// An access to a page beyond the end of the file raises SIGBUS, in whatever thread and instruction it is. The handler
// puts anonymous zero pages in the place of the page and of all that follow it in the range, notes that the range is
// damaged, and returns: the instruction is done again and succeeds, on memory that is nobody else's.
//
// Why this is sound:
// - Who accesses memory holds its mapping. A range is guarded before anybody knows its address and until just before it
//   is unmapped, so the range of an address that faults is in the table for as long as the handler runs, and its
//   addresses are not used for anything else. Replacing pages there overwrites nothing of others.
// - The table is fixed and written under a mutex, which the handler does not take. Each entry has a version, odd
//   while the entry changes. The handler passes over an entry whose version is odd or changes while it is read: that entry is
//   not the one of the address that faults, which stays as it is.
// - The handler calls mmap(2), sigaction(2), getpid(2) and tgkill(2), plain system calls on Linux, and keeps errno.
// - The damage is noted before the pages are replaced: who has read such zeros and looks then finds the range damaged.
//
// Limits:
// - The process dies as before when there is no memory for the replaced pages' page tables, or when strict overcommit
//   (vm.overcommit_memory=2) refuses them.
// - A thread that blocks SIGBUS dies at a fault: SignalsBlocked in thread_signals.h does not block it.
// - A handler that is installed for SIGBUS after this one, as by process.on('SIGBUS'), takes its place: ranges that are
//   guarded already are not any more, and new ones are refused.
// - System calls on such memory are not faults: they fail with EFAULT.
#pragma once

#include <cstddef>
#include <cstdint>

namespace meshcache {

// Puts anonymous zero pages, which may be written into, in the place of what is mapped there. May be called by a handler of
// signals. False with errno.
bool map_zero_pages(uint64_t begin, size_t bytes);

// One guarded range, until it is destroyed. Made and destroyed in any thread.
class FaultGuard {
 public:
  // Ranges at a time, in the process.
  static constexpr size_t kMaxCount = 4096;

  // `begin` and `bytes` are multiples of `page_bytes`, the size of the pages that the range is mapped with. The range must not
  // have been accessed yet. Throws SystemError: ENOSPC, there are too many; EBUSY, the signal is another handler's.
  FaultGuard(const void* begin, size_t bytes, size_t page_bytes);
  // To be called before the range is unmapped, and when nobody can access it any more.
  ~FaultGuard();
  FaultGuard(const FaultGuard&) = delete;
  FaultGuard& operator=(const FaultGuard&) = delete;

  // Whether pages of the range have been replaced.
  bool is_damaged() const;

 private:
  size_t index_;
};

}  // namespace meshcache
