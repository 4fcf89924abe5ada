// Host memory: mappings of whole pages, known by their addresses in all threads of the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

namespace meshcache {

// A system call failed.
class SystemError : public std::runtime_error {
 public:
  SystemError(std::string call_name, int error, const std::string& message)
      : std::runtime_error(message), call(std::move(call_name)), errnum(error) {}
  const std::string call;
  const int errnum;
};

// A range of memory from the system. Goes back to it when nobody holds the mapping any more.
class Mapping {
 public:
  // `length` bytes or a little more, zeroed. Huge pages are done without where there are none. `flags`:
  // kMemoryHugePages, kMemoryShared. Throws SystemError.
  Mapping(size_t length, uint32_t flags);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  uint8_t* begin() const { return begin_; }
  // As asked for.
  size_t length() const { return length_; }
  // Of the system's pages that are behind it for certain; transparent huge pages are not.
  size_t page_bytes() const { return page_bytes_; }
  // Of the memfd; -1: none.
  int fd() const { return fd_; }

 private:
  bool map_huge(bool shared);
  void map_ordinary(bool shared, bool transparent_huge_pages);

  const size_t length_;
  uint8_t* begin_ = nullptr;
  size_t mapped_bytes_ = 0;
  size_t page_bytes_ = 0;
  int fd_ = -1;
};

using MappingRef = std::shared_ptr<const Mapping>;

// The mappings of the process, whichever thread has made them. All functions may be called from any thread.
namespace mappings {

MappingRef allocate(size_t length, uint32_t flags);  // throws SystemError
// The one that begins at `addr` and was not freed; null: none.
MappingRef at(uint64_t addr);
// The one that has all of the range, be it freed and only held by somebody; null: none.
MappingRef around(uint64_t addr, uint64_t length);
// Frees it: at() does not find it any more. It stays while somebody holds it. False: there is none.
bool forget(uint64_t addr);

}  // namespace mappings

// Makes the system provide the memory in [addr, addr + length), piece by piece; contents stay, whoever writes at the
// same time. Returns 0 or an errno.
int provide_memory(uint64_t addr, uint64_t length);

}  // namespace meshcache
