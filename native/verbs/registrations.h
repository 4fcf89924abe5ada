// Local memory that is registered with every rail: published for peers to read, or for reads to land in.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "rail.h"
#include "region_table.h"
#include "reporter.h"

namespace meshcache {

// A registered range. The devices let go of it when the last holder does: the table, or a read under way.
class Region {
 public:
  Region(const VerbsApi& api, Reporter& reporter, uint32_t handle, std::vector<ibv_mr*> mrs)
      : handle(handle), api_(api), reporter_(reporter), mrs_(std::move(mrs)) {}
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  bool contains(uint64_t from, uint64_t bytes) const {
    return from >= addr && bytes <= length && from - addr <= length - bytes;
  }
  uint32_t lkey(uint32_t rail) const { return mrs_[rail]->lkey; }
  uint32_t device_rkey(uint32_t rail) const { return mrs_[rail]->rkey; }

  const uint32_t handle;
  uint64_t addr = 0;
  uint64_t length = 0;
  uint32_t rkey = 0;
  uint32_t access = 0;

 private:
  const VerbsApi& api_;
  Reporter& reporter_;
  const std::vector<ibv_mr*> mrs_;
};

// All calls are thread-safe.
class Registrations {
 public:
  // The rails must outlive this and every Region. Throws VerbsError when the region table cannot be registered.
  Registrations(const VerbsApi& api, Reporter& reporter, const std::vector<std::unique_ptr<Rail>>& rails, uint64_t engine_id);
  ~Registrations();

  Engine::Registration add(uint64_t addr, uint64_t length, uint32_t rkey, uint32_t access);
  // Out of the region table and not found any more; null for a handle that is not there. Who drops it last releases it.
  std::shared_ptr<Region> take(uint32_t handle);
  // Registered memory that has the whole range and may be written; null: none.
  std::shared_ptr<Region> find_writable(uint64_t addr, uint64_t length);
  // No more can be added; what is there goes, except for what reads hold.
  void close();

  // Where peers find the region table through that rail.
  uint64_t table_addr() const { return reinterpret_cast<uint64_t>(table_memory_); }
  uint32_t table_device_rkey(uint32_t rail) const { return table_mrs_[rail]->rkey; }

 private:
  std::vector<ibv_mr*> register_with_all(void* addr, uint64_t length, int access);

  const VerbsApi& api_;
  Reporter& reporter_;
  const std::vector<std::unique_ptr<Rail>>& rails_;
  TableLayout* table_memory_ = nullptr;
  std::vector<ibv_mr*> table_mrs_;
  std::mutex mutex_;
  std::unique_ptr<PublishedTable> table_;
  std::unordered_map<uint32_t, std::shared_ptr<Region>> by_handle_;
  std::multimap<uint64_t, std::shared_ptr<Region>> writable_;  // by first address
  std::weak_ptr<Region> last_hit_;
  uint32_t next_handle_ = 1;
  bool is_closed_ = false;
};

}  // namespace meshcache
