#include "instance.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

namespace meshcache {
namespace {

constexpr size_t kMaxCopyThreads = 4;

}  // namespace

struct Instance::OwnThread {
  std::atomic<bool> done{false};
  std::thread thread;
};

Instance::Instance(Napi::Env env)
    : wake_(std::make_unique<JsWake>(env, "meshcache jobs", [this](Napi::Env on) { run_completions(on); })) {
  napi_set_instance_data(env, this, nullptr, nullptr);
  napi_add_env_cleanup_hook(env, environment_ends, this);
}

Instance::~Instance() {
  resources_.clear();
  copy_threads_.reset();
  file_lanes_.reset();
  for (const auto& own : own_threads_) own->thread.join();
  for (const auto& [addr, weak] : memory_) {
    const MappingRef mapping = weak.lock();
    if (mapping != nullptr && mappings::at(addr) == mapping) mappings::forget(addr);
  }
}

void Instance::environment_ends(void* data) { delete static_cast<Instance*>(data); }

Instance& Instance::of(Napi::Env env) {
  void* data = nullptr;
  napi_get_instance_data(env, &data);
  return *static_cast<Instance*>(data);
}

size_t Instance::copy_thread_count() {
  return std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMaxCopyThreads);
}

WorkerPool& Instance::copy_threads() {
  if (copy_threads_ == nullptr) copy_threads_ = std::make_unique<WorkerPool>(copy_thread_count());
  return *copy_threads_;
}

void Instance::start_job() { wake_->hold(); }

void Instance::complete_job(Completion completion) {
  complete_unheld([this, completion = std::move(completion)](Napi::Env env) {
    wake_->release();
    completion(env);
  });
}

void Instance::complete_unheld(Completion completion) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    completions_.push_back(std::move(completion));
  }
  wake_->wake();
}

void Instance::run_completions(Napi::Env env) {
  std::vector<Completion> completions;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    completions.swap(completions_);
  }
  for (const Completion& completion : completions) completion(env);
}

void Instance::run_on_own_thread(std::function<void()> job) {
  join_finished_threads();
  auto own = std::make_unique<OwnThread>();
  OwnThread& started = *own;
  started.thread = std::thread([&started, job = std::move(job)] {
    job();
    started.done = true;
  });
  own_threads_.push_back(std::move(own));
}

void Instance::join_finished_threads() {
  const auto is_running = [](const auto& own) { return !own->done; };
  const auto finished = std::partition(own_threads_.begin(), own_threads_.end(), is_running);
  for (auto own = finished; own != own_threads_.end(); ++own) (*own)->thread.join();
  own_threads_.erase(finished, own_threads_.end());
}

void Instance::keep(EnvironmentResource* resource) { resources_.emplace(resource, resource); }

void Instance::discard(EnvironmentResource* resource) { resources_.erase(resource); }

void Instance::own_memory(const MappingRef& mapping) {
  memory_[reinterpret_cast<uint64_t>(mapping->begin())] = mapping;
}

void Instance::disown_memory(uint64_t addr) { memory_.erase(addr); }

}  // namespace meshcache
