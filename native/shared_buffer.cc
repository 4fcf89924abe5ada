#include "shared_buffer.h"

#include <dlfcn.h>

#include <atomic>
#include <memory>
#include <new>
#include <typeinfo>

namespace meshcache {
namespace {

// Node-API has a function for it since Node.js 22.23, 24.16 and 26.1.
using CreateExternal = napi_status (*)(napi_env env, void* data, size_t length, ReleaseMemory release, void* hint,
                                       napi_value* result);

// What these versions lack in Node-API is done by V8. Its binary interface does not change within a major version of Node.js,
// and of these versions there will be no others.
constexpr uint32_t kFirstMajorWithKnownV8 = 20;
constexpr uint32_t kLastMajorWithKnownV8 = 25;

// std::unique_ptr<v8::BackingStore>: a function returns it as it returns every object with a destructor.
struct OwnedStore {
  void* store;
  ~OwnedStore() {}  // not trivial: this decides how it is returned
};

using EndStore = void (*)(void* store);

// What a std::shared_ptr counts owners in, with the layout and the virtual functions of libstdc++, which Node.js is built with.
// std::shared_ptr itself has another layout here if the compiler has another library: V8 would never release the memory.
class StoreOwner {
 public:
  StoreOwner(void* store, EndStore end) : store_(store), end_(end) {}
  virtual ~StoreOwner() = default;

  void release() {
    if (--owners_ > 0) return;
    end_store();
    if (--observers_ == 0) end_self();
  }

 private:
  virtual void end_store() {
    end_(store_);
    ::operator delete(store_);
  }
  virtual void end_self() { delete this; }
  virtual void* deleter(const std::type_info&) { return nullptr; }

  std::atomic<int> owners_{1};
  std::atomic<int> observers_{1};
  void* store_;
  EndStore end_;
};
static_assert(sizeof(std::atomic<int>) == sizeof(int) && std::atomic<int>::is_always_lock_free);

// std::shared_ptr<v8::BackingStore> of libstdc++. A function that takes it gets its address, and may leave it empty.
struct SharedStore {
  void* store;
  StoreOwner* owner;

  SharedStore(void* shared, EndStore end) : store(shared), owner(new StoreOwner(shared, end)) {}
  SharedStore(const SharedStore&) = delete;
  SharedStore& operator=(const SharedStore&) = delete;
  ~SharedStore() {
    if (owner != nullptr) owner->release();
  }
};

using CurrentIsolate = void* (*)();
using NewStore = OwnedStore (*)(void* data, size_t length, void (*deleter)(void*, size_t, void*), void* hint);
using NewBuffer = napi_value (*)(void* isolate, SharedStore store);

template <typename Function>
void find(Function& function, const char* symbol) {
  function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, symbol));
}

struct Functions {
  CreateExternal create_external = nullptr;
  CurrentIsolate current_isolate = nullptr;
  NewStore new_store = nullptr;
  NewBuffer new_buffer = nullptr;
  EndStore end_store = nullptr;

  Functions() {
    find(create_external, "node_api_create_external_sharedarraybuffer");
    find(current_isolate, "_ZN2v87Isolate10GetCurrentEv");
    find(new_store, "_ZN2v817SharedArrayBuffer15NewBackingStoreEPvmPFvS1_mS1_ES1_");
    find(new_buffer, "_ZN2v817SharedArrayBuffer3NewEPNS_7IsolateESt10shared_ptrINS_12BackingStoreEE");
    find(end_store, "_ZN2v812BackingStoreD1Ev");
  }

  bool has_v8() const {
    return current_isolate != nullptr && new_store != nullptr && new_buffer != nullptr && end_store != nullptr;
  }
};

const Functions& functions() {
  static const Functions& instance = *new Functions;
  return instance;
}

bool has_known_v8(Napi::Env env) {
  const napi_node_version* version = nullptr;
  if (napi_get_node_version(env, &version) != napi_ok) return false;
  return version->major >= kFirstMajorWithKnownV8 && version->major <= kLastMajorWithKnownV8;
}

struct Release {
  ReleaseMemory release;
  void* data;
  void* hint;

  static void run(void*, size_t, void* self) {
    const std::unique_ptr<Release> end(static_cast<Release*>(self));
    end->release(end->data, end->hint);
  }
};

napi_value create_by_v8(void* data, size_t length, ReleaseMemory release, void* hint) {
  const Functions& v8 = functions();
  const OwnedStore owned = v8.new_store(data, length, Release::run, new Release{release, data, hint});
  return v8.new_buffer(v8.current_isolate(), SharedStore(owned.store, v8.end_store));
}

}  // namespace

const char* shared_buffer_obstacle(Napi::Env env) {
  const bool can = functions().create_external != nullptr || (has_known_v8(env) && functions().has_v8());
  return can ? "" : "this version of Node.js cannot share memory of addons: use 20, 22, 24, or 26.1 and newer";
}

Napi::Value make_shared_buffer(Napi::Env env, void* data, size_t length, ReleaseMemory release, void* hint) {
  if (functions().create_external == nullptr) return {env, create_by_v8(data, length, release, hint)};
  napi_value buffer = nullptr;
  const napi_status status = functions().create_external(env, data, length, release, hint, &buffer);
  if (status != napi_ok) throw Napi::Error::New(env, "a SharedArrayBuffer cannot be made");
  return {env, buffer};
}

}  // namespace meshcache
