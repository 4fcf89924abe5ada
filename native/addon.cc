// The addon: one instance for each JavaScript environment that loads it; src/native/addon/contract.ts is what it exports.
#include <napi.h>

#include "bindings.h"
#include "contract.h"
#include "instance.h"
#include "shared_buffer.h"

namespace meshcache {
namespace {

Napi::Object constants(Napi::Env env) {
  Napi::Object values = Napi::Object::New(env);
  values.Set("memoryHugePages", kMemoryHugePages);
  values.Set("memoryShared", kMemoryShared);
  values.Set("accessRemoteRead", kContractAccessRemoteRead);
  values.Set("accessLocalWrite", kContractAccessLocalWrite);
  values.Set("descriptorRecordMaxBytes", kDescriptorRecordMaxBytes);
  values.Set("descriptorReplyMaxBytes", kDescriptorReplyMaxBytes);
  values.Set("opColumns", kOpColumns);
  values.Set("opStatus", kOpStatusNames);
  values.Set("rdmaEventKinds", kRdmaEventKindNames);
  values.Set("rdmaEventCauses", kRdmaEventCauseNames);
  values.Set("rdmaStats", kRdmaStatNames);
  return values;
}

Napi::Object initialise(Napi::Env env, Napi::Object exports) {
  const char* obstacle = shared_buffer_obstacle(env);
  if (obstacle[0] != '\0') throw Napi::Error::New(env, obstacle);
  new Instance(env);  // destroyed when the environment ends
  exports.Set("contractVersion", kContractVersion);
  exports.Set("constants", constants(env));
  export_memory(env, exports);
  export_checksum(env, exports);
  export_copies(env, exports);
  export_frame_tags(env, exports);
  export_loop(env, exports);
  export_files(env, exports);
  export_descriptors(env, exports);
  export_rdma(env, exports);
  return exports;
}

}  // namespace
}  // namespace meshcache

static Napi::Object meshcache_initialise(Napi::Env env, Napi::Object exports) {
  return meshcache::initialise(env, exports);
}

NODE_API_MODULE(meshcache, meshcache_initialise)
