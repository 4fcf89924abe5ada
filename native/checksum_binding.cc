// crc32, checksumPath; and for tests and benchmarks every single way to take a checksum.
#include <cstring>

#include "arguments.h"
#include "bindings.h"
#include "checksum.h"
#include "checksum_paths.h"

namespace meshcache {
namespace {

Napi::Value sum(const Napi::CallbackInfo& info) {
  const Napi::Uint8Array view = byte_view(info[0], "view");
  return Napi::Number::New(info.Env(), crc32(view.Data(), view.ByteLength(), uint32(info[1], "seed")));
}

// checksumPaths[name](view, seed): by that way; with a third argument, a view of the same length, copied there.
Napi::Value sum_by(const Napi::CallbackInfo& info) {
  const Napi::Uint8Array view = byte_view(info[0], "view");
  const uint32_t state = ~uint32(info[1], "seed");
  const auto& path = *static_cast<const ChecksumPath*>(info.Data());
  if (info[2].IsUndefined()) return Napi::Number::New(info.Env(), ~path.sum(state, view.Data(), view.ByteLength()));
  Napi::Uint8Array target = byte_view(info[2], "target");
  if (target.ByteLength() != view.ByteLength()) wrong_argument(info.Env(), "target must be as long as the view");
  return Napi::Number::New(info.Env(), ~path.copy(state, target.Data(), view.Data(), view.ByteLength()));
}

}  // namespace

void export_checksum(Napi::Env env, Napi::Object exports) {
  exports.Set("checksumPath", checksum_path());
  exports.Set("crc32", Napi::Function::New(env, sum, "crc32"));
  Napi::Object paths = Napi::Object::New(env);
  for (const ChecksumPath& path : checksum_paths()) {
    paths.Set(path.name, Napi::Function::New(env, sum_by, path.name, const_cast<ChecksumPath*>(&path)));
  }
  exports.Set("checksumPaths", paths);
}

}  // namespace meshcache
