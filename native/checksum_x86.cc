// CRC-32 by carry-less multiplication: the folding of Intel's white paper "Fast CRC Computation for Generic
// Polynomials Using PCLMULQDQ Instruction" (Gopal et al., 2009), in vectors of 16, 32 or 64 bytes.
//
// A 16-byte lane is a polynomial of degree 127. To add it to the lane that lies `distance` bits later in the message,
// its two halves are multiplied by x^(distance + 32) and x^(distance - 32), modulo the CRC's polynomial (the 32 stand
// for the position of a 32-bit constant in a 64-bit half; the shift by one in fold_constant() makes up for the product
// of two reflected numbers being one bit short). What is left at the end is one lane that has the same checksum as
// the whole message: the tables do those 16 bytes.
#include "checksum_paths.h"
#include "checksum_polynomial.h"

#if defined(__x86_64__)

#include <immintrin.h>

namespace meshcache {
namespace {

constexpr uint64_t fold_constant(unsigned exponent) { return static_cast<uint64_t>(power_of_x(exponent)) << 1; }

// For the half with the earlier bytes (the low one, as bits are reflected) and for the one with the later.
constexpr long long early_factor(unsigned distance) { return static_cast<long long>(fold_constant(distance + 32)); }
constexpr long long late_factor(unsigned distance) { return static_cast<long long>(fold_constant(distance - 32)); }

static_assert(early_factor(512) == 0x154442bd4 && late_factor(512) == 0x1c6e41596, "as printed in the white paper");

// Bits between a lane and the one that is to take it in: the width of all vectors that are worked on at once.
constexpr size_t kSseBlockBytes = 4 * 16;
constexpr size_t kAvx2BlockBytes = 8 * 32;
constexpr size_t kAvx512BlockBytes = 4 * 64;

enum class Mode {
  kSum,
  kStore,
  // Past the caches: what is copied is written without being fetched first. The target is aligned to a cache line.
  kStream,
};

constexpr size_t kLineBytes = 64;
// Measured, out of cache with 1 MiB pages: 11.3 GB/s without, 13.5 with this distance, no more with a larger one.
constexpr size_t kFetchAheadBytes = 2048;
// Measured, out of cache: 9 GB/s with streaming stores, 4.5 without. Smaller pieces may be wanted in the cache.
constexpr size_t kStreamMinBytes = 16 * 1024;

// Unrolled, the lanes stay in registers.
#define MESHCACHE_UNROLL _Pragma("GCC unroll 8")
#define MESHCACHE_SSE __attribute__((target("pclmul,sse4.1")))
#define MESHCACHE_AVX2 __attribute__((target("avx2,vpclmulqdq,pclmul")))
#define MESHCACHE_AVX512 __attribute__((target("avx512f,vpclmulqdq,pclmul")))

// The cache lines of a later block. It may lie outside of the memory: nothing comes of it then.
template <size_t kBlockBytes>
inline void fetch_ahead(const uint8_t* source) {
  for (size_t at = 0; at < kBlockBytes; at += kLineBytes) __builtin_prefetch(source + kFetchAheadBytes + at);
}

// A template, so that the factors are taken when compiling.
template <unsigned kDistance>
MESHCACHE_SSE inline __m128i factors128() {
  constexpr long long kEarly = early_factor(kDistance);
  constexpr long long kLate = late_factor(kDistance);
  return _mm_set_epi64x(kLate, kEarly);
}

MESHCACHE_SSE inline __m128i fold128(__m128i lane, __m128i factors, __m128i later) {
  const __m128i early = _mm_clmulepi64_si128(lane, factors, 0x00);
  const __m128i late = _mm_clmulepi64_si128(lane, factors, 0x11);
  return _mm_xor_si128(_mm_xor_si128(early, late), later);
}

MESHCACHE_SSE uint32_t sum_of_lane(__m128i lane) {
  alignas(16) uint8_t bytes[16];
  _mm_store_si128(reinterpret_cast<__m128i*>(bytes), lane);
  return table_sum(0, bytes, sizeof bytes);
}

template <Mode kMode>
MESHCACHE_SSE inline __m128i take128(const uint8_t*& source, uint8_t*& target) {
  const __m128i value = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
  source += sizeof value;
  if (kMode == Mode::kStore) _mm_storeu_si128(reinterpret_cast<__m128i*>(target), value);
  if (kMode == Mode::kStream) _mm_stream_si128(reinterpret_cast<__m128i*>(target), value);
  if (kMode != Mode::kSum) target += sizeof value;
  return value;
}

template <Mode kMode>
MESHCACHE_SSE uint32_t fold_sse(uint32_t state, uint8_t* target, const uint8_t* source, size_t length) {
  size_t blocks = length / kSseBlockBytes;
  const size_t rest = length % kSseBlockBytes;
  if (blocks > 0) {
    __m128i lanes[4];
    MESHCACHE_UNROLL for (auto& lane : lanes) lane = take128<kMode>(source, target);
    lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128(static_cast<int>(state)));
    const __m128i factors = factors128<kSseBlockBytes * 8>();
    while (--blocks > 0) {
      fetch_ahead<kSseBlockBytes>(source);
      MESHCACHE_UNROLL for (auto& lane : lanes) lane = fold128(lane, factors, take128<kMode>(source, target));
    }
    const __m128i next = factors128<128>();
    MESHCACHE_UNROLL for (size_t i = 1; i < 4; i++) lanes[i] = fold128(lanes[i - 1], next, lanes[i]);
    state = sum_of_lane(lanes[3]);
  }
  return kMode == Mode::kSum ? table_sum(state, source, rest) : table_copy(state, target, source, rest);
}

template <Mode kMode>
MESHCACHE_AVX2 inline __m256i take256(const uint8_t*& source, uint8_t*& target) {
  const __m256i value = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
  source += sizeof value;
  if (kMode == Mode::kStore) _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), value);
  if (kMode == Mode::kStream) _mm256_stream_si256(reinterpret_cast<__m256i*>(target), value);
  if (kMode != Mode::kSum) target += sizeof value;
  return value;
}

