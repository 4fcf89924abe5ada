// Host memory: mappings of whole pages, known by their addresses in all threads of the process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "fault_guard.h"
#include "system_error.h"

namespace meshcache {

// A range of memory from the system. Goes back to it when nobody holds the mapping any more.
class Mapping {
 public:
  // `length` bytes or a little more, zeroed. Huge pages are done without where there are none. `flags`:
  // kMemoryHugePages, kMemoryShared. Throws SystemError.
  Mapping(size_t length, uint32_t flags);
  // The first `length` bytes of a memfd or a file on tmpfs or hugetlbfs that other processes have, and may change and cut short. Takes the
  // descriptor over, unless it throws SystemError.
  Mapping(int fd, size_t length, bool writable);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  uint8_t* begin() const { return begin_; }
  // As asked for.
  size_t length() const { return length_; }
  // Of the system's pages that are behind it for certain; transparent huge pages are not.
  size_t page_bytes() const { return page_bytes_; }
  // Of the file or memfd; -1: none, or given back.
  int fd() const;
  bool is_writable() const { return writable_; }
  // Whether the file is or was shorter than the mapping: bytes of it are zeros that the file does not have.
  bool is_damaged() const;

  // Memory that other processes have too is theirs alone from now on, and the descriptor is closed: zero pages take its
  // place here, which late readers and writers may use. Nothing happens to other memory. Idempotent.
  void give_back() const;
  bool is_given_back() const { return given_back_; }

 private:
  bool map_huge(bool shared);
  void map_ordinary(bool shared, bool transparent_huge_pages);
  void unmap();

  const size_t length_;
  const bool writable_ = true;
  uint8_t* begin_ = nullptr;
  size_t mapped_bytes_ = 0;
  size_t page_bytes_ = 0;
  // Of memory that can go under its readers.
  std::unique_ptr<FaultGuard> guard_;
  mutable std::mutex mutex_;  // of fd_
  mutable int fd_ = -1;
  mutable std::atomic<bool> cut_short_{false};
  mutable std::atomic<bool> given_back_{false};
};

using MappingRef = std::shared_ptr<const Mapping>;

// The mappings of the process, whichever thread has made them. All functions may be called from any thread.
namespace mappings {

MappingRef allocate(size_t length, uint32_t flags);          // throws SystemError
MappingRef map_file(int fd, size_t length, bool writable);  // as the constructor of Mapping
// The one that begins at `addr` and was not freed; null: none.
MappingRef at(uint64_t addr);
// The one that has all of the range, be it freed and only held by somebody; null: none.
MappingRef around(uint64_t addr, uint64_t length);
// Frees it: at() does not find it any more, and it is given back; if it is large, soon, on another thread. Its addresses stay while
// somebody holds it. False: there is none.
bool forget(uint64_t addr);

}  // namespace mappings

// Makes the system provide the memory in [addr, addr + length), piece by piece; contents stay, whoever writes at the
// same time. Returns 0 or an errno.
int provide_memory(uint64_t addr, uint64_t length);

// Bytes of pages in [addr, addr + length) that are not in memory: never touched, or swapped out. 0 if the system does not tell.
uint64_t absent_bytes(uint64_t addr, uint64_t length);

}  // namespace meshcache
