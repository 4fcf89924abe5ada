// The folding of checksum_folding.h with the polynomial multiplication of ARMv8, which comes with its AES instructions.
#if defined(__aarch64__)

#include <arm_neon.h>
#include <sys/auxv.h>

#include "checksum_folding.h"

namespace meshcache {
namespace {

struct NeonLane {
  using Value = uint64x2_t;

  MESHCACHE_LANES static Value load(const uint8_t* source) { return vreinterpretq_u64_u8(vld1q_u8(source)); }
  MESHCACHE_LANES static void store(uint8_t* target, Value value) { vst1q_u8(target, vreinterpretq_u8_u64(value)); }
  // There is no instruction for it that C++ can name. Processors find out by themselves that memory is overwritten.
  MESHCACHE_LANES static void stream(uint8_t* target, Value value) { store(target, value); }
  MESHCACHE_LANES static Value add(Value lane, uint32_t state) { return veorq_u64(lane, Value{state, 0}); }

  // A template, so that the factors are taken when compiling.
  template <unsigned kDistance>
  MESHCACHE_LANES static Value factors() {
    constexpr long long kEarly = early_factor(kDistance);
    constexpr long long kLate = late_factor(kDistance);
    return Value{kEarly, kLate};
  }

  MESHCACHE_LANES static Value fold(Value lane, Value factors, Value later) {
    const poly64x2_t halves = vreinterpretq_p64_u64(lane);
    const poly64x2_t by = vreinterpretq_p64_u64(factors);
    const poly128_t early = vmull_p64(vgetq_lane_p64(halves, 0), vgetq_lane_p64(by, 0));
    const poly128_t late = vmull_high_p64(halves, by);
    return veorq_u64(veorq_u64(vreinterpretq_u64_p128(early), vreinterpretq_u64_p128(late)), later);
  }
};

}  // namespace

void add_processor_paths(std::vector<ChecksumPath>& paths) {
  if ((getauxval(AT_HWCAP) & HWCAP_PMULL) == 0) return;
  paths.push_back({"pmull", sum_by<fold_lanes<NeonLane, Mode::kSum>>, fold_lanes<NeonLane, Mode::kStore>});
}

}  // namespace meshcache

#endif
