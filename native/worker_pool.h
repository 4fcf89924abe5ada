// A few threads that run jobs in the order in which they were handed in.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace meshcache {

class WorkerPool {
 public:
  // Throws std::system_error when the system gives not even one thread.
  explicit WorkerPool(size_t threads) {
    threads_.reserve(threads);
    for (size_t i = 0; i < threads; i++) {
      try {
        threads_.emplace_back([this] { run(); });
      } catch (const std::system_error&) {
        // Fewer will do.
        if (threads_.empty()) throw;
        break;
      }
    }
  }

  // Runs what was handed in before, then ends.
  ~WorkerPool() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ending_ = true;
    }
    ready_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  void submit(std::function<void()> job) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    ready_.notify_one();
  }

 private:
  void run() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      ready_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      job = nullptr;  // what it holds goes while the lock is not held
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> jobs_;
  std::vector<std::thread> threads_;
  bool ending_ = false;
};

}  // namespace meshcache
