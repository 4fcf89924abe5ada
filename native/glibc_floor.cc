// Lets the addon run on older systems than the one that it is built on.
//
// Since glibc 2.34 the functions of libpthread and libdl are bound in new versions that older systems do not have,
// though their code is the same as in the old ones, which remain. The linker puts __wrap_f in the place of each
// f of MESHCACHE_OLD_VERSIONS in CMakeLists.txt, also where libstdc++ calls it; here it leads to the old
// version. test/native/abi.test.ts says what the oldest glibc is.
#include <features.h>  // defines __GLIBC__

#if defined(__linux__) && defined(__x86_64__) && defined(__GLIBC__)

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#define MESHCACHE_OLD(version, result, name, parameters, arguments)   \
  extern "C" result meshcache_old_##name parameters;                  \
  __asm__(".symver meshcache_old_" #name ", " #name "@GLIBC_" version); \
  extern "C" result __wrap_##name parameters { return meshcache_old_##name arguments; }

MESHCACHE_OLD("2.2.5", void*, dlopen, (const char* file, int mode), (file, mode))
MESHCACHE_OLD("2.2.5", void*, dlsym, (void* handle, const char* name), (handle, name))
MESHCACHE_OLD("2.2.5", void*, dlvsym, (void* handle, const char* name, const char* version), (handle, name, version))
MESHCACHE_OLD("2.2.5", char*, dlerror, (), ())
MESHCACHE_OLD("2.2.5", int, pthread_create,
              (pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument),
              (thread, attributes, run, argument))
MESHCACHE_OLD("2.2.5", int, pthread_join, (pthread_t thread, void** result), (thread, result))
MESHCACHE_OLD("2.2.5", int, pthread_detach, (pthread_t thread), (thread))
MESHCACHE_OLD("2.2.5", int, pthread_once, (pthread_once_t* once, void (*run)()), (once, run))
MESHCACHE_OLD("2.2.5", int, pthread_key_create, (pthread_key_t* key, void (*end)(void*)), (key, end))
MESHCACHE_OLD("2.2.5", int, __pthread_key_create, (pthread_key_t* key, void (*end)(void*)), (key, end))
MESHCACHE_OLD("2.2.5", int, pthread_key_delete, (pthread_key_t key), (key))
MESHCACHE_OLD("2.2.5", void*, pthread_getspecific, (pthread_key_t key), (key))
MESHCACHE_OLD("2.2.5", int, pthread_setspecific, (pthread_key_t key, const void* value), (key, value))
MESHCACHE_OLD("2.2.5", int, pthread_sigmask, (int how, const sigset_t* mask, sigset_t* before), (how, mask, before))
MESHCACHE_OLD("2.12", int, pthread_setname_np, (pthread_t thread, const char* name), (thread, name))

// What std::random_device uses where there is one (glibc 2.36).
extern "C" uint32_t __wrap_arc4random() {
  uint32_t value;
  if (getentropy(&value, sizeof value) != 0) std::abort();
  return value;
}

// libstdc++ asks whether it may do without atomic operations (glibc 2.32). It may not: Node has threads.
extern "C" {
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;
}

#endif