MESHCACHE_AVX2 inline __m256i fold256(__m256i lanes, __m256i factors, __m256i later) {
  const __m256i early = _mm256_clmulepi64_epi128(lanes, factors, 0x00);
  const __m256i late = _mm256_clmulepi64_epi128(lanes, factors, 0x11);
  return _mm256_xor_si256(_mm256_xor_si256(early, late), later);
}

template <Mode kMode>
MESHCACHE_AVX2 uint32_t fold_avx2(uint32_t state, uint8_t* target, const uint8_t* source, size_t length) {
  size_t blocks = length / kAvx2BlockBytes;
  const size_t rest = length % kAvx2BlockBytes;
  if (blocks > 0) {
    __m256i lanes[8];
    MESHCACHE_UNROLL for (auto& lane : lanes) lane = take256<kMode>(source, target);
    lanes[0] = _mm256_xor_si256(lanes[0], _mm256_zextsi128_si256(_mm_cvtsi32_si128(static_cast<int>(state))));
    const __m256i factors = _mm256_broadcastsi128_si256(factors128<kAvx2BlockBytes * 8>());
    while (--blocks > 0) {
      fetch_ahead<kAvx2BlockBytes>(source);
      MESHCACHE_UNROLL for (auto& lane : lanes) lane = fold256(lane, factors, take256<kMode>(source, target));
    }
    const __m256i next = _mm256_broadcastsi128_si256(factors128<256>());
    MESHCACHE_UNROLL for (size_t i = 1; i < 8; i++) lanes[i] = fold256(lanes[i - 1], next, lanes[i]);
    const __m128i last = _mm256_extracti128_si256(lanes[7], 1);
    state = sum_of_lane(fold128(_mm256_castsi256_si128(lanes[7]), factors128<128>(), last));
  }
  return fold_sse<kMode == Mode::kSum ? Mode::kSum : Mode::kStore>(state, target, source, rest);
}

template <unsigned kDistance>
MESHCACHE_AVX512 inline __m512i factors512() {
  constexpr long long kEarly = early_factor(kDistance);
  constexpr long long kLate = late_factor(kDistance);
  return _mm512_set_epi64(kLate, kEarly, kLate, kEarly, kLate, kEarly, kLate, kEarly);
}

