#include "checksum.h"

#include <algorithm>
#include <cstring>

#include "checksum_paths.h"
#include "checksum_polynomial.h"

namespace meshcache {
namespace {

constexpr ByteTables kTables = make_byte_tables();
static_assert(kTables[0][1] == 0x77073096, "first entry of the table of every CRC-32 text");

// Small enough to be in the first-level cache when it is summed after the copy.
constexpr size_t kCopyBlockBytes = 8192;

uint64_t load64(const uint8_t* at) {
  uint64_t value;
  std::memcpy(&value, at, sizeof value);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  value = __builtin_bswap64(value);
#endif
  return value;
}

uint32_t eight_bytes(uint64_t bytes, size_t following) {
  uint32_t value = 0;
  for (size_t i = 0; i < 8; i++) value ^= kTables[following + 7 - i][(bytes >> (8 * i)) & 0xff];
  return value;
}

const ChecksumPath& best() {
  static const ChecksumPath path = checksum_paths().front();
  return path;
}

}  // namespace

uint32_t table_sum(uint32_t state, const uint8_t* source, size_t length) {
  for (; length >= 16; source += 16, length -= 16) {
    state = eight_bytes(load64(source) ^ state, 8) ^ eight_bytes(load64(source + 8), 0);
  }
  for (; length > 0; source++, length--) state = (state >> 8) ^ kTables[0][(state ^ *source) & 0xff];
  return state;
}

uint32_t table_copy(uint32_t state, uint8_t* target, const uint8_t* source, size_t length) {
  for (size_t at = 0; at < length; at += kCopyBlockBytes) {
    const size_t count = std::min(kCopyBlockBytes, length - at);
    std::memcpy(target + at, source + at, count);
    state = table_sum(state, target + at, count);
  }
  return state;
}

const std::vector<ChecksumPath>& checksum_paths() {
  // Never destroyed: threads may take checksums until the very end of the process.
  static const auto& paths = *[] {
    auto* all = new std::vector<ChecksumPath>;
    add_processor_paths(*all);
    all->push_back({"tables", table_sum, table_copy});
    return all;
  }();
  return paths;
}

uint32_t crc32(const void* bytes, size_t length, uint32_t seed) {
  return ~best().sum(~seed, static_cast<const uint8_t*>(bytes), length);
}

uint32_t copy_crc32(void* target, const void* source, size_t length, uint32_t seed) {
  return ~best().copy(~seed, static_cast<uint8_t*>(target), static_cast<const uint8_t*>(source), length);
}

const char* checksum_path() { return best().name; }

}  // namespace meshcache
