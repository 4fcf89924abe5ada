// What two engines tell each other in the private data of rdma_cm, little-endian.
//
//     request (52 of at most 56 bytes)    reply (72 of at most 196)            refusal (8 of at most 148)
//      0  u32 "MCRQ"                       0  u32 "MCRP"                        0  u32 "MCRJ"
//      4  u16 version                      4  u16 version                       4  u16 version
//      6  u16 1: a token follows           6  u16 1: a token follows            6  u16 reason
//      8  u8[32] token                     8  u8[32] token
//     40  u64 address of the reader's     40  u64 address of the server's
//             region table                        region table
//     48  u32 its device rkey             48  u32 its device rkey
//                                         52  u32 rail that was reached
//                                         56  u64 id of the engine
//                                         64  u64 0
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "engine.h"

namespace meshcache {

constexpr uint16_t kHandshakeVersion = 1;
constexpr uint32_t kRequestMagic = 0x5152434d;
constexpr uint32_t kReplyMagic = 0x5052434d;
constexpr uint32_t kRefusalMagic = 0x4a52434d;

enum class Refusal : uint16_t { kSecret = 1, kVersion = 2, kTooMany = 3, kClosing = 4 };

// Where a peer's region table lies, for the rail that was reached.
struct TableLocation {
  uint64_t addr = 0;
  uint32_t device_rkey = 0;
};

struct RequestData {
  uint32_t magic;
  uint16_t version;
  uint16_t has_token;
  uint8_t token[kTokenBytes];
  uint64_t table_addr;
  uint32_t table_rkey;
} __attribute__((packed));
static_assert(sizeof(RequestData) == 52, "fits rdma_cm's 56 bytes");

struct ReplyData {
  uint32_t magic;
  uint16_t version;
  uint16_t has_token;
  uint8_t token[kTokenBytes];
  uint64_t table_addr;
  uint32_t table_rkey;
  uint32_t rail;
  uint64_t engine_id;
  uint64_t zero;
} __attribute__((packed));
static_assert(sizeof(ReplyData) == 72, "fits rdma_cm's 196 bytes");

struct RefusalData {
  uint32_t magic;
  uint16_t version;
  uint16_t reason;
} __attribute__((packed));

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the handshake and the region table are little-endian in memory"
#endif

// False when the private data is too short.
template <typename Data>
bool decode(const std::vector<uint8_t>& bytes, Data& into) {
  if (bytes.size() < sizeof(Data)) return false;
  memcpy(&into, bytes.data(), sizeof(Data));
  return true;
}

// Takes the same time wherever the first difference is.
inline bool same_token(const uint8_t* a, const uint8_t* b) {
  uint8_t difference = 0;
  for (size_t i = 0; i < kTokenBytes; i++) difference |= a[i] ^ b[i];
  return difference == 0;
}

}  // namespace meshcache
