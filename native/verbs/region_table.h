// The region table tells readers what they may read: for every rkey of the cluster's making, the address range, and the rkey
// under which each of the owner's devices knows it. A reader fetches it by RDMA READ while its owner may be changing it: the
// checksum tells a whole copy from a torn one.
//
//        0  u32 "MCRT"    4  u16 version    6  u16 rails
//        8  u64 id of the engine
//       16  u32 entries  20  u32 CRC-32 of bytes 24 to the end of the last entry
//       24  8 rails of 24 bytes: u16 family (4, 6; 0: none), u16 port, u32 scope, u8[16] address
//      216  40 bytes of 0
//      256  entries of 64 bytes: u32 rkey, u32 0, u64 address, u64 length, u32[8] device rkeys, u64 0
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "address.h"
#include "engine.h"

namespace meshcache {

struct TableEntry {
  uint32_t rkey;
  uint32_t reserved;
  uint64_t addr;
  uint64_t length;
  uint32_t device_rkeys[kMaxRails];
  uint64_t reserved_too;
};
static_assert(sizeof(TableEntry) == 64, "wire layout");

struct TableRail {
  uint16_t family;
  uint16_t port;
  uint32_t scope;
  uint8_t addr[16];
};
static_assert(sizeof(TableRail) == 24, "wire layout");

struct TableLayout {
  uint32_t magic;
  uint16_t version;
  uint16_t rail_count;
  uint64_t engine_id;
  uint32_t entry_count;
  uint32_t checksum;
  TableRail rails[kMaxRails];
  uint8_t reserved[40];
  TableEntry entries[kMaxPublishedRegions];
};
static_assert(sizeof(TableLayout) == 256 + 64 * kMaxPublishedRegions, "wire layout");

// The owner's side: changes the table in place. Not thread-safe.
class PublishedTable {
 public:
  // `layout` is zeroed, registered memory of the owner's; it must outlive this.
  PublishedTable(TableLayout* layout, uint64_t engine_id, const std::vector<Address>& rails);

  // False when it is full.
  bool add(const TableEntry& entry);
  void remove(uint32_t rkey);
  bool has(uint32_t rkey) const;

 private:
  void seal();

  TableLayout* layout_;
};

// The reader's copy of a peer's table.
class RemoteTable {
 public:
  // False: torn or not a table; the former content stays.
  bool parse(const TableLayout& layout);
  const TableEntry* find(uint32_t rkey) const;
  const std::vector<Address>& rails() const { return rails_; }
  uint64_t engine_id() const { return engine_id_; }

 private:
  std::unordered_map<uint32_t, TableEntry> entries_;
  std::vector<Address> rails_;
  uint64_t engine_id_ = 0;
};

}  // namespace meshcache
