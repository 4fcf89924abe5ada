// A call into JavaScript's thread from any other one.
#pragma once

#include <napi.h>

#include <functional>
#include <memory>

namespace meshcache {

// Made and destroyed on the thread of its environment, which it survives: wake() is safe, and in vain, when the
// environment has gone.
class JsWake {
 public:
  // `on_wake` runs on the environment's thread after one or more calls of wake(). What it throws is an uncaught
  // exception there.
  JsWake(Napi::Env env, const char* name, std::function<void(Napi::Env)> on_wake);
  ~JsWake();
  JsWake(const JsWake&) = delete;
  JsWake& operator=(const JsWake&) = delete;

  // Any thread.
  void wake();

  // Between hold() and as many release() the process does not end by itself. The environment's thread only.
  void hold();
  void release();

 private:
  struct Target;

  const Napi::Env env_;
  const std::shared_ptr<Target> target_;
  size_t holds_ = 0;
};

}  // namespace meshcache
