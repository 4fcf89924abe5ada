// CRC-32 (IEEE 802.3, reflected, as zlib's) at memory speed: the fastest way that this processor has is chosen at run time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace meshcache {

// `seed` is the sum of what came before; 0 at the start.
uint32_t crc32(const void* bytes, size_t length, uint32_t seed);

// Copies and returns the sum of what was copied, in one pass over memory. The ranges must not overlap.
uint32_t copy_crc32(void* target, const void* source, size_t length, uint32_t seed);

// How it is done on this processor, e.g. "vpclmulqdq-avx512".
const char* checksum_path();

}  // namespace meshcache
