// memoryAllocate, memoryMap, memoryViews, memoryIsDamaged, memoryFree, memoryPrefault, memoryAbsent, addressOf.
#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "arguments.h"
#include "bindings.h"
#include "contract.h"
#include "instance.h"
#include "memory.h"
#include "shared_buffer.h"

namespace meshcache {
namespace {

// Pieces of pre-faulting: small enough that threads end together, and a multiple of all sizes of pages.
constexpr uint64_t kPrefaultPieceBytes = uint64_t{16} << 20;
constexpr size_t kMaxPrefaultThreads = 256;

// The environment has it until it is freed.
Napi::Value owned_memory(Napi::Env env, const MappingRef& mapping) {
  Instance::of(env).own_memory(mapping);
  Napi::Object result = Napi::Object::New(env);
  result.Set("addr", static_cast<double>(reinterpret_cast<uint64_t>(mapping->begin())));
  result.Set("pageBytes", static_cast<double>(mapping->page_bytes()));
  result.Set("fd", mapping->fd());
  return result;
}

Napi::Value allocate(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const uint64_t length = address(info[0], "length");
  const uint32_t flags = uint32(info[1], "flags");
  try {
    return owned_memory(env, mappings::allocate(length, flags));
  } catch (const SystemError& error) {
    throw native_failure(env, error.what(), error.call, error.errnum, "");
  }
}

Napi::Value map_file(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const auto fd = static_cast<int>(whole_number(info[0], "fd", INT_MAX));
  const uint64_t length = address(info[1], "length");
  if (!info[2].IsBoolean()) wrong_argument(env, "writable must be a boolean");
  try {
    return owned_memory(env, mappings::map_file(fd, length, info[2].As<Napi::Boolean>()));
  } catch (const SystemError& error) {
    throw native_failure(env, error.what(), error.call, error.errnum, "");
  }
}

[[noreturn]] void no_such_memory(Napi::Env env, const char* call) {
  throw native_failure(env, std::string(call) + ": there is no memory at this address", call, EINVAL, "");
}

Napi::Value views(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const MappingRef mapping = mappings::at(address(info[0], "addr"));
  const uint64_t segment_bytes = address(info[1], "segmentBytes");
  if (segment_bytes == 0) wrong_argument(env, "segmentBytes must not be 0");
  if (mapping == nullptr) no_such_memory(env, "memoryViews");
  Napi::Array buffers = Napi::Array::New(env);
  uint32_t count = 0;
  for (uint64_t at = 0; at < mapping->length(); at += segment_bytes) {
    const uint64_t length = std::min<uint64_t>(segment_bytes, mapping->length() - at);
    auto* held = new MappingRef(mapping);
    const auto drop = [](void*, void* hint) { delete static_cast<MappingRef*>(hint); };
    try {
      buffers.Set(count++, make_shared_buffer(env, mapping->begin() + at, length, drop, held));
    } catch (const Napi::Error&) {
      delete held;
      throw;
    }
  }
  return buffers;
}

Napi::Value is_damaged(const Napi::CallbackInfo& info) {
  const MappingRef mapping = mappings::at(address(info[0], "addr"));
  if (mapping == nullptr) no_such_memory(info.Env(), "memoryIsDamaged");
  return Napi::Boolean::New(info.Env(), mapping->is_damaged());
}

void release(const Napi::CallbackInfo& info) {
  const uint64_t addr = address(info[0], "addr");
  if (!mappings::forget(addr)) no_such_memory(info.Env(), "memoryFree");
  Instance::of(info.Env()).disown_memory(addr);
}

// One call of memoryPrefault, shared by its threads.
struct Prefault {
  uint64_t next = 0;
  uint64_t end = 0;
  std::mutex mutex;
  std::atomic<int> error{0};
  MappingRef mapping;  // stays until all is done; null for memory that is not ours

