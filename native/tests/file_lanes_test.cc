// Calls to files in lanes, under the sanitizers.
#include "../file_lanes.h"

#include <atomic>
#include <future>

#include "check.h"

namespace meshcache::tests {

TEST(file_lanes_wait_for_their_own, "file lanes: a file that hangs holds up no other one, and every job runs") {
  constexpr int kHanging = 8;
  constexpr int kJobs = 20'000;
  std::atomic<int> done{0};
  {
    FileLanes lanes;
    std::promise<void> gate;
    const std::shared_future<void> opened = gate.get_future().share();
    for (int i = 0; i < kHanging; i++) {
      lanes.submit(1, [&done, opened] {
        opened.wait();
        done++;
      });
    }
    std::promise<void> other;
    lanes.submit(2, [&other] { other.set_value(); });
    other.get_future().wait();
    CHECK_EQ(done.load(), 0);
    gate.set_value();
    for (int i = 0; i < kJobs; i++) lanes.submit(i % 5, [&done] { done++; });
  }
  CHECK_EQ(done.load(), kHanging + kJobs);
}

}  // namespace meshcache::tests
