#include "checksum.h"

#include <time.h>

#include <algorithm>
#include <cstring>
#include <vector>

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

inline uint32_t eight_bytes(uint64_t bytes, size_t following) {
  uint32_t value = 0;
  MESHCACHE_UNROLL for (size_t i = 0; i < 8; i++) value ^= kTables[following + 7 - i][(bytes >> (8 * i)) & 0xff];
  return value;
}

constexpr size_t kTrialBytes = 16384;
constexpr int kTrials = 3;
// What a way has to be ahead by to be taken instead of one that comes before it: trials are short, and may be disturbed.
constexpr double kClearlyFaster = 1.25;

// Nanoseconds of the best trial.
uint64_t trial_time(const ChecksumPath& path, const uint8_t* bytes) {
  uint64_t best = UINT64_MAX;
  volatile uint32_t sum = 0;
  for (int trial = 0; trial < kTrials; trial++) {
    timespec start{};
    timespec end{};
    clock_gettime(CLOCK_MONOTONIC, &start);
    sum = path.sum(sum, bytes, kTrialBytes);
    clock_gettime(CLOCK_MONOTONIC, &end);
    const int64_t taken = (end.tv_sec - start.tv_sec) * int64_t{1000000000} + (end.tv_nsec - start.tv_nsec);
    best = std::min(best, static_cast<uint64_t>(std::max<int64_t>(1, taken)));
  }
  return best;
}

// Wide carry-less multiplications are the fastest way on the processors that have them, and the slowest one where they are
// emulated: so a processor is not believed, but timed, once.
const ChecksumPath& best() {
  static const ChecksumPath& path = []() -> const ChecksumPath& {
    const std::vector<uint8_t> bytes(kTrialBytes, 0x5a);
    const std::vector<ChecksumPath>& paths = checksum_paths();
    const ChecksumPath* fastest = &paths.front();
    uint64_t fastest_time = trial_time(*fastest, bytes.data());
    for (const ChecksumPath& other : paths) {
      const uint64_t time = trial_time(other, bytes.data());
      if (static_cast<double>(time) * kClearlyFaster >= static_cast<double>(fastest_time)) continue;
      fastest = &other;
      fastest_time = time;
    }
    return *fastest;
  }();
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
#if defined(__x86_64__) || defined(__aarch64__)
    add_processor_paths(*all);
#endif
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
