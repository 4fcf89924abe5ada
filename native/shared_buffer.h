// SharedArrayBuffers over memory of the addon.
//
// V8 counts an ArrayBuffer over foreign memory by its length, though nothing was allocated, and collects all garbage for each
// large one. A SharedArrayBuffer counts nothing, so that a mapping of terabytes costs no more than one of a page. Other threads
// can be given it, and nobody can transfer it away.
#pragma once

#include <napi.h>

#include <cstddef>

namespace meshcache {

// Called once nobody holds the buffer any more, on any thread, also after the environment has ended.
using ReleaseMemory = void (*)(void* data, void* hint);

// Why this Node.js cannot make them; empty if it can.
const char* shared_buffer_obstacle(Napi::Env env);

// Throws Napi::Error, and then does not call `release`.
Napi::Value make_shared_buffer(Napi::Env env, void* data, size_t length, ReleaseMemory release, void* hint);

}  // namespace meshcache
