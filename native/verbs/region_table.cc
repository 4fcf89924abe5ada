#include "region_table.h"

#include <cstddef>
#include <cstring>

#include "../checksum.h"

namespace meshcache {

namespace {

constexpr uint32_t kTableMagic = 0x5452434d;
constexpr uint16_t kTableVersion = 1;

uint32_t checksum_of(const TableLayout& layout) {
  const size_t end = offsetof(TableLayout, entries) + layout.entry_count * sizeof(TableEntry);
  const size_t start = offsetof(TableLayout, rails);
  return crc32(reinterpret_cast<const uint8_t*>(&layout) + start, end - start, layout.entry_count);
}

TableRail pack(const Address& address) {
  TableRail rail{};
  rail.port = address.port();
  if (address.storage.ss_family == AF_INET) {
    rail.family = 4;
    memcpy(rail.addr, &reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_addr, 4);
  } else {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address.storage);
    rail.family = 6;
    rail.scope = v6->sin6_scope_id;
    memcpy(rail.addr, &v6->sin6_addr, 16);
  }
  return rail;
}

Address unpack(const TableRail& rail) {
  Address address;
  if (rail.family == 4) {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
    v4->sin_family = AF_INET;
    memcpy(&v4->sin_addr, rail.addr, 4);
  } else if (rail.family == 6) {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
    v6->sin6_family = AF_INET6;
    v6->sin6_scope_id = rail.scope;
    memcpy(&v6->sin6_addr, rail.addr, 16);
  }
  address.set_port(rail.port);
  return address;
}

}  // namespace

PublishedTable::PublishedTable(TableLayout* layout, uint64_t engine_id, const std::vector<Address>& rails)
    : layout_(layout) {
  layout->magic = kTableMagic;
  layout->version = kTableVersion;
  layout->rail_count = static_cast<uint16_t>(rails.size());
  layout->engine_id = engine_id;
  for (size_t i = 0; i < rails.size(); i++) layout->rails[i] = pack(rails[i]);
  seal();
}

bool PublishedTable::add(const TableEntry& entry) {
  if (layout_->entry_count == kMaxPublishedRegions) return false;
  layout_->entries[layout_->entry_count++] = entry;
  seal();
  return true;
}

void PublishedTable::remove(uint32_t rkey) {
  for (uint32_t i = 0; i < layout_->entry_count; i++) {
    if (layout_->entries[i].rkey != rkey) continue;
    layout_->entries[i] = layout_->entries[--layout_->entry_count];
    seal();
    return;
  }
}

bool PublishedTable::has(uint32_t rkey) const {
  for (uint32_t i = 0; i < layout_->entry_count; i++) {
    if (layout_->entries[i].rkey == rkey) return true;
  }
  return false;
}

void PublishedTable::seal() { layout_->checksum = checksum_of(*layout_); }

bool RemoteTable::parse(const TableLayout& layout) {
  if (layout.magic != kTableMagic || layout.version != kTableVersion) return false;
  if (layout.rail_count < 1 || layout.rail_count > kMaxRails) return false;
  if (layout.entry_count > kMaxPublishedRegions || layout.checksum != checksum_of(layout)) return false;
  engine_id_ = layout.engine_id;
  rails_.clear();
  for (size_t i = 0; i < layout.rail_count; i++) rails_.push_back(unpack(layout.rails[i]));
  entries_.clear();
  for (size_t i = 0; i < layout.entry_count; i++) entries_.emplace(layout.entries[i].rkey, layout.entries[i]);
  return true;
}

const TableEntry* RemoteTable::find(uint32_t rkey) const {
  const auto found = entries_.find(rkey);
  return found == entries_.end() ? nullptr : &found->second;
}

}  // namespace meshcache
