// createFrameTagger.
#include <memory>

#include "arguments.h"
#include "bindings.h"
#include "frame_tags.h"

namespace meshcache {
namespace {

constexpr double kFrameLimit = 9007199254740992.0;  // 2^53

void must(Napi::Env env, bool is_done) {
  if (!is_done) throw Napi::Error::New(env, "OpenSSL could not compute the tag of a frame");
}

// The place of a tag in `bytes`, from `at` on.
uint8_t* tag_place(const Napi::CallbackInfo& info) {
  Napi::Uint8Array bytes = byte_view(info[0], "bytes");
  const uint64_t at = whole_number(info[1], "at", kFrameLimit);
  if (bytes.ByteLength() < kTagBytes || at > bytes.ByteLength() - kTagBytes) {
    wrong_argument(info.Env(), "bytes must have 16 bytes for the tag from `at` on");
  }
  return bytes.Data() + at;
}

Napi::Value create(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const Napi::Uint8Array key = byte_view(info[0], "key");
  if (key.ByteLength() != kTagKeyBytes) wrong_argument(env, "key must be 32 bytes");
  const std::shared_ptr<FrameTagger> tagger(FrameTagger::make(key.Data()));
  if (tagger == nullptr) return env.Null();

  using Info = const Napi::CallbackInfo&;
  Napi::Object object = Napi::Object::New(env);
  object.Set("begin", Napi::Function::New(env, [tagger](Info call) {
               const uint64_t frame = whole_number(call[0], "frame", kFrameLimit);
               must(call.Env(), tagger->begin(frame, uint32(call[1], "part")));
             }));
  object.Set("add", Napi::Function::New(env, [tagger](Info call) {
               const Napi::Uint8Array bytes = byte_view(call[0], "bytes");
               must(call.Env(), tagger->add(bytes.Data(), bytes.ByteLength()));
             }));
  object.Set("end", Napi::Function::New(env, [tagger](Info call) { must(call.Env(), tagger->end(tag_place(call))); }));
  return object;
}

}  // namespace

void export_frame_tags(Napi::Env env, Napi::Object exports) {
  exports.Set("createFrameTagger", Napi::Function::New(env, create, "createFrameTagger"));
}

}  // namespace meshcache
