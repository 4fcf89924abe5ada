#include "js_wake.h"

#include <mutex>
#include <utility>

namespace meshcache {

struct JsWake::Target {
  std::mutex mutex;
  napi_threadsafe_function function = nullptr;  // null: the environment or the JsWake has gone
  bool pending = false;                         // called, and not run yet
  std::function<void(Napi::Env)> on_wake;

  // Node frees the function itself when the environment ends, whoever may still want to call it: this comes before, as
  // hooks run in reverse order.
  static void environment_ends(void* data) {
    auto* target = static_cast<Target*>(data);
    std::lock_guard<std::mutex> lock(target->mutex);
    target->function = nullptr;
  }

  static void run(napi_env env, napi_value, void* context, void*) {
    if (env == nullptr) return;
    // Held: what runs may destroy the JsWake.
    const std::shared_ptr<Target> target = *static_cast<std::shared_ptr<Target>*>(context);
    {
      std::lock_guard<std::mutex> lock(target->mutex);
      target->pending = false;
      if (target->function == nullptr) return;
    }
    Napi::HandleScope scope(env);
    try {
      target->on_wake(env);
    } catch (const Napi::Error& error) {
      napi_fatal_exception(env, error.Value());
    }
  }

  static void finalize(napi_env, void* data, void*) { delete static_cast<std::shared_ptr<Target>*>(data); }
};

JsWake::JsWake(Napi::Env env, const char* name, std::function<void(Napi::Env)> on_wake)
    : env_(env), target_(std::make_shared<Target>()) {
  target_->on_wake = std::move(on_wake);
  auto* context = new std::shared_ptr<Target>(target_);
  napi_threadsafe_function function;
  const napi_status status =
      napi_create_threadsafe_function(env, nullptr, nullptr, Napi::String::New(env, name), 0, 1, context,
                                      Target::finalize, context, Target::run, &function);
  if (status != napi_ok) {
    delete context;
    throw Napi::Error::New(env, std::string(name) + ": no function that other threads may call");
  }
  napi_unref_threadsafe_function(env, function);
  target_->function = function;
  napi_add_env_cleanup_hook(env, Target::environment_ends, target_.get());
}

JsWake::~JsWake() {
  std::lock_guard<std::mutex> lock(target_->mutex);
  if (target_->function == nullptr) return;
  napi_remove_env_cleanup_hook(env_, Target::environment_ends, target_.get());
  napi_release_threadsafe_function(std::exchange(target_->function, nullptr), napi_tsfn_abort);
}

void JsWake::wake() {
  std::lock_guard<std::mutex> lock(target_->mutex);
  if (target_->function == nullptr || target_->pending) return;
  target_->pending = napi_call_threadsafe_function(target_->function, nullptr, napi_tsfn_nonblocking) == napi_ok;
}

void JsWake::hold() {
  if (holds_++ > 0) return;
  std::lock_guard<std::mutex> lock(target_->mutex);
  if (target_->function != nullptr) napi_ref_threadsafe_function(env_, target_->function);
}

void JsWake::release() {
  if (--holds_ > 0) return;
  std::lock_guard<std::mutex> lock(target_->mutex);
  if (target_->function != nullptr) napi_unref_threadsafe_function(env_, target_->function);
}

}  // namespace meshcache
