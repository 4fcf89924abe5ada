#include "cycles.h"

#include <cstdio>

#include "node.h"

namespace meshcache::tests {

namespace {

using fake::Fabric;

// The thread sanitizer keeps a history of its own.
#if defined(__SANITIZE_THREAD__)
constexpr bool kMeasuresMemory = false;
#else
constexpr bool kMeasuresMemory = true;
#endif
constexpr uint64_t kWarmUpCycles = 2000;
// 80 bytes a cycle at 100,000 cycles. (What the address sanitizer keeps back of freed memory, main.cc limits.)
constexpr uint64_t kGrowthMaxBytes = 8u << 20;
constexpr size_t kPageBytes = 4096;

void one_cycle(Fabric& fabric, Node& reader, const Read& read, Target& target, const Served& served) {
  CHECK_EQ(reader.read_one(read), OpStatus::kOk);
  CHECK(target.holds(served, 0, 0, kPageBytes));
  target.clear();
  fabric.disconnect_all("b");
  CHECK(fabric.wait([](Fabric& each) { return each.live("qp") == 0; }, 5000));
}

}  // namespace

bool run_cycles(uint64_t count, uint64_t seed) {
  Fabric fabric(seed);
  fabric.add_device({"a", "10.0.0.1"});
  fabric.add_device({"b", "10.0.0.2"});
  fake::Faults faults;
  faults.inline_nic = true;
  fabric.set_faults(faults);
  bool is_clean = true;
  try {
    const auto quick = [](EngineOptions& options) { options.queue_pairs_per_peer = 1; };
    Served served(seed, kPageBytes);
    Target target(kPageBytes);
    {
      Node owner(fabric, {"10.0.0.2"}, 0, quick);
      Node reader(fabric, {"10.0.0.1"}, 0, quick);
      owner.serve(served, 77);
      reader.accept(target);
      const Read read{reader.peer(owner), served.rkey, served.addr(), {{target.addr(), kPageBytes}}};
      for (uint64_t i = 0; i < std::min(count, kWarmUpCycles); i++) one_cycle(fabric, reader, read, target, served);
      const uint64_t bytes_before = resident_bytes();
      const size_t descriptors_before = open_descriptors();
      const uint64_t connects_before = fabric.calls("connect");
      for (uint64_t i = 0; i < count; i++) one_cycle(fabric, reader, read, target, served);
      const int64_t growth = static_cast<int64_t>(resident_bytes()) - static_cast<int64_t>(bytes_before);
      const uint64_t connects = fabric.calls("connect") - connects_before;
      printf("%llu cycles: %llu connections, memory %+lld bytes, descriptors %+lld\n", static_cast<unsigned long long>(count),
             static_cast<unsigned long long>(connects), static_cast<long long>(growth),
             static_cast<long long>(open_descriptors()) - static_cast<long long>(descriptors_before));
      CHECK(connects >= count);
      CHECK_EQ(open_descriptors(), descriptors_before);
      if (kMeasuresMemory) CHECK(growth <= static_cast<int64_t>(kGrowthMaxBytes));
    }
    check_clean(fabric);
  } catch (const std::exception& error) {
    printf("FAILED: %s\n", error.what());
    is_clean = false;
  }
  return is_clean;
}

}  // namespace meshcache::tests
