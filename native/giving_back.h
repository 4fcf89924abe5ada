// Memory and files that go back to the system, away from the threads that others wait for.
//
// The kernel needs some 50 ms for a gigabyte of pages, be it that they are unmapped or that the last descriptor of their file is
// closed. Meanwhile it lets no thread of the process map anything. So large memory goes in pieces, on threads of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace meshcache::giving_back {

// Whether so many bytes are too many to give back at once.
bool is_large(uint64_t bytes);

// Runs the job on one of the threads for giving back; at once where the system has none to give.
void run(std::function<void()> job);

// Takes the pages from a mapping, which stays. What is in a file stays in the file.
void drop_pages(uint8_t* begin, size_t bytes);

// Closes a descriptor that another process may have sent: at once if its file is small and in memory. The file may be a large
// one that nobody else has any more, or one of a file system that never answers.
void close_file(int fd);

}  // namespace meshcache::giving_back
