// The parts of the addon's exports; each adds its own to `exports`.
#pragma once

#include <napi.h>

namespace meshcache {

void export_memory(Napi::Env env, Napi::Object exports);
void export_checksum(Napi::Env env, Napi::Object exports);
void export_copies(Napi::Env env, Napi::Object exports);
void export_frame_tags(Napi::Env env, Napi::Object exports);
void export_loop(Napi::Env env, Napi::Object exports);
void export_files(Napi::Env env, Napi::Object exports);
void export_descriptors(Napi::Env env, Napi::Object exports);
void export_rdma(Napi::Env env, Napi::Object exports);

}  // namespace meshcache
