// The ways to take a checksum, and which of them this processor has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

// Unrolled, lanes stay in registers, and rows of tables and shifts are constants.
#define MESHCACHE_UNROLL _Pragma("GCC unroll 8")

namespace meshcache {

// `state` is the complement of the checksum, as all of these functions take and return it.
struct ChecksumPath {
  const char* name;
  uint32_t (*sum)(uint32_t state, const uint8_t* source, size_t length);
  // The sum is that of the bytes that were put at the target, even if the source changes meanwhile.
  uint32_t (*copy)(uint32_t state, uint8_t* target, const uint8_t* source, size_t length);
};

// Fastest first; the last one works everywhere.
const std::vector<ChecksumPath>& checksum_paths();

// By tables, 16 bytes at a time: for every processor, and for the few bytes that the others leave over.
uint32_t table_sum(uint32_t state, const uint8_t* source, size_t length);
uint32_t table_copy(uint32_t state, uint8_t* target, const uint8_t* source, size_t length);

// Adds those of this architecture that this processor can run.
void add_processor_paths(std::vector<ChecksumPath>& paths);

}  // namespace meshcache
