// Tags of frames by the OpenSSL of Node, with one context for each key: a cipher object of `node:crypto` for each tag costs
// more than the tag of a small page.
#pragma once

#include <cstddef>
#include <cstdint>

namespace meshcache {

constexpr size_t kTagBytes = 16;
constexpr size_t kTagKeyBytes = 32;

// Computes AES-256-GCM tags without text, one after the other, each over additional data that comes in pieces. For one thread.
class FrameTagger {
 public:
  // Null: no OpenSSL can be called in this process, or it has failed.
  static FrameTagger* make(const uint8_t key[kTagKeyBytes]);
  ~FrameTagger();
  FrameTagger(const FrameTagger&) = delete;
  FrameTagger& operator=(const FrameTagger&) = delete;

  // False: OpenSSL has failed. A tag that was begun and not ended is given up.
  bool begin(uint64_t frame, uint32_t part);
  bool add(const uint8_t* bytes, size_t length);
  // Nothing can be added afterwards.
  bool end(uint8_t tag[kTagBytes]);

 private:
  explicit FrameTagger(void* context) : context_(context) {}

  void* const context_;
};

}  // namespace meshcache
