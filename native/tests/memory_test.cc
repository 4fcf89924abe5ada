// Host memory and checksums, under the sanitizers.
#include "../memory.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "../checksum.h"
#include "../checksum_paths.h"
#include "../contract.h"
#include "check.h"
#include "node.h"

namespace meshcache::tests {

namespace {

// Bit by bit, as the standard has it.
uint32_t plain_crc32(const uint8_t* bytes, size_t length, uint32_t seed) {
  uint32_t state = ~seed;
  for (size_t i = 0; i < length; i++) {
    state ^= bytes[i];
    for (int bit = 0; bit < 8; bit++) state = (state >> 1) ^ ((state & 1) != 0 ? 0xedb88320u : 0);
  }
  return ~state;
}

}  // namespace

TEST(checksum_paths_agree, "checksum: every way of this processor agrees with the definition, at any length, place and seed") {
  std::mt19937_64 random(seed);
  std::vector<uint8_t> from(20000);
  std::vector<uint8_t> to(from.size());
  for (uint8_t& byte : from) byte = static_cast<uint8_t>(random());
  CHECK_EQ(crc32("123456789", 9, 0), 0xcbf43926u);
  for (int round = 0; round < 400; round++) {
    const size_t limit = round % 4 == 0 ? 10000 : 600;
    const size_t length = random() % limit;
    const size_t source = random() % 64;
    const size_t target = random() % 64;
    const auto before = static_cast<uint32_t>(round % 3 == 0 ? 0 : random());
    const uint32_t expected = plain_crc32(from.data() + source, length, before);
    CHECK_EQ(crc32(from.data() + source, length, before), expected);
    for (const ChecksumPath& path : checksum_paths()) {
      CHECK_EQ(~path.sum(~before, from.data() + source, length), expected);
      std::fill(to.begin(), to.end(), Target::kGuard);
      CHECK_EQ(~path.copy(~before, to.data() + target, from.data() + source, length), expected);
      CHECK_EQ(memcmp(to.data() + target, from.data() + source, length), 0);
      for (size_t i = 0; i < target; i++) CHECK_EQ(to[i], Target::kGuard);
      for (size_t i = target + length; i < target + length + 128; i++) CHECK_EQ(to[i], Target::kGuard);
    }
  }
}

TEST(checksum_ends, "checksum: nothing beyond the ends is touched") {
  for (size_t length = 1; length < 400; length++) {
    // Of just that size: the address sanitizer watches both ends.
    const std::vector<uint8_t> from(length, 7);
    std::vector<uint8_t> to(length);
    for (const ChecksumPath& path : checksum_paths()) {
      path.sum(~0u, from.data(), length);
      path.copy(~0u, to.data(), from.data(), length);
      CHECK(to == from);
    }
  }
}

TEST(mapping_kinds, "memory: of every kind is zeroed, writable to its end, and goes back when the last holder lets go") {
  const size_t descriptors = open_descriptors();
  for (const uint32_t flags : {0u, kMemoryHugePages, kMemoryShared, kMemoryHugePages | kMemoryShared}) {
    for (const size_t length : {size_t{1}, size_t{4096}, size_t{4097}, size_t{5} << 20}) {
      MappingRef held = mappings::allocate(length, flags);
      const auto addr = reinterpret_cast<uint64_t>(held->begin());
      CHECK_EQ(held->length(), length);
      CHECK_EQ(addr % 4096, 0u);
      CHECK_EQ(provide_memory(addr, length), 0);
      for (size_t i = 0; i < length; i += 997) CHECK_EQ(held->begin()[i], 0);
      memset(held->begin(), 1, length);
      CHECK(mappings::at(addr) == held);
      CHECK(mappings::around(addr + length - 1, 1) == held);
      CHECK(mappings::around(addr, length + 1) == nullptr);
      CHECK_EQ(held->fd() >= 0, (flags & kMemoryShared) != 0);
      CHECK(mappings::forget(addr));
      CHECK(!mappings::forget(addr));
      CHECK(mappings::at(addr) == nullptr);
      // Who holds it keeps what was in it, unless other processes have it too.
      CHECK_EQ(int{held->begin()[length - 1]}, (flags & kMemoryShared) != 0 ? 0 : 1);
    }
  }
  CHECK_EQ(open_descriptors(), descriptors);
}

TEST(mapping_refused, "memory: of no length or of an absurd one is refused with the errno") {
  const auto error_of = [](size_t length) {
    try {
      mappings::allocate(length, 0);
    } catch (const SystemError& error) {
      return error.errnum;
    }
    return 0;
  };
  CHECK_EQ(error_of(0), EINVAL);
  CHECK_EQ(error_of(SIZE_MAX), ENOMEM);
}

TEST(mapping_threads, "memory: is allocated, found, provided and freed on many threads at once") {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; i++) {
    threads.emplace_back([i] {
      for (int round = 0; round < 50; round++) {
        const size_t length = 4096u * (1 + (round + i) % 5);
        const MappingRef held = mappings::allocate(length, round % 2 == 0 ? 0 : kMemoryShared);
        const auto addr = reinterpret_cast<uint64_t>(held->begin());
        provide_memory(addr, length);
        held->begin()[length - 1] = static_cast<uint8_t>(i);
        if (mappings::around(addr + 1, length - 1) != held || !mappings::forget(addr)) fake::misuse("a mapping was not found");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace meshcache::tests
