// What the addon has for one JavaScript environment: the main thread, or a worker thread.
#pragma once

#include <napi.h>

#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "file_lanes.h"
#include "js_wake.h"
#include "memory.h"
#include "worker_pool.h"

namespace meshcache {

// Something that has to end before its environment does.
class EnvironmentResource {
 public:
  virtual ~EnvironmentResource() = default;
};

class Instance {
 public:
  using Completion = std::function<void(Napi::Env)>;

  explicit Instance(Napi::Env env);
  // The environment ends: ends the resources, waits for jobs, forgets the memory that was not freed.
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  static Instance& of(Napi::Env env);

  // Threads for copies, started when they are first asked for.
  WorkerPool& copy_threads();
  static size_t copy_thread_count();

  // Calls to the file system, which may not answer.
  FileLanes& file_lanes() { return *file_lanes_; }

  // For each start_job() there is one complete_job(), from any thread, maybe sooner; its completion then runs in a
  // later turn of the environment's thread, or is dropped when that has ended. Until then the process stays.
  void start_job();
  void complete_job(Completion completion);

  // Runs the completion as complete_job() does, of a job for which the process does not stay.
  void complete_unheld(Completion completion);

  // A thread that runs `job` and has ended when the environment has.
  void run_on_own_thread(std::function<void()> job);

  // The instance holds it until `discard`, or the environment's end.
  void keep(EnvironmentResource* resource);  // takes ownership
  void discard(EnvironmentResource* resource);

  void own_memory(const MappingRef& mapping);
  void disown_memory(uint64_t addr);

 private:
  struct OwnThread;

  static void environment_ends(void* data);
  void run_completions(Napi::Env env);
  void join_finished_threads();

  std::mutex mutex_;
  std::vector<Completion> completions_;
  std::unique_ptr<JsWake> wake_;
  std::unique_ptr<WorkerPool> copy_threads_;
  std::unique_ptr<FileLanes> file_lanes_ = std::make_unique<FileLanes>();
  std::vector<std::unique_ptr<OwnThread>> own_threads_;
  std::unordered_map<EnvironmentResource*, std::unique_ptr<EnvironmentResource>> resources_;
  std::unordered_map<uint64_t, std::weak_ptr<const Mapping>> memory_;
};

}  // namespace meshcache
