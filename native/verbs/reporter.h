// What the engine has to say, gathered until the caller takes it; and its counters.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <utility>

#include "engine.h"

namespace meshcache {

// Counters are written by any thread and read by any.
struct Counters {
  std::atomic<uint64_t> read_ops{0}, read_bytes{0}, failed_ops{0}, checksum_failures{0}, posted_requests{0},
      retried_ops{0}, connections{0}, accepted_connections{0}, connects{0}, reconnects{0}, refused_connections{0},
      protocol_errors{0}, region_table_reads{0}, lost_connections{0}, dropped_events{0}, stale_ops{0};
};

class Reporter {
 public:
  explicit Reporter(std::function<void()> wake) : wake_(std::move(wake)) {}

  void batch_done(BatchResult result) {
    add([&](Report& report) { report.batches.push_back(std::move(result)); });
  }

  void event(EngineEvent event) {
    add([&](Report& report) {
      if (report.events.size() < kMaxPendingEvents) report.events.push_back(std::move(event));
      else counters.dropped_events++;
    });
  }

  void deregistered(uint32_t handle) {
    add([&](Report& report) { report.deregistered.push_back(handle); });
  }

  void closed() {
    add([&](Report& report) { report.closed = true; });
  }

  Report take() {
    std::lock_guard<std::mutex> lock(mutex_);
    is_pending_ = false;
    return std::exchange(report_, Report{});
  }

  Counters counters;

 private:
  static constexpr size_t kMaxPendingEvents = 256;

  // One wake-up for each report, however much is added to it before it is taken.
  template <typename Change>
  void add(Change change) {
    bool must_wake;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      change(report_);
      must_wake = !std::exchange(is_pending_, true);
    }
    if (must_wake) wake_();
  }

  const std::function<void()> wake_;
  std::mutex mutex_;
  Report report_;
  bool is_pending_ = false;
};

}  // namespace meshcache
