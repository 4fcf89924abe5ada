// preallocate, readAt and writeAt.
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>

#ifdef __linux__
#include <fcntl.h>
#endif

#include "arguments.h"
#include "bindings.h"
#include "instance.h"

namespace meshcache {
namespace {

// Offsets in files that a number of JavaScript says exactly.
constexpr double kFileOffsetLimit = 9007199254740992.0;  // 2^53

int reserve(int fd, uint64_t offset, uint64_t length) {
#ifdef __linux__
  int result;
  do {
    result = fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(length));
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
#else
  (void)fd, (void)offset, (void)length;
  return EOPNOTSUPP;
#endif
}

Napi::Value preallocate(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const int fd = static_cast<int>(whole_number(info[0], "fd", INT_MAX));
  const uint64_t offset = whole_number(info[1], "offset", kFileOffsetLimit);
  const uint64_t length = whole_number(info[2], "length", kFileOffsetLimit);
  const auto deferred = Napi::Promise::Deferred::New(env);
  Instance& instance = Instance::of(env);
  instance.run_on_own_thread([fd, offset, length, deferred, &instance] {
    const int error = reserve(fd, offset, length);
    instance.complete_job([deferred, error](Napi::Env on) { deferred.Resolve(Napi::Number::New(on, error)); });
  });
  instance.start_job();
  return deferred.Promise();
}

// All bytes, unless the file ends before; the errno, negated, if the first call fails.
int64_t read_fully(int fd, uint8_t* target, size_t length, off_t position) {
  size_t done = 0;
  while (done < length) {
    const ssize_t count = pread(fd, target + done, length - done, position + static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return -errno;
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  return static_cast<int64_t>(done);
}

int64_t write_once(int fd, const uint8_t* source, size_t length, off_t position) {
  for (;;) {
    const ssize_t count = pwrite(fd, source, length, position);
    if (count >= 0) return count;
    if (errno != EINTR) return -errno;
  }
}

// The state that JavaScript looks at while the call is in progress: an Int32Array with one number in shared memory.
std::atomic<int32_t>* call_state(const Napi::Value& value) {
  static_assert(sizeof(std::atomic<int32_t>) == sizeof(int32_t), "an atomic number has the layout of a plain one");
  if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != napi_int32_array ||
      value.As<Napi::TypedArray>().ElementLength() != 1) {
    wrong_argument(value.Env(), "state must be an Int32Array with one number");
  }
  return reinterpret_cast<std::atomic<int32_t>*>(value.As<Napi::Int32Array>().Data());
}

Napi::Value call_file(const Napi::CallbackInfo& info, bool is_write) {
  const Napi::Env env = info.Env();
  const int fd = static_cast<int>(whole_number(info[0], "fd", INT_MAX));
  const uint64_t addr = address(info[1], "addr");
  const uint64_t length = whole_number(info[2], "length", kAddressLimit);
  const uint64_t position = whole_number(info[3], "position", kFileOffsetLimit);
  std::atomic<int32_t>* state = call_state(info[4]);
  const auto deferred = Napi::Promise::Deferred::New(env);
  Instance& instance = Instance::of(env);
  const bool is_made = instance.file_lanes().submit(fd, [=, &instance] {
    auto* bytes = reinterpret_cast<uint8_t*>(addr);
    const auto at = static_cast<off_t>(position);
    const int64_t result = is_write ? write_once(fd, bytes, length, at) : read_fully(fd, bytes, length, at);
    state->store(0);
    instance.complete_unheld(
        [=](Napi::Env on) { deferred.Resolve(Napi::Number::New(on, static_cast<double>(result))); });
  });
  if (!is_made) {
    state->store(0);
    deferred.Resolve(Napi::Number::New(env, -EAGAIN));
  }
  return deferred.Promise();
}

Napi::Value read_at(const Napi::CallbackInfo& info) { return call_file(info, false); }

Napi::Value write_at(const Napi::CallbackInfo& info) { return call_file(info, true); }

}  // namespace

void export_files(Napi::Env env, Napi::Object exports) {
  exports.Set("preallocate", Napi::Function::New(env, preallocate, "preallocate"));
  exports.Set("readAt", Napi::Function::New(env, read_at, "readAt"));
  exports.Set("writeAt", Napi::Function::New(env, write_at, "writeAt"));
}

}  // namespace meshcache
