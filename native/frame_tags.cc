#include "frame_tags.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>

namespace meshcache {
namespace {

// Bytes of one call, and how far ahead of them memory is fetched: OpenSSL's own code waits for each cache line.
constexpr size_t kAddBytes = 1024;
constexpr size_t kFetchAheadBytes = 2048;
constexpr size_t kLineBytes = 64;
constexpr size_t kNonceBytes = 12;
constexpr int kGetTag = 0x10;  // EVP_CTRL_AEAD_GET_TAG

// The functions of OpenSSL that are called. They have the same form in its versions 1.1 and 3, and are declared here, as
// the headers differ from one version of Node to the next.
struct OpenSsl {
  const void* (*aes_256_gcm)() = nullptr;
  void* (*new_context)() = nullptr;
  void (*free_context)(void* context) = nullptr;
  int (*init)(void* context, const void* cipher, void* engine, const uint8_t* key, const uint8_t* nonce) = nullptr;
  int (*update)(void* context, uint8_t* out, int* out_bytes, const uint8_t* in, int in_bytes) = nullptr;
  int (*finish)(void* context, uint8_t* out, int* out_bytes) = nullptr;
  int (*control)(void* context, int type, int number, void* bytes) = nullptr;
  // Whether the functions are there and do what they are to do.
  bool is_usable = true;

  OpenSsl() {
    find(aes_256_gcm, "EVP_aes_256_gcm");
    find(new_context, "EVP_CIPHER_CTX_new");
    find(free_context, "EVP_CIPHER_CTX_free");
    find(init, "EVP_EncryptInit_ex");
    find(update, "EVP_EncryptUpdate");
    find(finish, "EVP_EncryptFinal_ex");
    find(control, "EVP_CIPHER_CTX_ctrl");
    is_usable = is_usable && computes_known_tag();
  }

  // A context for tags under the key; null: OpenSSL is not there, or has failed.
  void* context_of(const uint8_t* key) const {
    void* context = is_usable ? new_context() : nullptr;
    if (context == nullptr || init(context, aes_256_gcm(), nullptr, key, nullptr) == 1) return context;
    free_context(context);
    return nullptr;
  }

  bool add(void* context, const uint8_t* bytes, size_t length) const {
    for (size_t at = 0; at < length; at += kAddBytes) {
      const size_t ahead = at + kFetchAheadBytes;
      const size_t ahead_end = std::min(length, ahead + kAddBytes);
      for (size_t line = ahead; line < ahead_end; line += kLineBytes) __builtin_prefetch(bytes + line);
      int taken = 0;
      const auto take = static_cast<int>(std::min(kAddBytes, length - at));
      if (update(context, nullptr, &taken, bytes + at, take) != 1) return false;
    }
    return true;
  }

  bool end(void* context, uint8_t* tag) const {
    uint8_t text[kTagBytes];  // stays empty
    int text_bytes = 0;
    return finish(context, text, &text_bytes) == 1 && control(context, kGetTag, kTagBytes, tag) == 1;
  }

 private:
  // Node exports what it was linked with, or the library does that it was linked to.
  template <typename Function>
  void find(Function*& function, const char* symbol) {
    function = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, symbol));
    if (function == nullptr) is_usable = false;
  }

  // Another library of the same names, of a program that Node is part of, may differ: compares a tag of the tests of NIST.
  bool computes_known_tag() const {
    const uint8_t key[kTagKeyBytes] = {0x78, 0xdc, 0x4e, 0x0a, 0xaf, 0x52, 0xd9, 0x35, 0xc3, 0xc0, 0x1e,
                                       0xea, 0x57, 0x42, 0x8f, 0x00, 0xca, 0x1f, 0xd4, 0x75, 0xf5, 0xda,
                                       0x86, 0xa4, 0x9c, 0x8d, 0xd7, 0x3d, 0x68, 0xc8, 0xe2, 0x23};
    const uint8_t nonce[kNonceBytes] = {0xd7, 0x9c, 0xf2, 0x2d, 0x50, 0x4c, 0xc7, 0x93, 0xc3, 0xfb, 0x6c, 0x8a};
    const uint8_t bytes[] = {0xb9, 0x6b, 0xaa, 0x8c, 0x1c, 0x75, 0xa6, 0x71,
                             0xbf, 0xb2, 0xd0, 0x8d, 0x06, 0xbe, 0x5f, 0x36};
    const uint8_t wanted[kTagBytes] = {0x3e, 0x5d, 0x48, 0x6a, 0xa2, 0xe3, 0x0b, 0x22,
                                       0xe0, 0x40, 0xb8, 0x57, 0x23, 0xa0, 0x6e, 0x76};
    void* context = context_of(key);
    if (context == nullptr) return false;
    uint8_t tag[kTagBytes] = {};
    const bool is_right = init(context, nullptr, nullptr, nullptr, nonce) == 1 && add(context, bytes, sizeof bytes) &&
                          end(context, tag) && std::memcmp(tag, wanted, kTagBytes) == 0;
    free_context(context);
    return is_right;
  }
};

const OpenSsl& open_ssl() {
  static const OpenSsl functions;
  return functions;
}

}  // namespace

FrameTagger* FrameTagger::make(const uint8_t key[kTagKeyBytes]) {
  void* context = open_ssl().context_of(key);
  return context == nullptr ? nullptr : new FrameTagger(context);
}

FrameTagger::~FrameTagger() { open_ssl().free_context(context_); }

bool FrameTagger::begin(uint64_t frame, uint32_t part) {
  uint8_t nonce[kNonceBytes];
  for (int i = 0; i < 8; i++) nonce[i] = static_cast<uint8_t>(frame >> (56 - 8 * i));
  for (int i = 0; i < 4; i++) nonce[8 + i] = static_cast<uint8_t>(part >> (24 - 8 * i));
  return open_ssl().init(context_, nullptr, nullptr, nullptr, nonce) == 1;
}

bool FrameTagger::add(const uint8_t* bytes, size_t length) { return open_ssl().add(context_, bytes, length); }

bool FrameTagger::end(uint8_t tag[kTagBytes]) { return open_ssl().end(context_, tag); }

}  // namespace meshcache
