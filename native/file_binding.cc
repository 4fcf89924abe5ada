// preallocate.
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

}  // namespace

void export_files(Napi::Env env, Napi::Object exports) {
  exports.Set("preallocate", Napi::Function::New(env, preallocate, "preallocate"));
}

}  // namespace meshcache
