// What stands for RDMA in a build without it (MESHCACHE_NO_RDMA).
#include <cerrno>

#include "arguments.h"
#include "bindings.h"

namespace meshcache {
namespace {

constexpr char kReason[] = "this build has no RDMA in it (MESHCACHE_NO_RDMA)";

Napi::Value probe(const Napi::CallbackInfo& info) {
  Napi::Object result = Napi::Object::New(info.Env());
  result.Set("usable", Napi::Boolean::New(info.Env(), false));
  result.Set("step", "build");
  result.Set("reason", kReason);
  return result;
}

Napi::Value create(const Napi::CallbackInfo& info) {
  throw native_failure(info.Env(), kReason, "createRdmaEngine", ENOSYS, "");
}

}  // namespace

void export_rdma(Napi::Env env, Napi::Object exports) {
  exports.Set("hasRdma", Napi::Boolean::New(env, false));
  exports.Set("rdmaProbe", Napi::Function::New(env, probe, "rdmaProbe"));
  exports.Set("createRdmaEngine", Napi::Function::New(env, create, "createRdmaEngine"));
}

}  // namespace meshcache
