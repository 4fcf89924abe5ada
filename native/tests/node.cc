#include "node.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "../checksum.h"

namespace meshcache {

std::ostream& operator<<(std::ostream& out, OpStatus status) {
  static const char* const names[] = {"ok",      "bad_local_memory", "refused", "unreachable", "rejected",    "remote_access",
                                      "connection_lost", "timeout",  "checksum", "closed", "device_error", "stale"};
  const auto index = static_cast<size_t>(status);
  return out << (index < sizeof names / sizeof names[0] ? names[index] : "no status at all");
}

}  // namespace meshcache

namespace meshcache::tests {

std::vector<Test>& all_tests() {
  static std::vector<Test> tests;
  return tests;
}

Served::Served(uint64_t content_seed, size_t length) : seed(content_seed), bytes(length) {
  for (size_t i = 0; i < length; i++) bytes[i] = content(seed, i);
}

uint32_t Served::checksum(size_t offset, size_t length) const { return crc32(bytes.data() + offset, length, 0); }

bool Target::is_clear(size_t from, size_t length) const {
  return std::all_of(bytes.begin() + from, bytes.begin() + from + length, [](uint8_t byte) { return byte == kGuard; });
}

bool Target::holds(const Served& served, size_t served_offset, size_t from, size_t length) const {
  for (size_t i = 0; i < length; i++) {
    if (bytes[from + i] != content(served.seed, served_offset + i)) return false;
  }
  return true;
}

Node::Node(fake::Fabric&, const std::vector<std::string>& addresses, uint16_t port,
           const std::function<void(EngineOptions&)>& change)
    : host(addresses.at(0)) {
  EngineOptions options;
  for (const std::string& address : addresses) {
    RailOptions rail;
    rail.address = address;
    rail.port = port;
    options.rails.push_back(rail);
  }
  options.connect_timeout_ms = 500;
  options.stall_timeout_ms = 500;
  if (change) change(options);
  engine = std::make_unique<Engine>(fake::Fabric::api(), options, [this] {
    std::lock_guard<std::mutex> lock(mutex_);
    is_woken_ = true;
    woken_.notify_all();
  });
  ports = engine->ports();
}

Node::~Node() {
  const auto start = std::chrono::steady_clock::now();
  engine.reset();
  const auto took = std::chrono::steady_clock::now() - start;
  if (took > std::chrono::seconds(10)) fake::misuse("the engine did not end within 10 s");
}

void Node::serve(Served& served, uint32_t rkey) {
  served.rkey = rkey;
  served.handle = engine->register_mr(served.addr(), served.bytes.size(), rkey, kAccessRemoteRead).handle;
}

void Node::accept(Target& target) {
  target.handle = engine->register_mr(target.addr(), target.bytes.size(), 0, kAccessLocalWrite).handle;
}

void Node::withdraw(uint32_t handle) {
  engine->deregister_mr(handle);
  CHECK(wait([&] { return deregistered_.count(handle) > 0; }));
}

uint64_t Node::start(const std::vector<Read>& reads, uint32_t timeout_ms) {
  ReadBatch batch;
  batch.id = next_batch_++;
  batch.timeout_ms = timeout_ms;
  for (const Read& read : reads) {
    ReadOp op{};
    op.peer = read.peer;
    op.rkey = read.rkey;
    op.remote_addr = read.remote_addr;
    op.checksum = read.checksum;
    op.stamp = read.stamp;
    op.first_piece = static_cast<uint32_t>(batch.pieces.size());
    op.piece_count = static_cast<uint32_t>(read.pieces.size());
    batch.ops.push_back(op);
    batch.pieces.insert(batch.pieces.end(), read.pieces.begin(), read.pieces.end());
  }
  open_[batch.id] = reads.size();
  const uint64_t id = batch.id;
  engine->submit(std::move(batch));
  return id;
}

void Node::take() {
  const Report report = engine->take_report();
  if (is_closed_ && (report.closed || !report.deregistered.empty())) fake::misuse("a report after the last one");
  for (const BatchResult& result : report.batches) {
    const auto open = open_.find(result.id);
    if (open == open_.end()) fake::misuse("batch " + std::to_string(result.id) + " was reported twice or never asked for");
    if (open->second != result.statuses.size()) fake::misuse("a batch came back with another number of results");
    open_.erase(open);
    if (is_closed_ && result.id < first_after_close_) fake::misuse("a batch was reported after the last report");
    std::vector<OpStatus> statuses;
    for (uint8_t status : result.statuses) statuses.push_back(static_cast<OpStatus>(status));
    results_[result.id] = statuses;
  }
  for (uint32_t handle : report.deregistered) {
    if (!deregistered_.insert(handle).second) fake::misuse("a handle was reported as deregistered twice");
  }
  for (const EngineEvent& event : report.events) events_[event.kind]++;
  if (report.closed) first_after_close_ = next_batch_;
  is_closed_ |= report.closed;
}

bool Node::wait(const std::function<bool()>& done, uint32_t timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    take();
    if (done()) return true;
    std::unique_lock<std::mutex> lock(mutex_);
    if (!woken_.wait_until(lock, deadline, [this] { return is_woken_; })) return false;
    is_woken_ = false;
  }
}

bool Node::has_result(uint64_t batch) {
  take();
  return results_.count(batch) > 0;
}

std::vector<OpStatus> Node::result(uint64_t batch, uint32_t timeout_ms) {
  CHECK(wait([&] { return results_.count(batch) > 0; }, timeout_ms));
  std::vector<OpStatus> statuses = std::move(results_[batch]);
  results_.erase(batch);
  return statuses;
}

std::vector<OpStatus> Node::read(const std::vector<Read>& reads, uint32_t timeout_ms) {
  return result(start(reads, timeout_ms), timeout_ms + 15000);
}

OpStatus Node::read_one(const Read& one, uint32_t timeout_ms) { return read({one}, timeout_ms).at(0); }

void Node::close(uint32_t timeout_ms) {
  engine->close();
  CHECK(wait([&] { return is_closed_; }, timeout_ms));
  CHECK_EQ(open_.size(), 0u);
}

bool Node::has_event(EventKind kind) {
  take();
  return events_.count(kind) > 0;
}

void check_clean(fake::Fabric& fabric) {
  const std::string left = fabric.leaks();
  if (!left.empty()) check_failed(__FILE__, __LINE__, "left behind:\n" + left);
}

uint64_t resident_bytes() {
  FILE* file = fopen("/proc/self/statm", "r");
  unsigned long long size = 0;
  unsigned long long resident = 0;
  const int fields = fscanf(file, "%llu %llu", &size, &resident);
  fclose(file);
  return fields == 2 ? resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) : 0;
}

size_t open_descriptors() {
  DIR* folder = opendir("/proc/self/fd");
  size_t count = 0;
  while (readdir(folder) != nullptr) count++;
  closedir(folder);
  return count;
}

}  // namespace meshcache::tests