  // On this thread, and on as many others as the system lets it have.
  void run_on(size_t threads) {
    std::vector<std::thread> others;
    try {
      while (others.size() + 1 < threads) others.emplace_back([this] { run(); });
    } catch (const std::system_error&) {
    }
    run();
    for (std::thread& other : others) other.join();
  }

  void run() {
    uint64_t from, to;
    while (error == 0 && take(from, to)) {
      const int failed = provide_memory(from, to - from);
      if (failed != 0) error = failed;
    }
  }

  bool take(uint64_t& from, uint64_t& to) {
    // The pages that have taken the place of its own are of no use to anybody.
    if (mapping != nullptr && mapping->is_given_back()) return false;
    std::lock_guard<std::mutex> lock(mutex);
    from = next;
    to = std::min(end, (from / kPrefaultPieceBytes + 1) * kPrefaultPieceBytes);
    next = to;
    return from < to;
  }
};

Napi::Value prefault(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  auto work = std::make_shared<Prefault>();
  work->next = address(info[0], "addr");
  const uint64_t length = address(info[1], "length");
  work->end = work->next + length;
  const size_t threads = std::clamp<size_t>(uint32(info[2], "threads"), 1, kMaxPrefaultThreads);
  work->mapping = mappings::around(work->next, length);
  if (work->mapping != nullptr && !work->mapping->is_writable()) work->error = EACCES;
  const auto deferred = Napi::Promise::Deferred::New(env);
  Instance& instance = Instance::of(env);
  instance.run_on_own_thread([work, deferred, length, threads, &instance] {
    work->run_on(threads);
    work->mapping = nullptr;
    instance.complete_job([deferred, length, error = work->error.load()](Napi::Env on) {
      if (error == 0) return deferred.Resolve(on.Undefined());
      const std::string message = "pre-faulting of " + std::to_string(length) + " bytes: " + std::strerror(error);
      deferred.Reject(native_failure(on, message, "madvise", error, "").Value());
    });
  });
  instance.start_job();
  return deferred.Promise();
}

Napi::Value absent(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const Napi::Float64Array ranges = float64_array(info[0], "ranges");
  if (ranges.ElementLength() % 2 != 0) wrong_argument(env, "ranges must be pairs of address and length");
  uint64_t bytes = 0;
  for (size_t i = 0; i < ranges.ElementLength(); i += 2) {
    if (!is_whole(ranges[i], kAddressLimit) || !is_whole(ranges[i + 1], kAddressLimit)) {
      wrong_argument(env, "addresses and lengths must be whole numbers");
    }
    bytes += absent_bytes(static_cast<uint64_t>(ranges[i]), static_cast<uint64_t>(ranges[i + 1]));
  }
  return Napi::Number::New(env, static_cast<double>(bytes));
}

Napi::Value address_of_view(const Napi::CallbackInfo& info) {
  const Napi::Uint8Array view = byte_view(info[0], "view");
  return Napi::Number::New(info.Env(), static_cast<double>(reinterpret_cast<uint64_t>(view.Data())));
}

}  // namespace

void export_memory(Napi::Env env, Napi::Object exports) {
  exports.Set("memoryAllocate", Napi::Function::New(env, allocate, "memoryAllocate"));
  exports.Set("memoryMap", Napi::Function::New(env, map_file, "memoryMap"));
  exports.Set("memoryIsDamaged", Napi::Function::New(env, is_damaged, "memoryIsDamaged"));
  exports.Set("memoryViews", Napi::Function::New(env, views, "memoryViews"));
  exports.Set("memoryFree", Napi::Function::New(env, release, "memoryFree"));
  exports.Set("memoryPrefault", Napi::Function::New(env, prefault, "memoryPrefault"));
  exports.Set("memoryAbsent", Napi::Function::New(env, absent, "memoryAbsent"));
  exports.Set("addressOf", Napi::Function::New(env, address_of_view, "addressOf"));
}

}  // namespace meshcache
