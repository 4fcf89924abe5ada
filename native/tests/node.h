// An engine over the fake with memory to serve and to read into, and a listener to its reports that can wait.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "../verbs/engine.h"
#include "check.h"
#include "fabric.h"

namespace meshcache {

// For the messages of checks.
std::ostream& operator<<(std::ostream& out, OpStatus status);

}  // namespace meshcache

namespace meshcache::tests {

// What a region with that seed holds at that offset.
inline uint8_t content(uint64_t seed, uint64_t offset) {
  const uint64_t mixed = (seed + 1) * 0x9e3779b97f4a7c15u + offset * 0x2545f4914f6cdd1du;
  return static_cast<uint8_t>(mixed >> 56 ^ mixed >> 21);
}

// Memory to serve: a range full of `content`.
struct Served {
  Served(uint64_t content_seed, size_t length);
  uint64_t addr(size_t offset = 0) const { return reinterpret_cast<uint64_t>(bytes.data()) + offset; }
  uint32_t checksum(size_t offset, size_t length) const;

  const uint64_t seed;
  std::vector<uint8_t> bytes;
  uint32_t rkey = 0;
  uint32_t handle = 0;
};

// Memory to read into: filled with a guard pattern, so that every byte that changes is seen.
struct Target {
  explicit Target(size_t length) : bytes(length, kGuard) {}
  uint64_t addr(size_t offset = 0) const { return reinterpret_cast<uint64_t>(bytes.data()) + offset; }
  void clear() { std::fill(bytes.begin(), bytes.end(), kGuard); }
  bool is_clear(size_t from, size_t length) const;
  bool is_clear() const { return is_clear(0, bytes.size()); }
  bool holds(const Served& served, size_t served_offset, size_t from, size_t length) const;

  static constexpr uint8_t kGuard = 0xa5;
  std::vector<uint8_t> bytes;
  uint32_t handle = 0;
};

// One read; pieces are ranges of registered memory.
struct Read {
  uint32_t peer;
  uint32_t rkey;
  uint64_t remote_addr;
  std::vector<Piece> pieces;
  int64_t checksum = -1;
  uint64_t stamp = 0;
};

class Node {
 public:
  // One rail for each device; port 0: any. `change` adjusts the options, which are quick ones.
  Node(fake::Fabric& fabric, const std::vector<std::string>& addresses, uint16_t port = 0,
       const std::function<void(EngineOptions&)>& change = {});
  // Closes, checks that it ends soon.
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  void serve(Served& served, uint32_t rkey);
  void accept(Target& target);
  void withdraw(uint32_t handle);  // waits until no device uses it any more
  uint32_t peer(const Node& other) { return engine->peer(other.host, other.port()); }
  uint16_t port() const { return ports.at(0); }

  uint64_t start(const std::vector<Read>& reads, uint32_t timeout_ms = 5000);
  // Statuses of a batch, once; fails when they do not come within `timeout_ms`.
  std::vector<OpStatus> result(uint64_t batch, uint32_t timeout_ms = 20000);
  bool has_result(uint64_t batch);
  std::vector<OpStatus> read(const std::vector<Read>& reads, uint32_t timeout_ms = 5000);
  OpStatus read_one(const Read& read, uint32_t timeout_ms = 5000);
  // Ends the engine; fails when it takes longer than `timeout_ms`.
  void close(uint32_t timeout_ms = 10000);
  bool has_event(EventKind kind);
  // Until `done` holds, looked at after every report.
  bool wait(const std::function<bool()>& done, uint32_t timeout_ms = 10000);

  const std::string host;
  std::vector<uint16_t> ports;
  std::unique_ptr<Engine> engine;

 private:
  void take();

  std::mutex mutex_;
  std::condition_variable woken_;
  bool is_woken_ = false;
  uint64_t next_batch_ = 1;
  uint64_t first_after_close_ = 0;  // who asks a closed engine is still answered
  std::map<uint64_t, size_t> open_;  // batches without a result, and their counts of operations
  std::map<uint64_t, std::vector<OpStatus>> results_;
  std::set<uint32_t> deregistered_;
  std::map<EventKind, uint64_t> events_;  // by kind
  bool is_closed_ = false;
};

// Fails when anything is left of what was created.
void check_clean(fake::Fabric& fabric);

uint64_t resident_bytes();
size_t open_descriptors();

}  // namespace meshcache::tests
