#include "registrations.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

namespace meshcache {

namespace {

// Whole pages of its own: nothing else is exposed with it.
constexpr size_t kTableBytes = (sizeof(TableLayout) + 4095) / 4096 * 4096;

}  // namespace

Region::~Region() {
  for (ibv_mr* mr : mrs_) api_.dereg_mr(mr);
  reporter_.deregistered(handle);
}

Registrations::Registrations(const VerbsApi& api, Reporter& reporter, const std::vector<std::unique_ptr<Rail>>& rails,
                             uint64_t engine_id)
    : api_(api), reporter_(reporter), rails_(rails) {
  void* memory = mmap(nullptr, kTableBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw VerbsError("mmap", errno, "", std::string("mmap: region table: ") + strerror(errno));
  // A child process must not get the pages that peers read, and this one copies.
  madvise(memory, kTableBytes, MADV_DONTFORK);
  table_memory_ = static_cast<TableLayout*>(memory);
  std::vector<Address> addresses;
  for (const auto& rail : rails) addresses.push_back(rail->address);
  table_ = std::make_unique<PublishedTable>(table_memory_, engine_id, addresses);
  try {
    table_mrs_ = register_with_all(memory, kTableBytes, IBV_ACCESS_REMOTE_READ);
  } catch (...) {
    munmap(memory, kTableBytes);
    throw;
  }
}

Registrations::~Registrations() {
  close();
  for (ibv_mr* mr : table_mrs_) api_.dereg_mr(mr);
  munmap(table_memory_, kTableBytes);
}

Engine::Registration Registrations::add(uint64_t addr, uint64_t length, uint32_t rkey, uint32_t access) {
  int verbs_access = 0;
  if (access & kAccessRemoteRead) verbs_access |= IBV_ACCESS_REMOTE_READ;
  if (access & kAccessLocalWrite) verbs_access |= IBV_ACCESS_LOCAL_WRITE;
  const std::string device = rails_[0]->device_name;
  const bool is_published = (access & kAccessRemoteRead) != 0;

  // Pinning takes long for large memory; reads under way must not wait for it.
  std::vector<ibv_mr*> mrs = register_with_all(reinterpret_cast<void*>(addr), length, verbs_access);

  std::unique_lock<std::mutex> lock(mutex_);
  auto region = std::make_shared<Region>(api_, reporter_, next_handle_++, std::move(mrs));
  region->addr = addr;
  region->length = length;
  region->rkey = rkey;
  region->access = access;
  const char* refusal = nullptr;
  if (is_closed_) {
    refusal = "the engine is closed";
  } else if (is_published && (rkey == 0 || table_->has(rkey))) {
    refusal = "the rkey is 0 or in use";
  } else if (is_published) {
    TableEntry entry{};
    entry.rkey = rkey;
    entry.addr = addr;
    entry.length = length;
    for (size_t i = 0; i < rails_.size(); i++) entry.device_rkeys[i] = region->device_rkey(static_cast<uint32_t>(i));
    if (!table_->add(entry)) refusal = "the region table is full";
  }
  if (refusal != nullptr) {
    lock.unlock();
    throw VerbsError("register_mr", is_closed_ ? ESHUTDOWN : ENOSPC, device, std::string("register_mr: ") + refusal);
  }
  by_handle_.emplace(region->handle, region);
  if (access & kAccessLocalWrite) writable_.emplace(addr, region);
  return {region->handle, region->lkey(0)};
}

std::shared_ptr<Region> Registrations::take(uint32_t handle) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = by_handle_.find(handle);
  if (found == by_handle_.end()) return nullptr;
  std::shared_ptr<Region> region = std::move(found->second);
  by_handle_.erase(found);
  if (region->access & kAccessRemoteRead) table_->remove(region->rkey);
  const auto [first, end] = writable_.equal_range(region->addr);
  for (auto at = first; at != end; ++at) {
    if (at->second != region) continue;
    writable_.erase(at);
    break;
  }
  return region;
}

std::shared_ptr<Region> Registrations::find_writable(uint64_t addr, uint64_t length) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<Region> hit = last_hit_.lock();
  if (hit && by_handle_.count(hit->handle) > 0 && hit->contains(addr, length)) return hit;
  // Ranges may overlap: of those that start before, the nearest one that reaches far enough.
  auto at = writable_.upper_bound(addr);
  while (at != writable_.begin()) {
    --at;
    if (!at->second->contains(addr, length)) continue;
    last_hit_ = at->second;
    return at->second;
  }
  return nullptr;
}

void Registrations::close() {
  std::unordered_map<uint32_t, std::shared_ptr<Region>> gone;
  std::lock_guard<std::mutex> lock(mutex_);
  is_closed_ = true;
  for (const auto& [handle, region] : by_handle_) {
    if (region->access & kAccessRemoteRead) table_->remove(region->rkey);
  }
  writable_.clear();
  gone.swap(by_handle_);
}

std::vector<ibv_mr*> Registrations::register_with_all(void* addr, uint64_t length, int access) {
  std::vector<ibv_mr*> mrs;
  for (const auto& rail : rails_) {
    ibv_mr* mr = api_.reg_mr(rail->pd, addr, length, access);
    if (mr == nullptr) {
      const int error = errno;
      for (ibv_mr* registered : mrs) api_.dereg_mr(registered);
      throw VerbsError("ibv_reg_mr", error, rail->device_name,
                       "ibv_reg_mr: " + std::to_string(length) + " bytes: " + strerror(error));
    }
    mrs.push_back(mr);
  }
  return mrs;
}

}  // namespace meshcache
