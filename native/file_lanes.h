// Threads for calls to the file system, which may not return for long.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "thread_signals.h"

namespace meshcache {

// Jobs wait in lanes, one for each file. A few threads serve a lane at a time, and each goes on with the lane's next job without
// sleeping. A lane never waits for another one: a thread is started when none is idle.
class FileLanes {
 public:
  FileLanes() = default;

  // Waits for the jobs.
  ~FileLanes() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ending_ = true;
    }
    ready_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  FileLanes(const FileLanes&) = delete;
  FileLanes& operator=(const FileLanes&) = delete;

  // From one thread only. If the system gives no further thread, the lane waits for one. False when there is none at all; then
  // the job is not made.
  bool submit(int lane, std::function<void()> job) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      Lane& entry = lanes_[lane];
      entry.jobs.push_back(std::move(job));
      if (entry.threads == kLaneMaxThreads) return true;
      entry.threads++;
      unserved_.push_back(lane);
      if (idle_ >= unserved_.size()) {
        ready_.notify_one();
        return true;
      }
    }
    try {
      SignalsBlocked blocked;
      threads_.emplace_back([this] { run(); });
    } catch (const std::system_error&) {
      if (!threads_.empty()) return true;
      lanes_.clear();
      unserved_.clear();
      return false;
    }
    return true;
  }

 private:
  static constexpr size_t kLaneMaxThreads = 4;

  struct Lane {
    std::deque<std::function<void()>> jobs;
    // Threads that serve it, or are to.
    size_t threads = 0;
  };

  void run() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      while (unserved_.empty()) {
        if (ending_) return;
        idle_++;
        ready_.wait(lock);
        idle_--;
      }
      const int lane = unserved_.front();
      unserved_.pop_front();
      serve(lanes_[lane], lock);
      if (lanes_[lane].threads == 0) lanes_.erase(lane);
    }
  }

  void serve(Lane& lane, std::unique_lock<std::mutex>& lock) {
    while (!lane.jobs.empty()) {
      std::function<void()> job = std::move(lane.jobs.front());
      lane.jobs.pop_front();
      lock.unlock();
      job();
      job = nullptr;  // what it holds goes while the lock is not held
      lock.lock();
    }
    lane.threads--;
  }

  std::mutex mutex_;
  std::condition_variable ready_;
  std::unordered_map<int, Lane> lanes_;
  // Lanes that want one more thread each time that they are here.
  std::deque<int> unserved_;
  size_t idle_ = 0;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace meshcache
