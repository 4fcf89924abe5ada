// An engine as JavaScript has it: its reports brought to JavaScript's thread, and its end with the environment's.
#pragma once

#include <napi.h>

#include <functional>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "instance.h"
#include "js_wake.h"
#include "memory.h"
#include "verbs/engine.h"

namespace meshcache {

// Used on its environment's thread only.
class RdmaSession : public std::enable_shared_from_this<RdmaSession> {
 public:
  // Made by make_shared. Throws VerbsError.
  RdmaSession(Napi::Function on_report, const VerbsApi& api, EngineOptions options);
  ~RdmaSession() { end(); }
  RdmaSession(const RdmaSession&) = delete;
  RdmaSession& operator=(const RdmaSession&) = delete;

  // To be called once when the engine has closed, if the environment still lives then.
  void on_closed(std::function<void()> callback) { on_closed_ = std::move(callback); }

  // Waits until the engine has closed; there are no reports afterwards, and all calls but stats() throw. Idempotent.
  void end();

  Napi::Value ports(Napi::Env env) const;
  Napi::Value register_mr(const Napi::CallbackInfo& info);
  Napi::Value deregister_mr(const Napi::CallbackInfo& info);
  Napi::Value peer(const Napi::CallbackInfo& info);
  void submit(const Napi::CallbackInfo& info);
  void set_tokens(Napi::Env env, std::vector<Token> tokens);
  Napi::Value stats(const Napi::CallbackInfo& info) const;
  void close();

 private:
  Engine& live(Napi::Env env, const char* call);
  void deliver(Napi::Env env);

  Napi::FunctionReference on_report_;
  std::unique_ptr<JsWake> wake_;
  std::unique_ptr<Engine> engine_;  // null: closed
  EngineStats last_stats_{};
  uint32_t peer_count_ = 0;
  bool closing_ = false;
  // What is registered, by handle. Memory of ours is held: an ending environment would unmap it under devices and
  // checksum threads. Null: memory of others.
  std::unordered_map<uint32_t, MappingRef> registered_;
  // Handles of those that are to go and of which it has not been reported yet that they have.
  std::unordered_set<uint32_t> leaving_;
  std::function<void()> on_closed_;
};

}  // namespace meshcache
