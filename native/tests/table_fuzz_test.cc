// What peers give us to decode, thrown at it as bytes: the region table and the private data of the handshake. Tables are changed
// where they mean something, and half of them get a checksum that holds, or nothing behind it would be reached.
#include <cstddef>
#include <cstring>
#include <memory>
#include <random>

#include "../checksum.h"
#include "../verbs/handshake.h"
#include "../verbs/region_table.h"
#include "check.h"

namespace meshcache::tests {

namespace {

constexpr int kRuns = 20'000;
constexpr uint32_t kInteresting[] = {0, 1, 2, 8, 9, 0x7fff, 0xffff, 511, 512, 513, 0x7fffffff, 0x80000000, 0xffffffff};

using Random = std::mt19937_64;

uint32_t interesting(Random& random) { return kInteresting[random() % std::size(kInteresting)]; }

// As PROTOCOL.md has it, once more: byte by byte.
uint32_t u32_at(const std::vector<uint8_t>& bytes, size_t at) {
  uint32_t value;
  memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

bool is_table(const std::vector<uint8_t>& bytes) {
  const uint16_t version = static_cast<uint16_t>(bytes[4] | bytes[5] << 8);
  const uint16_t rails = static_cast<uint16_t>(bytes[6] | bytes[7] << 8);
  const uint32_t count = u32_at(bytes, 16);
  if (memcmp(bytes.data(), "MCRT", 4) != 0 || version != 1 || rails < 1 || rails > 8 || count > 512) return false;
  return u32_at(bytes, 20) == crc32(bytes.data() + 24, 232 + 64 * size_t{count}, count);
}

std::vector<uint8_t> some_table(Random& random) {
  std::vector<uint8_t> bytes(sizeof(TableLayout));
  auto* layout = reinterpret_cast<TableLayout*>(bytes.data());
  PublishedTable table(layout, random(), std::vector<Address>(1 + random() % kMaxRails, parse_address("10.0.0.1", 9)));
  const uint32_t count = random() % 64 == 0 ? kMaxPublishedRegions : random() % 8;
  for (uint32_t i = 0; i < count; i++) {
    table.add({static_cast<uint32_t>(random() % 16), 0, random(), random() % 4 ? random() % 100'000 : random(), {}, 0});
  }
  return bytes;
}

void change(std::vector<uint8_t>& bytes, Random& random) {
  const uint32_t value = interesting(random);
  switch (random() % 6) {
    case 0:  // the number of entries
      memcpy(bytes.data() + 16, &value, 4);
      break;
    case 1:  // the number of rails
      memcpy(bytes.data() + 6, &value, 2);
      break;
    case 2:  // a rail
      memcpy(bytes.data() + 24 + random() % 188, &value, 4);
      break;
    case 3:  // a bit of what is there
      bytes[random() % 1024] ^= static_cast<uint8_t>(1 << random() % 8);
      break;
    case 4:  // an entry twice, or torn
      memmove(bytes.data() + 256 + random() % 512, bytes.data() + 256 + random() % 512, 64);
      break;
    default:
      memcpy(bytes.data() + random() % 1024, &value, 4);
  }
}

void seal(std::vector<uint8_t>& bytes) {
  const uint32_t count = u32_at(bytes, 16);
  if (count > kMaxPublishedRegions) return;
  const uint32_t sum = crc32(bytes.data() + 24, 232 + 64 * size_t{count}, count);
  memcpy(bytes.data() + 20, &sum, 4);
}

// The first entry with an rkey counts.
void check_content(const RemoteTable& table, const std::vector<uint8_t>& bytes) {
  CHECK(!table.rails().empty() && table.rails().size() <= kMaxRails);
  uint64_t engine_id;
  memcpy(&engine_id, bytes.data() + 8, 8);
  CHECK_EQ(table.engine_id(), engine_id);
  for (uint32_t i = 0; i < u32_at(bytes, 16); i++) {
    const uint32_t rkey = u32_at(bytes, 256 + 64 * size_t{i});
    size_t first = 0;
    while (u32_at(bytes, 256 + 64 * first) != rkey) first++;
    const TableEntry* found = table.find(rkey);
    CHECK(found != nullptr);
    CHECK_EQ(memcmp(found, bytes.data() + 256 + 64 * first, sizeof(TableEntry)), 0);
  }
  for (const Address& rail : table.rails()) {
    if (rail.is_valid()) CHECK(!format_address(rail).empty());
  }
}

}  // namespace

TEST(any_table, "fuzz: a region table of any bytes is taken whole, or refused and the former one kept") {
  Random random(seed);
  RemoteTable table;
  std::vector<uint8_t> last = some_table(random);
  CHECK(table.parse(*reinterpret_cast<const TableLayout*>(last.data())));
  int taken = 0;
  for (int run = 0; run < kRuns; run++) {
    std::vector<uint8_t> bytes = some_table(random);
    for (uint64_t changes = random() % 4; changes > 0; changes--) change(bytes, random);
    if (random() % 2 == 0) seal(bytes);
    const bool is_taken = table.parse(*reinterpret_cast<const TableLayout*>(bytes.data()));
    CHECK_EQ(is_taken, is_table(bytes));
    if (is_taken) last = bytes;
    taken += is_taken;
    check_content(table, last);
  }
  CHECK(taken > kRuns / 10 && taken < kRuns - kRuns / 10);
}

TEST(any_private_data, "fuzz: private data of any length is decoded when it is long enough, and not read beyond") {
  Random random(seed);
  for (int run = 0; run < kRuns; run++) {
    std::vector<uint8_t> bytes(random() % 100);
    bytes.shrink_to_fit();
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    RequestData request{};
    ReplyData reply{};
    RefusalData refusal{};
    CHECK_EQ(decode(bytes, request), bytes.size() >= 52);
    CHECK_EQ(decode(bytes, reply), bytes.size() >= 72);
    CHECK_EQ(decode(bytes, refusal), bytes.size() >= 8);
    if (bytes.size() >= 52) CHECK_EQ(memcmp(&request, bytes.data(), 52), 0);
  }
}

}  // namespace meshcache::tests
