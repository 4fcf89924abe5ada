// waitForInput: looks for input of the environment's event loop without sleeping.
#include <poll.h>

#include <chrono>

#include "arguments.h"
#include "bindings.h"

// Of libuv, which Node exports. Its header does not come with that of Node-API.
extern "C" int uv_backend_fd(const uv_loop_s* loop);

namespace meshcache {
namespace {

// The longest time that JavaScript may be held up.
constexpr uint32_t kWaitMaxUs = 10'000;

// waitForInput(us): returns after this many microseconds, or sooner: as soon as the loop has something to handle. True
// then. The loop has one descriptor that all others are watched through, also the one by which other threads wake it.
Napi::Value wait_for_input(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const uint32_t us = uint32(info[0], "us");
  if (us > kWaitMaxUs) wrong_argument(env, "us must be at most " + std::to_string(kWaitMaxUs));
  uv_loop_s* loop = nullptr;
  if (napi_get_uv_event_loop(env, &loop) != napi_ok) return Napi::Boolean::New(env, false);
  pollfd watched{uv_backend_fd(loop), POLLIN, 0};
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(us);
  do {
    if (poll(&watched, 1, 0) > 0) return Napi::Boolean::New(env, true);
  } while (std::chrono::steady_clock::now() < end);
  return Napi::Boolean::New(env, false);
}

}  // namespace

void export_loop(Napi::Env env, Napi::Object exports) {
  exports.Set("waitForInput", Napi::Function::New(env, wait_for_input, "waitForInput"));
}

}  // namespace meshcache