template <Mode kMode>
MESHCACHE_AVX512 inline __m512i take512(const uint8_t*& source, uint8_t*& target) {
  const __m512i value = _mm512_loadu_si512(source);
  source += sizeof value;
  if (kMode == Mode::kStore) _mm512_storeu_si512(target, value);
  if (kMode == Mode::kStream) _mm512_stream_si512(reinterpret_cast<__m512i*>(target), value);
  if (kMode != Mode::kSum) target += sizeof value;
  return value;
}

MESHCACHE_AVX512 inline __m512i fold512(__m512i lanes, __m512i factors, __m512i later) {
  constexpr int kXorOfThree = 0x96;
  const __m512i early = _mm512_clmulepi64_epi128(lanes, factors, 0x00);
  const __m512i late = _mm512_clmulepi64_epi128(lanes, factors, 0x11);
  return _mm512_ternarylogic_epi64(early, late, later, kXorOfThree);
}

template <Mode kMode>
MESHCACHE_AVX512 uint32_t fold_avx512(uint32_t state, uint8_t* target, const uint8_t* source, size_t length) {
  size_t blocks = length / kAvx512BlockBytes;
  const size_t rest = length % kAvx512BlockBytes;
  if (blocks > 0) {
    __m512i lanes[4];
    MESHCACHE_UNROLL for (auto& lane : lanes) lane = take512<kMode>(source, target);
    lanes[0] = _mm512_xor_si512(lanes[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state))));
    const __m512i factors = factors512<kAvx512BlockBytes * 8>();
    while (--blocks > 0) {
      fetch_ahead<kAvx512BlockBytes>(source);
      MESHCACHE_UNROLL for (auto& lane : lanes) lane = fold512(lane, factors, take512<kMode>(source, target));
    }
    const __m512i next = factors512<512>();
    MESHCACHE_UNROLL for (size_t i = 1; i < 4; i++) lanes[i] = fold512(lanes[i - 1], next, lanes[i]);
    alignas(64) __m128i quarters[4];
    _mm512_store_si512(quarters, lanes[3]);
    for (size_t i = 1; i < 4; i++) quarters[i] = fold128(quarters[i - 1], factors128<128>(), quarters[i]);
    state = sum_of_lane(quarters[3]);
  }
  return fold_sse<kMode == Mode::kSum ? Mode::kSum : Mode::kStore>(state, target, source, rest);
}

using Fold = uint32_t (*)(uint32_t state, uint8_t* target, const uint8_t* source, size_t length);

template <Fold kSum>
uint32_t sum_by(uint32_t state, const uint8_t* source, size_t length) {
  return kSum(state, nullptr, source, length);
}

template <Fold kStore, Fold kStream>
uint32_t copy_by(uint32_t state, uint8_t* target, const uint8_t* source, size_t length) {
  if (length < kStreamMinBytes) return kStore(state, target, source, length);
  const size_t head = -reinterpret_cast<uintptr_t>(target) % kLineBytes;
  state = table_copy(state, target, source, head);
  state = kStream(state, target + head, source + head, length - head);
  _mm_sfence();  // in memory before anything that is written after this
  return state;
}

template <Fold kSum, Fold kStore, Fold kStream>
constexpr ChecksumPath path_of(const char* name) {
  return {name, sum_by<kSum>, copy_by<kStore, kStream>};
}

}  // namespace

void add_processor_paths(std::vector<ChecksumPath>& paths) {
  using M = Mode;
  __builtin_cpu_init();
  const bool sse = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
  const bool wide = sse && __builtin_cpu_supports("vpclmulqdq");
  if (wide && __builtin_cpu_supports("avx512f")) {
    paths.push_back(
        path_of<fold_avx512<M::kSum>, fold_avx512<M::kStore>, fold_avx512<M::kStream>>("vpclmulqdq-avx512"));
  }
  if (wide && __builtin_cpu_supports("avx2")) {
    paths.push_back(path_of<fold_avx2<M::kSum>, fold_avx2<M::kStore>, fold_avx2<M::kStream>>("vpclmulqdq-avx2"));
  }
  if (sse) paths.push_back(path_of<fold_sse<M::kSum>, fold_sse<M::kStore>, fold_sse<M::kStream>>("pclmulqdq"));
}

}  // namespace meshcache

#else

namespace meshcache {

void add_processor_paths(std::vector<ChecksumPath>&) {}

}  // namespace meshcache

#endif
